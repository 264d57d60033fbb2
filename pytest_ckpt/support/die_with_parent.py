"""Makes a process end when its parent ends. If the controller is killed, no process may write to the target.

As a program, ``python -I -S die_with_parent.py PARENT COMMAND …`` binds itself to its parent and executes the command.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterable

_PR_SET_PDEATHSIG = 1


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Make the kernel send this process a signal when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def tied_to_this_process(command: Iterable[str]) -> list[str]:
    """Return a command line that runs ``command``; the command receives SIGTERM when this process ends."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def main() -> None:
    """Bind this process to its parent, then execute the command."""
    parent, *command = sys.argv[1:]
    die_with_parent(signal.SIGTERM)
    if os.getppid() != int(parent):
        sys.exit("the controller is gone")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()

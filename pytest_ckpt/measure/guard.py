"""Start a command that ends when the process that asked for it ends: ``python -I -S guard.py PARENT COMMAND …``.

Without it, a killed controller would leave its launcher and ranks writing to the target.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent, then become the command."""
    parent, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):
        sys.exit("the controller is gone")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()

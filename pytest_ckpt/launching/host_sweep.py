"""Ends the remaining processes of a run on this host: ``python -m pytest_ckpt.launching.host_sweep [SECONDS]``.

A mark in the environment of every process identifies the run. The sweep is started by the launcher, or by a rank that
has lost its controller. A rank passes SECONDS. The sweep then waits for this time and ends only processes of the rank's
launch, because the run may have started another launch. The sweep prints the ids of processes that it could not end.

On another host than the controller's, Open MPI has a daemon with a session directory for its sockets and segments. The
sweep ends the daemon and removes the directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.support.processes import LAUNCH, MARK, SESSION, SWEEP, end_marked, marked_processes

if TYPE_CHECKING:
    from collections.abc import Iterable

# The session directory of Open MPI, on this and other hosts; its name contains the process id of the daemon.
_SESSION_NAME = re.compile(r"(?:ompi|prted)\.([1-9][0-9]*)")
_DAEMONS = ("prted", "prterun", "mpiexec", "mpirun")


def main() -> int:
    """End the processes of the run, and print the ids of processes that could not be ended."""
    run_id = os.environ[MARK].removesuffix(SWEEP)
    of_a_rank = len(sys.argv) > 1
    launch = os.environ.get(LAUNCH, "") if of_a_rank else ""
    sessions = _sessions_of(marked_processes(run_id, launch))
    if of_a_rank:
        # A rank that has lost its controller lets the launcher end by itself first. The rank has ended by now, so its
        # session is known from the inherited environment.
        sessions |= _sessions_of(["self"])
        time.sleep(float(sys.argv[1]))
    stuck = end_marked(run_id, launch=launch)
    for session in sessions:
        _end(session)
    print(json.dumps({"stuck": stuck}), flush=True)
    return 0


def _sessions_of(processes: Iterable[int | str]) -> set[Path]:
    """Return the session directories that the environments of ``processes`` name."""
    sessions = set()
    for process in processes:
        with contextlib.suppress(OSError):
            pairs = Path("/proc", str(process), "environ").read_bytes().split(b"\0")
            sessions |= {
                Path(os.fsdecode(pair.partition(b"=")[2])) for pair in pairs if pair.startswith(f"{SESSION}=".encode())
            }
    return sessions


def _end(session: Path) -> None:
    """Kill the Open MPI daemon of a session, and remove the session directory.

    The daemon's environment lacks the mark of the run. The daemon is identified by its process id, which is part of the
    directory's name.
    """
    if not (named := _SESSION_NAME.fullmatch(session.name)):
        return  # the session of a scheduler, which continues after the run
    with contextlib.suppress(OSError):
        words = Path("/proc", named[1], "cmdline").read_bytes().split(b"\0")
        if Path(os.fsdecode(words[0])).name in _DAEMONS:
            os.kill(int(named[1]), signal.SIGKILL)
    with contextlib.suppress(OSError):
        if session.lstat().st_uid == os.geteuid():
            shutil.rmtree(session)


if __name__ == "__main__":
    sys.exit(main())

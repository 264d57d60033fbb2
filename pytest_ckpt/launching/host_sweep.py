"""Ends the remaining processes of a run on its own host: ``python -m pytest_ckpt.launching.host_sweep [SECONDS]``.

The launcher starts it, or a rank that has lost its controller. The mark in its environment names the run. A rank passes
SECONDS: the sweep then waits for this time, and ends only processes of its own launch, because the run may have begun
another launch in this time. It prints the processes that it could not end.

On another host Open MPI stores its sockets and segments in the session directory of its daemon. The sweep ends the
daemon and removes that directory.
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

# Of Open MPI, here and on other hosts: a directory that has the number of its daemon.
_SESSION_NAME = re.compile(r"(?:ompi|prted)\.([1-9][0-9]*)")
_DAEMONS = ("prted", "prterun", "mpiexec", "mpirun")


def main() -> int:
    """End the processes, and print which ones remain."""
    run_id = os.environ[MARK].removesuffix(SWEEP)
    of_a_rank = len(sys.argv) > 1
    launch = os.environ.get(LAUNCH, "") if of_a_rank else ""
    sessions = _sessions_of(marked_processes(run_id, launch))
    if of_a_rank:
        # A rank that has lost its controller gives the launcher the time to end by itself. Its own session is known
        # by the environment that it has handed on: it is gone itself.
        sessions |= _sessions_of(["self"])
        time.sleep(float(sys.argv[1]))
    stuck = end_marked(run_id, launch=launch)
    for session in sessions:
        _end(session)
    print(json.dumps({"stuck": stuck}), flush=True)
    return 0


def _sessions_of(processes: Iterable[int | str]) -> set[Path]:
    """Return the directories of the sessions in which processes of this host were started."""
    found = set()
    for process in processes:
        with contextlib.suppress(OSError):
            pairs = Path("/proc", str(process), "environ").read_bytes().split(b"\0")
            found |= {
                Path(os.fsdecode(pair.partition(b"=")[2])) for pair in pairs if pair.startswith(f"{SESSION}=".encode())
            }
    return found


def _end(session: Path) -> None:
    """End the daemon of a session of Open MPI, which has no mark of the run, and remove the session's directory."""
    if not (named := _SESSION_NAME.fullmatch(session.name)):
        return  # of a scheduler, which outlives the run
    with contextlib.suppress(OSError):
        words = Path("/proc", named[1], "cmdline").read_bytes().split(b"\0")
        if Path(os.fsdecode(words[0])).name in _DAEMONS:
            os.kill(int(named[1]), signal.SIGKILL)
    with contextlib.suppress(OSError):
        if session.lstat().st_uid == os.geteuid():
            shutil.rmtree(session)


if __name__ == "__main__":
    sys.exit(main())

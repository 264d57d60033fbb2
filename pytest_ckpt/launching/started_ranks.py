"""The processes of one launch: the launcher, its ranks and their connections, and the folder of its own sockets."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.support.die_with_parent import tied_to_this_process
from pytest_ckpt.support.processes import end_launch
from pytest_ckpt.wire.listener import Connection, Listener

if TYPE_CHECKING:
    from pytest_ckpt.launching.launcher import Launcher

SCRATCH = "ckpt-"
"""How the name of a launch's folder for sockets and segments begins; the controller's number follows."""

_READ_BYTES = 1 << 16


@dataclass(kw_only=True, slots=True)
class StartedRanks:
    """What `started` made. ``numbers`` says which rank a connection is of, ``waiting`` which wait for another job."""

    process: subprocess.Popen[bytes]
    callers: Listener
    scratch: str
    streams: set[int]
    began: float
    rank_0: Connection | None = None
    numbers: dict[Connection, int] = field(default_factory=dict)
    waiting: dict[Connection, None] = field(default_factory=dict)
    _lines: dict[int, bytes] = field(default_factory=dict)

    def read(self, stream: int) -> list[str]:
        """Return the whole lines that have arrived on an output of the launcher; at its end it is none any more."""
        try:
            data = os.read(stream, _READ_BYTES)
        except BlockingIOError:
            return []
        if not data:
            self.streams.discard(stream)
            return []
        *lines, rest = (self._lines.get(stream, b"") + data).split(b"\n")
        self._lines[stream] = rest
        return [line.decode(errors="replace") for line in lines]

    def end(self, run_id: str) -> list[int]:
        """End what is left of them; return the processes that could not be ended."""
        try:
            stuck = end_launch(self.process, run_id)
            for stream in (self.process.stdout, self.process.stderr):
                if stream:
                    with contextlib.suppress(OSError):
                        stream.close()
        finally:
            self.callers.close()
            shutil.rmtree(self.scratch, ignore_errors=True)
        return stuck


def scratch_folder() -> str:
    """Make a folder for the launcher's sockets and segments; remove those of controllers that were killed."""
    # Memory-backed, so that segments never touch a disk; a short name, as sockets need one.
    home = Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir())
    for left in home.glob(f"{SCRATCH}*-*"):
        pid = left.name.split("-")[1]
        with contextlib.suppress(OSError):
            if left.lstat().st_uid == os.geteuid() and pid.isdigit() and not Path("/proc", pid).exists():
                shutil.rmtree(left, ignore_errors=True)
    return tempfile.mkdtemp(prefix=f"{SCRATCH}{os.getpid()}-", dir=home)


def listener_of(launcher: Launcher, processes: int) -> Listener:
    """Return what the ranks of a launch call back at."""
    return Listener(only_this_host=launcher.stays_here, callers=processes, ports=launcher.ports)


def started(command: list[str], environment: dict[str, str], callers: Listener, scratch: str) -> StartedRanks:
    """Start a launcher; what it starts calls back ``callers``."""
    process = subprocess.Popen(
        tied_to_this_process(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment | callers.environment,
        start_new_session=True,
    )
    streams = {stream.fileno() for stream in (process.stdout, process.stderr) if stream}
    for stream in streams:
        os.set_blocking(stream, False)
    return StartedRanks(process=process, callers=callers, scratch=scratch, streams=streams, began=time.monotonic())

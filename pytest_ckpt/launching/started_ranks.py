"""The processes of one launch: the launcher, its ranks and their connections, and who keeps its folder."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_ckpt.launching.scratch import ScratchFolder, ScratchKeeper
from pytest_ckpt.support.die_with_parent import tied_to_this_process
from pytest_ckpt.support.processes import end_launch
from pytest_ckpt.wire.listener import Connection, Listener

if TYPE_CHECKING:
    from pytest_ckpt.launching.launcher import Launcher

_READ_BYTES = 1 << 16


@dataclass(kw_only=True, slots=True)
class StartedRanks:
    """What `started` made. ``numbers`` says which rank a connection is of, ``waiting`` which wait for another job."""

    process: subprocess.Popen[bytes]
    callers: Listener
    keeper: ScratchKeeper | None
    streams: set[int]
    began: float
    rank_0: Connection | None = None
    numbers: dict[Connection, int] = field(default_factory=dict)
    waiting: dict[Connection, None] = field(default_factory=dict)
    _lines: dict[int, bytes] = field(default_factory=dict)

    def read(self, stream: int) -> list[str]:
        """Return the whole lines that have arrived on an output of the launcher.

        At its end it is none any more, and what it said last is a line even without an end.
        """
        try:
            data = os.read(stream, _READ_BYTES)
        except BlockingIOError:
            return []
        if not data:
            self.streams.discard(stream)
            rest = self._lines.pop(stream, b"")
            return [rest.decode(errors="replace")] if rest else []
        *lines, self._lines[stream] = (self._lines.get(stream, b"") + data).split(b"\n")
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
            if self.keeper:
                self.keeper.remove()
        return stuck


def listener_of(launcher: Launcher, processes: int) -> Listener:
    """Return what the ranks of a launch call back at."""
    return Listener(only_this_host=launcher.stays_here, callers=processes, ports=launcher.ports)


def started(
    command: list[str], environment: dict[str, str], callers: Listener, scratch: ScratchFolder | None
) -> StartedRanks:
    """Start a launcher; what it starts calls back ``callers``. Its folder ``scratch``, if any, goes with it."""
    process = subprocess.Popen(
        tied_to_this_process(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment | callers.environment,
        start_new_session=True,
    )
    try:
        keeper = ScratchKeeper(scratch, process.pid) if scratch else None
    except BaseException:
        process.kill()
        process.wait()
        raise
    streams = {stream.fileno() for stream in (process.stdout, process.stderr) if stream}
    for stream in streams:
        os.set_blocking(stream, False)
    return StartedRanks(process=process, callers=callers, keeper=keeper, streams=streams, began=time.monotonic())

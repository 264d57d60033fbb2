"""Compares this rank's clock with the uptime of its kernel, over operations and over the whole measurement.

Times are taken by `time.perf_counter`. A library or a start-up hook may answer it; the kernel's uptime is a file, which
both would have to change as well. Linux counts the uptime on, but not the clock, while a host sleeps: CLOCK_BOOTTIME,
which counts sleep too, tells the two apart.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.facts.client_proofs import ClockSpan

if TYPE_CHECKING:
    from collections.abc import Callable

_CLOCKS: tuple[Callable[[], float], ...] = (time.perf_counter, time.monotonic)
# A busy host may take this process off its processor between two looks: then it looks again.
_CLOSE_SECONDS = 0.002
_TRIES = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class _Moment:
    """The uptime, each clock right before and right after it was read, and how far CLOCK_BOOTTIME is ahead. Seconds."""

    uptime: float
    ahead: float
    before: tuple[float, ...]
    after: tuple[float, ...]


class ClockWatch:
    """Holds the span in which a rank's clock differed most from its kernel's uptime."""

    def __init__(self, rank: int, host: str) -> None:
        self._rank, self._host = rank, host
        self._began_all = self._began = _look()
        self._worst: ClockSpan | None = None

    def begin(self) -> None:
        """Begin an operation."""
        self._began = _look()

    def end(self, of: str) -> None:
        """End the operation that was begun last."""
        self._take(self._began, of)

    def seconds(self) -> float:
        """Return how long it has watched, by the clock that times operations."""
        return time.perf_counter() - self._began_all.after[0]

    def worst(self) -> ClockSpan:
        """Return the span that differs most, of the operations so far and of all the time until now."""
        self._take(self._began_all, "the measurement")
        assert self._worst
        return self._worst

    def _take(self, began: _Moment, of: str) -> None:
        ended = _look()
        uptime = ended.uptime - began.uptime
        for number in range(len(_CLOCKS)):
            # The clock's time between both looks at the uptime is known as a range; the nearest value in it counts.
            least = ended.before[number] - began.after[number]
            most = ended.after[number] - began.before[number]
            clock = min(max(uptime, least), most)
            span = ClockSpan(
                rank=self._rank,
                host=self._host,
                of=of,
                clock_seconds=clock,
                uptime_seconds=uptime,
                asleep_seconds=max(0.0, ended.ahead - began.ahead),
            )
            if self._worst is None or span.difference_seconds > self._worst.difference_seconds:
                self._worst = span


def _look() -> _Moment:
    for _ in range(_TRIES):
        before = tuple(clock() for clock in _CLOCKS)
        uptime = _uptime()
        after = tuple(clock() for clock in _CLOCKS)
        ahead = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
        found = _Moment(uptime=uptime, ahead=ahead, before=before, after=after)
        if after[0] - before[0] < _CLOSE_SECONDS:
            break
    return found


def _uptime() -> float:
    descriptor = os.open("/proc/uptime", os.O_RDONLY)
    try:
        return float(os.read(descriptor, 64).split()[0])
    finally:
        os.close(descriptor)

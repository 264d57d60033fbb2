"""Evidence that a rank's client is genuine: the effect of fsync, the clock, and libraries that intercept calls.

Operations are timed by `time.perf_counter`, which a library or a start-up hook could intercept. Therefore each
operation and the whole measurement are also timed by the kernel's uptime, read from /proc/uptime.

While a host sleeps, the uptime advances and the clock of `time.perf_counter` does not. CLOCK_BOOTTIME includes sleep,
so it distinguishes sleep from a manipulated clock.
"""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, cast

from pytest_ckpt.facts.proofs import ClientProofs, ClockSpan, FsyncEffect, Interposed, Moment, RankSpan
from pytest_ckpt.support.interposition import interposed_calls, is_profiler, start_hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.targets.protocol import Store, StoreOfPaths

# The kernel may write pages back by itself between the write and the first count.
_TRIES = 5

_CLOCKS: tuple[Callable[[], float], ...] = (time.perf_counter, time.monotonic)
# A busy host may preempt this process between two readings; then the reading is repeated.
_CLOSE_SECONDS = 0.002
_LOOKS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class _RankProof:
    """The evidence of one rank."""

    fsyncs: tuple[FsyncEffect, ...]
    clock: ClockSpan
    seconds: float
    interposed: tuple[Interposed, ...]
    disclosed: tuple[str, ...]


@dataclass(kw_only=True, slots=True)
class ClientProof:
    """Collects the evidence of one rank that its client is genuine. All ranks call `joined` together.

    ``clock`` compares the rank's clock with the kernel's uptime.
    """

    group: Group
    activity: Activity
    store: Store
    subject: str
    clock: ClockWatch
    _fsyncs: list[FsyncEffect] = field(default_factory=list)

    def try_fsync(self, moment: Moment) -> None:
        """Write and fsync an extra file on the target, and record the effect of the fsync.

        The effect is the number of bytes that the kernel has not written back before and after the fsync. ``moment`` is
        the time of the trial within the measurement. If the store does not use fsync, do nothing.
        """
        if not hasattr(self.store, "fsync_counts"):
            return
        for number in range(1, _TRIES + 1):
            with self.activity.in_phase("fsync canary", f"canary {number}"):
                counts = cast("StoreOfPaths", self.store).fsync_counts(self.subject)
            if counts.left_bytes == 0 and not counts.unobservable:
                break
        self._fsyncs.append(FsyncEffect(rank=self.group.rank, host=self.group.host, moment=moment, **asdict(counts)))

    def joined(self) -> ClientProofs:
        """On rank 0, return the combined evidence of all ranks; on other ranks, return an empty record."""
        host = self.group.host
        calls = interposed_calls()
        # If fsync has its effect, calls that a profiler intercepts are only disclosed (`start_hooks`).
        if not any(effect.is_missing for effect in self._fsyncs):
            calls = {by: names for by, names in calls.items() if not is_profiler(by)}
        own = _RankProof(
            fsyncs=tuple(self._fsyncs),
            clock=self.clock.worst(),
            seconds=self.clock.seconds(),
            interposed=tuple(Interposed(host=host, by=by, calls=names) for by, names in calls.items()),
            disclosed=start_hooks(),
        )
        return fold(self.group.gather(own))


def fold(ranks: Sequence[_RankProof]) -> ClientProofs:
    """Combine the evidence of all ranks.

    The result contains the worst rank of each host, and each library or hook once.
    """
    return ClientProofs(
        fsyncs=tuple(_worst_fsyncs(effect for own in ranks for effect in own.fsyncs)),
        clocks=tuple(_worst_clocks(own.clock for own in ranks)),
        interposed=tuple(dict.fromkeys(found for own in ranks for found in own.interposed)),
        disclosed=tuple(dict.fromkeys(phrase for own in ranks for phrase in own.disclosed)),
        spans=tuple(_unusual_spans(ranks)),
    )


def _worst_fsyncs(effects: Iterable[FsyncEffect]) -> list[FsyncEffect]:
    worst: dict[tuple[str, Moment], FsyncEffect] = {}
    for effect in effects:
        known = worst.setdefault((effect.host, effect.moment), effect)
        if _badness(effect) > _badness(known):
            worst[effect.host, effect.moment] = effect
    return list(worst.values())


def _badness(effect: FsyncEffect) -> tuple[bool, int, bool, bool]:
    return effect.is_missing, effect.left_bytes, bool(effect.unobservable), bool(effect.unsafe_option)


def _worst_clocks(spans: Iterable[ClockSpan]) -> list[ClockSpan]:
    worst: dict[str, ClockSpan] = {}
    for span in spans:
        if span.difference_seconds > worst.setdefault(span.host, span).difference_seconds:
            worst[span.host] = span
    return list(worst.values())


def _unusual_spans(ranks: Iterable[_RankProof]) -> list[RankSpan]:
    spans = [RankSpan(rank=own.clock.rank, host=own.clock.host, seconds=own.seconds) for own in ranks]
    usual = statistics.median(span.seconds for span in spans) if spans else 0.0
    by_host: dict[str, RankSpan] = {}
    for span in spans:
        if abs(span.seconds - usual) > abs(by_host.setdefault(span.host, span).seconds - usual):
            by_host[span.host] = span
    return list(by_host.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class _ClockReading:
    """One reading of the kernel's uptime, and of each clock immediately before and after the uptime, in seconds.

    ``ahead`` is CLOCK_BOOTTIME minus CLOCK_MONOTONIC.
    """

    uptime: float
    ahead: float
    before: tuple[float, ...]
    after: tuple[float, ...]


class ClockWatch:
    """Records the time span in which a rank's clock differed most from the kernel's uptime."""

    def __init__(self, rank: int, host: str) -> None:
        self._rank, self._host = rank, host
        self._began_all = self._began = _sample()
        self._worst: ClockSpan | None = None

    def begin(self) -> None:
        """Read the clocks at the start of an operation."""
        self._began = _sample()

    def end(self, of: str) -> None:
        """Read the clocks at the end of the operation ``of``.

        The operation's time span is kept if its difference from the uptime is the largest so far.
        """
        self._add_interval(self._began, of)

    def seconds(self) -> float:
        """Return the seconds since this object was created, measured by `time.perf_counter`, which times operations."""
        return time.perf_counter() - self._began_all.after[0]

    def worst(self) -> ClockSpan:
        """Return the time span with the largest difference from the uptime: one operation, or the whole measurement."""
        self._add_interval(self._began_all, "the measurement")
        assert self._worst
        return self._worst

    def _add_interval(self, began: _ClockReading, of: str) -> None:
        ended = _sample()
        uptime = ended.uptime - began.uptime
        for number in range(len(_CLOCKS)):
            # The clock's time between two readings of the uptime is known as a range; the nearest value in the range is
            # used.
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


def _sample() -> _ClockReading:
    for _ in range(_LOOKS):
        before = tuple(clock() for clock in _CLOCKS)
        uptime = _uptime()
        after = tuple(clock() for clock in _CLOCKS)
        ahead = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
        reading = _ClockReading(uptime=uptime, ahead=ahead, before=before, after=after)
        if after[0] - before[0] < _CLOSE_SECONDS:
            break
    return reading


def _uptime() -> float:
    descriptor = os.open("/proc/uptime", os.O_RDONLY)
    try:
        return float(os.read(descriptor, 64).split()[0])
    finally:
        os.close(descriptor)

"""What each rank of a measurement shows of its fsync, its clock and what is loaded into it, folded host by host."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, cast

from pytest_ckpt.facts.client_proofs import ClientProofs, ClockSpan, FsyncEffect, Interposed, Moment, RankSpan
from pytest_ckpt.support.interposition import interposed_calls, is_profiler, start_hooks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.clock_watch import ClockWatch
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.targets.protocol import Store
    from pytest_ckpt.targets.protocol_of_paths import StoreOfPaths

# The kernel may write pages back by itself between the write and the first count.
_TRIES = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class _Own:
    """What one rank showed."""

    fsyncs: tuple[FsyncEffect, ...]
    clock: ClockSpan
    seconds: float
    interposed: tuple[Interposed, ...]
    disclosed: tuple[str, ...]


@dataclass(kw_only=True, slots=True)
class ClientProof:
    """Collects the proofs of one rank; `joined` is called by all ranks together."""

    group: Group
    activity: Activity
    store: Store
    subject: str
    clock: ClockWatch
    _fsyncs: list[FsyncEffect] = field(default_factory=list)

    def try_fsync(self, moment: Moment) -> None:
        """Fsync a file of this rank's own on the target, if it is fsync that makes files durable there."""
        if not hasattr(self.store, "fsync_counts"):
            return
        for number in range(1, _TRIES + 1):
            with self.activity.in_phase("fsync canary", f"canary {number}"):
                counts = cast("StoreOfPaths", self.store).fsync_counts(self.subject)
            if counts.left_bytes == 0 and not counts.unobservable:
                break
        self._fsyncs.append(FsyncEffect(rank=self.group.rank, host=self.group.host, moment=moment, **asdict(counts)))

    def joined(self) -> ClientProofs:
        """Return what all ranks showed, on rank 0; elsewhere an empty record."""
        host = self.group.host
        calls = interposed_calls()
        # What profilers answer is disclosed only, as long as fsync has its effect.
        if not any(effect.is_missing for effect in self._fsyncs):
            calls = {by: names for by, names in calls.items() if not is_profiler(by)}
        own = _Own(
            fsyncs=tuple(self._fsyncs),
            clock=self.clock.worst(),
            seconds=self.clock.seconds(),
            interposed=tuple(Interposed(host=host, by=by, calls=names) for by, names in calls.items()),
            disclosed=start_hooks(),
        )
        return fold(self.group.gather(own))


def fold(ranks: Sequence[_Own]) -> ClientProofs:
    """Keep of each host the rank with the worst result, and of what is loaded each thing once."""
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


def _unusual_spans(ranks: Iterable[_Own]) -> list[RankSpan]:
    spans = [RankSpan(rank=own.clock.rank, host=own.clock.host, seconds=own.seconds) for own in ranks]
    usual = statistics.median(span.seconds for span in spans) if spans else 0.0
    by_host: dict[str, RankSpan] = {}
    for span in spans:
        if abs(span.seconds - usual) > abs(by_host.setdefault(span.host, span).seconds - usual):
            by_host[span.host] = span
    return list(by_host.values())

"""What the slowest process took in each operation, from as many ranks as there are. Pure.

DLIO starts an operation on every rank at a barrier, which all reach once the slowest has ended the operation before and
has slept ``time_between_checkpoints``. So on any rank's clock

    slowest of this operation = start of the next - start of this - time between checkpoints

which needs no other rank's file and compares no clocks. Where all ranks are known it is right to 2 ms. The last
operation of a phase has no next one.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_ckpt.dlio.times import Key, RankTimes, Timing
from pytest_ckpt.records import OperationKind

USUAL_SECONDS_BETWEEN = 5.0
"""Seconds between checkpoints in the configuration of every model of the workload."""

ALL_RANKS, INFERRED, RANK_0 = "all ranks", "inferred from rank 0", "rank 0 only"

# The largest difference between the inferred and the measured time of the slowest rank where all were known.
_PRECISION_SECONDS = 0.002
# A rank that was in the next operation's barrier this much earlier than it ended this one: the inference cannot hold.
_CONTRADICTION_SECONDS = 0.05
# Ranks of one run leave a barrier within milliseconds: intervals that agree so well are of one run, whatever the clocks
# say; intervals that agree so badly are not.
_ONE_BARRIER_SECONDS = 0.003
_SAME_RUN_SECONDS = 0.1
# Further apart than clocks drift, and not by a difference of time zones.
_SAME_CLOCK_SECONDS = 30.0
_TIME_ZONE_SECONDS = 900.0

Ranks = Mapping[int, RankTimes]


@dataclass(frozen=True, kw_only=True, slots=True)
class Slowest:
    """One operation: its result, who was slowest (None: not known), every known rank's own seconds, and the basis."""

    kind: OperationKind
    number: int
    seconds: float
    slowest_rank: int | None
    rank_seconds: Mapping[int, float]
    basis: str
    contradicted: bool = False

    @property
    def rank0_seconds(self) -> float | None:
        """Rank 0's own time, which DLIO publishes."""
        return self.rank_seconds.get(0)


def slowest_of_each(ranks: Ranks, processes: int, seconds_between: float) -> tuple[Slowest, ...]:
    """Return every operation that any rank recorded, saves first, each in order."""
    keys = {key for times in ranks.values() for key in times.timings}
    found = []
    for kind, number in sorted(keys, key=lambda k: (k[0] == "load", k[1])):
        known = {rank: t.timings[kind, number].seconds for rank, t in ranks.items() if (kind, number) in t.timings}
        found.append(_slowest((kind, number), known, ranks, processes, seconds_between))
    return tuple(found)


def inferred_seconds(timings: Mapping[Key, Timing], key: Key, seconds_between: float) -> float | None:
    """Return what the slowest process took, from one rank's starts alone; None for the last of a phase."""
    kind, number = key
    this, following = timings.get(key), timings.get((kind, number + 1))
    if this is None or following is None:
        return None
    # The files have microseconds.
    return round(following.start - this.start - seconds_between, 6)


def inference_error_seconds(ranks: Ranks, processes: int, seconds_between: float) -> float | None:
    """Return how far the inference is from the slowest rank where all are known; None where it cannot be told."""
    lowest = ranks.get(0)
    if lowest is None:
        return None
    errors = [
        abs(inferred - operation.seconds)
        for operation in slowest_of_each(ranks, processes, seconds_between)
        if operation.basis == ALL_RANKS
        and (inferred := inferred_seconds(lowest.timings, (operation.kind, operation.number), seconds_between))
        is not None
    ]
    return max(errors, default=None)


def strangers(ranks: Ranks) -> dict[int, str]:
    """Return {rank: why} of the ranks whose times cannot be of the same run as the others'."""
    with_times = {rank: times for rank, times in ranks.items() if times.timings}
    if len(with_times) < 2:
        return {}
    reference = _reference(with_times)
    found = {}
    for rank, times in with_times.items():
        common = [key for key in times.timings if key in reference]
        if not common:
            found[rank] = "it holds none of the operations that the other ranks hold"
            continue
        apart = statistics.median(times.timings[key].start - reference[key] for key in common)
        differences = [
            abs((times.timings[b].start - times.timings[a].start) - (reference[b] - reference[a]))
            for a, b in itertools.pairwise(sorted(common))
        ]
        if len(differences) > 1 and max(differences) <= _ONE_BARRIER_SECONDS:
            continue
        beside_zone = abs(apart - _TIME_ZONE_SECONDS * round(apart / _TIME_ZONE_SECONDS))
        if differences and statistics.median(differences) > _SAME_RUN_SECONDS:
            found[rank] = "its operations do not start at the others' intervals: it is of another run"
        elif beside_zone > _SAME_CLOCK_SECONDS:
            found[rank] = f"its operations start {abs(apart):,.0f} s from the others': it is of another run"
    return found


def clock_skew_seconds(ranks: Ranks) -> float:
    """Return by how much the clocks of two ranks differ at most, from the starts that a barrier made equal."""
    shared = set.intersection(*(set(times.timings) for times in ranks.values())) if ranks else set()
    starts = [[times.timings[key].start for times in ranks.values()] for key in shared]
    return max((max(s) - min(s) for s in starts), default=0.0)


def _slowest(key: Key, known: Mapping[int, float], ranks: Ranks, processes: int, seconds_between: float) -> Slowest:
    kind, number = key
    rank = max(known, key=known.__getitem__)
    longest = known[rank]

    def found(seconds: float, slowest_rank: int | None, basis: str, *, contradicted: bool = False) -> Slowest:
        return Slowest(
            kind=kind,
            number=number,
            seconds=seconds,
            slowest_rank=slowest_rank,
            rank_seconds=known,
            basis=basis,
            contradicted=contradicted,
        )

    if len(known) == processes:
        return found(longest, rank, ALL_RANKS)
    # Rank 0's starts; another's where its file is lost. They differ by what a barrier takes.
    inferred = next(
        (
            seconds
            for r in sorted(known)
            if (seconds := inferred_seconds(ranks[r].timings, key, seconds_between)) is not None
        ),
        None,
    )
    if inferred is None:
        return found(longest, None, RANK_0)
    if inferred < longest - _CONTRADICTION_SECONDS:
        return found(longest, None, RANK_0, contradicted=True)
    return found(max(inferred, longest), rank if longest >= inferred - _PRECISION_SECONDS else None, INFERRED)


def _reference(ranks: Ranks) -> dict[Key, float]:
    """Return the start of every operation: of three ranks or more the median, else the lowest rank's."""
    if len(ranks) < 3:
        return {key: timing.start for key, timing in ranks[min(ranks)].timings.items()}
    starts: dict[Key, list[float]] = {}
    for times in ranks.values():
        for key, timing in times.timings.items():
            starts.setdefault(key, []).append(timing.start)
    return {key: statistics.median(values) for key, values in starts.items()}

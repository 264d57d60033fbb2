"""The times of ranks in a published run, and the inferred time of the slowest process. Pure (no I/O).

A rank's statistics file contains one table for each epoch, with operations such as ``save_ckpt1`` and ``load_ckpt1``.
Each operation has a start and an end on the rank's own clock (without a time zone), and the ``duration`` in seconds.
``throughput`` is the size of the whole checkpoint divided by the duration, in GiB/s (printed as "GB/s"). If rank 0's
file is missing, rank 0's times are read from its log.

DLIO starts every operation at a barrier. All ranks pass the barrier when the slowest rank has ended the previous
operation and has slept ``time_between_checkpoints``. Therefore this equation is true on the clock of any rank:

slowest = start of the next operation - start of this operation - time between checkpoints

The equation needs only one rank's file and compares no clocks. In runs with the times of all ranks, its error is at
most 2 ms.

The last save of a run is followed by the first load. Before this load, every rank also lists the checkpoint directory,
so the equation gives only an upper bound for the last save. No operation follows the last load, so its time is not
inferred.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeGuard

from pytest_ckpt.facts.measurement import Basis, OperationKind
from pytest_ckpt.published.values import on_clock, parsed_time
from pytest_ckpt.support.units import format_seconds

_OPERATION = re.compile(r"(save|load)_ckpt([1-9]\d{0,5})", re.ASCII)
_NUMBER = r"\d{1,15}(?:\.\d{1,15})?"
_LOGGED = re.compile(
    r"(?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?) "
    r"(?:(?P<started>Starting (?:saving|loading) checkpoint)|(?P<ended>Finished (?:saving|loading) checkpoint)) "
    rf"(?P<number>\d{{1,6}})\b(?:.* in (?P<seconds>{_NUMBER}) s; Throughput: (?P<gib>{_NUMBER}) Gi?B/s)?",
    re.ASCII,
)
# The duration in the file equals the difference of its two timestamps, to the microsecond.
_SAME_SECONDS = 0.002
_SIZES = 3
_ENDLESS = 1e15

Key = tuple[OperationKind, int]

USUAL_SECONDS_BETWEEN = 5.0
"""Seconds between checkpoints in the configuration of every model of the workload."""

ALL_RANKS: Final = "all ranks"
INFERRED: Final = "inferred from rank 0"
RANK_0: Final = "rank 0 only"

# The largest difference between the inferred and the measured time of the slowest rank, in runs whose ranks are all
# known.
_PRECISION_SECONDS = 0.002
# If a rank reached the next barrier more than this before the end of its operation, the inference is wrong.
_CONTRADICTION_SECONDS = 0.05
# Ranks of one run leave a barrier within milliseconds. If intervals agree within the first value, the ranks are of one
# run, whatever their clocks show; beyond the second value they are not.
_ONE_BARRIER_SECONDS = 0.003
_SAME_RUN_SECONDS = 0.1
# A difference larger than clocks drift, and not a difference of time zones.
_SAME_CLOCK_SECONDS = 30.0
_TIME_ZONE_SECONDS = 900.0
# If the first operation begins later than the recorded pause by more than this, the pause was different or a rank was
# late.
_SAME_PAUSE_SECONDS = 0.25
# If all ranks are known and the next operation still starts later by more than this, a time in the files is too short.
_HIDDEN_SECONDS, _HIDDEN_SHARE = 0.25, 0.02
# The number of ranks for a median of starts, and the number of equal operations that shows that two files are the same.
_WITNESSES, _MAXIMUM_ALIKE = 5, 3


class Timing(NamedTuple):
    """One operation of one rank. ``start`` is in seconds on that rank's own clock."""

    start: float
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RankTimes:
    """The times of one rank.

    ``bytes`` is the size of one checkpoint of all ranks. It is calculated from recorded throughputs and durations; None
    if no throughput is recorded.

    ``began`` is the start of the epoch that contains the first recorded operation, in seconds on this rank's clock.
    From ``began`` to the start of the first operation, the rank only pauses. ``faults`` are sentences on implausible
    records, which are omitted.
    """

    timings: Mapping[Key, Timing]
    bytes: int | None
    started: str = ""
    ended: str = ""
    is_training: bool = False
    faults: tuple[str, ...] = ()
    began: float | None = None


def rank_times(stats: Any) -> RankTimes:
    """Return the times in the content of a statistics file (``<rank>_per_epoch_stats.json``)."""
    if not isinstance(stats, dict):
        return RankTimes(timings={}, bytes=None, faults=("it contains no table of epochs",))
    timings: dict[Key, Timing] = {}
    sizes: list[float] = []
    faults: list[str] = []
    is_training = False
    started = ended = ""
    began: float | None = None
    before = 0
    for epoch in stats.values():
        if not isinstance(epoch, dict):
            faults.append("an epoch in it is not a table")
            continue
        started = started or _text(epoch.get("start"))
        if not timings and (begins := _local(epoch.get("start"))):
            began = on_clock(begins)
        ended = _text(epoch.get("end")) or ended
        highest = before
        for name, entry in epoch.items():
            found = _OPERATION.fullmatch(name)
            if found is None:
                is_training = is_training or name.startswith("block")
                if name.startswith(("save_ckpt", "load_ckpt")):
                    faults.append(f"{name:.40} is not a name of an operation")
                continue
            # Each epoch numbers its operations from 1.
            number = before + int(found[2])
            highest = max(highest, number)
            timing = _timing(entry)
            if isinstance(timing, str):
                faults.append(f"{name} {timing}")
                continue
            timings["save" if found[1] == "save" else "load", number] = timing
            # All ranks record the same size, so the values of a few ranks are sufficient.
            if len(sizes) < _SIZES and _is_positive(throughput := entry.get("throughput")):
                sizes.append(throughput * timing.seconds)
        before = highest
    return RankTimes(
        timings=timings,
        bytes=_checkpoint_bytes(sizes),
        started=started,
        ended=ended,
        is_training=is_training,
        faults=tuple(faults),
        began=began,
    )


def logged_times(lines: Iterable[str]) -> RankTimes:
    """Return rank 0's times from the lines of ``dlio.log``. Used if rank 0 has no statistics file."""
    starts: dict[Key, datetime] = {}
    timings: dict[Key, Timing] = {}
    sizes: list[float] = []
    first = last = ""
    for line in lines:
        found = _LOGGED.search(line)
        at = _local(found["at"]) if found else None
        if found is None or at is None:
            continue
        key: Key = ("save" if "saving" in (found["started"] or found["ended"]) else "load", int(found["number"]))
        if found["started"]:
            starts[key] = at
            first = first or found["at"]
        elif key in starts:
            seconds = (at - starts[key]).total_seconds()
            last = found["at"]
            if seconds > 0:
                timings[key] = Timing(on_clock(starts[key]), seconds)
                if found["gib"]:
                    sizes.append(float(found["gib"]) * float(found["seconds"]))
    return RankTimes(timings=timings, bytes=_checkpoint_bytes(sizes), started=first, ended=last)


def _timing(entry: Any) -> Timing | str:
    """Return the timing of an operation, or a sentence on why the record is invalid."""
    if not isinstance(entry, dict):
        return "is no table"
    start, end = _local(entry.get("start")), _local(entry.get("end"))
    if start is None or end is None:
        return f"has no {'start' if start is None else 'end'} that is a time"
    seconds = entry.get("duration")
    if not _is_positive(seconds):
        return f"has no duration above 0 ({seconds!r:.40})"
    apart = (end - start).total_seconds()
    if abs(apart - seconds) > _SAME_SECONDS:
        return f"states that it took {seconds:.6g} s, but its start and end are {apart:.6g} s apart"
    return Timing(on_clock(start), float(seconds))


def _checkpoint_bytes(gib: list[float]) -> int | None:
    return round(statistics.median(gib) * 2**30) if gib else None


def _local(value: Any) -> datetime | None:
    """Return the time in ``value``, as the host's clock shows it, without a time zone.

    Return None if ``value`` is not a time.
    """
    found = parsed_time(value)
    return found.replace(tzinfo=None) if found else None


def _is_positive(value: Any) -> TypeGuard[float]:
    # Also false for NaN and for values that are too large.
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _ENDLESS


def _text(value: Any) -> str:
    return value if _local(value) else ""


Ranks = Mapping[int, RankTimes]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause:
    """The pause between two operations. ``seconds`` is None if the pause is unknown.

    ``description`` is a sentence on how ``seconds`` was chosen; empty if no explanation is needed.
    """

    seconds: float | None
    description: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Slowest:
    """One operation of a run, with the time ``seconds`` of its slowest process.

    ``slowest_rank`` is None if unknown. ``rank_seconds`` is {rank: recorded seconds}. ``basis`` is the source of
    ``seconds``, such as all ranks' records. If ``seconds`` is only an upper bound, ``at_least_seconds`` is the lower
    bound.

    An inferred time is the time from the start of this operation to the start of the next operation, minus DLIO's pause
    between operations (`Pause`). ``contradicted`` is true if a rank's record is missing and the inferred time is
    clearly shorter than a recorded time. ``hidden`` is true if all ranks have records and the inferred time is clearly
    longer than all recorded times.
    """

    kind: OperationKind
    number: int
    seconds: float
    slowest_rank: int | None
    rank_seconds: Mapping[int, float]
    basis: Basis
    at_least_seconds: float | None = None
    contradicted: bool = False
    hidden: bool = False

    @property
    def key(self) -> Key:
        """The kind and the number of the operation."""
        return self.kind, self.number

    @property
    def rank0_seconds(self) -> float | None:
        """Rank 0's own time, which DLIO publishes."""
        return self.rank_seconds.get(0)


def pause_between(ranks: Ranks, processes: int, recorded: float | None, *, varies: bool = False) -> Pause:
    """Return DLIO's pause before every operation.

    ``recorded`` is the configured pause; None if it is not recorded. If ``varies``, each pause was random, and the
    result is unknown. DLIO also pauses before the first operation. Therefore the pause is at most the time from the
    run's start to the first operation.
    """
    if varies:
        return Pause(
            seconds=None, description="every pause was drawn at random, so their ends are not used for inference."
        )
    usual = USUAL_SECONDS_BETWEEN if recorded is None else recorded
    first = min((before for times in ranks.values() if (before := _before_first(times)) is not None), default=None)
    if first is None:
        return Pause(seconds=usual)
    if first < usual - _CONTRADICTION_SECONDS:
        text = "is usual" if recorded is None else "is the configured time"
        return Pause(
            seconds=first,
            description=f"{format_seconds(usual)} between checkpoints {text}, and the first operation began "
            f"{format_seconds(first)} after the start of the run: this time is used.",
        )
    if recorded is not None or first <= usual + _SAME_PAUSE_SECONDS:
        return Pause(seconds=usual)
    # No pause is recorded and the first operation came late, either after a longer pause or because a rank was late.
    idle = _idle_seconds(ranks, processes)
    seconds = first if idle is not None and abs(idle - first) <= _SAME_PAUSE_SECONDS else usual
    return Pause(
        seconds=seconds,
        description=f"the pause between checkpoints is not configured, and the first "
        f"operation began {format_seconds(first)} after the start of the run: {format_seconds(seconds)} are assumed.",
    )


def slowest_of_each(ranks: Ranks, processes: int, seconds_between: float | None) -> tuple[Slowest, ...]:
    """Return every operation that any rank recorded: the saves in order, then the loads in order.

    ``seconds_between`` is the pause between operations. If it is None, no times are inferred.
    """
    keys = {key for times in ranks.values() for key in times.timings}
    following = _following(keys)
    found = []
    for key in sorted(keys, key=_in_order):
        known = {rank: t.timings[key].seconds for rank, t in ranks.items() if key in t.timings}
        found.append(_slowest(key, following.get(key), known, ranks, processes, seconds_between))
    return tuple(found)


def inferred_seconds(timings: Mapping[Key, Timing], key: Key, following: Key, seconds_between: float) -> float | None:
    """Return the time of an operation's slowest process, inferred from one rank's starts; None if a start is missing.

    ``key`` is the operation, ``following`` is the next operation, and ``seconds_between`` is the pause between them.
    """
    this, then = timings.get(key), timings.get(following)
    if this is None or then is None:
        return None
    # The resolution of the files is a microsecond.
    return round(then.start - this.start - seconds_between, 6)


def inference_error_seconds(ranks: Ranks, operations: Sequence[Slowest], seconds_between: float | None) -> float | None:
    """Return the largest error of inferred times in seconds; None if no inferred time can be checked.

    An inferred time is checked in each operation for which all ranks have recorded times.
    """
    lowest = ranks.get(0)
    if lowest is None or seconds_between is None:
        return None
    errors = [
        abs(inferred - this.seconds)
        for this, then in itertools.pairwise(operations)
        if this.basis == ALL_RANKS and this.kind == then.kind and then.number == this.number + 1
        if (inferred := inferred_seconds(lowest.timings, this.key, then.key, seconds_between)) is not None
    ]
    return max(errors, default=None)


def ranks_of_different_runs(ranks: Ranks) -> dict[int, str]:
    """Return {rank: reason} for ranks whose times cannot be from the run of the other ranks."""
    with_times = {rank: times for rank, times in ranks.items() if times.timings}
    if len(with_times) < 2:
        return {}
    found = _copies(with_times)
    with_times = {rank: times for rank, times in with_times.items() if rank not in found}
    if len(with_times) < 2:
        return found
    reference = _reference(with_times)
    for rank, times in with_times.items():
        common = [key for key in times.timings if key in reference]
        if not common:
            found[rank] = "it has no operation in common with the other ranks"
            continue
        apart = statistics.median(times.timings[key].start - reference[key] for key in common)
        differences = [
            abs((times.timings[b].start - times.timings[a].start) - (reference[b] - reference[a]))
            for a, b in itertools.pairwise(sorted(common))
        ]
        if len(differences) > 1 and max(differences) <= _ONE_BARRIER_SECONDS:
            continue
        without_zones = abs(apart - _TIME_ZONE_SECONDS * round(apart / _TIME_ZONE_SECONDS))
        if differences and statistics.median(differences) > _SAME_RUN_SECONDS:
            found[rank] = "its operations do not start at the others' intervals: it is of another run"
        elif without_zones > _SAME_CLOCK_SECONDS:
            found[rank] = f"its operations start {abs(apart):,.0f} s from the others': it is of another run"
    return found


def clock_skew_seconds(ranks: Ranks) -> float:
    """Return the largest difference between two ranks' clocks in seconds.

    It is computed from the ranks' starts of the same operation, which follow a barrier.
    """
    shared = set.intersection(*(set(times.timings) for times in ranks.values())) if ranks else set()
    starts = [[times.timings[key].start for times in ranks.values()] for key in shared]
    return max((max(s) - min(s) for s in starts), default=0.0)


def _slowest(
    key: Key,
    following: Key | None,
    known: Mapping[int, float],
    ranks: Ranks,
    processes: int,
    seconds_between: float | None,
) -> Slowest:
    rank = max(known, key=known.__getitem__)
    longest = known[rank]
    kind, number = key
    as_recorded = Slowest(
        kind=kind, number=number, seconds=longest, slowest_rank=rank, rank_seconds=known, basis=ALL_RANKS
    )
    is_complete = len(known) == processes
    unknown = as_recorded if is_complete else replace(as_recorded, slowest_rank=None, basis=RANK_0)
    inferred = None if following is None else _witnessed(key, following, known, ranks, seconds_between)
    if inferred is None or following is None:
        return unknown
    is_last = following[0] != kind
    if is_complete:
        too_long = longest + max(_HIDDEN_SECONDS, _HIDDEN_SHARE * longest)
        if is_last or inferred <= too_long:
            return as_recorded
        return replace(as_recorded, seconds=inferred, slowest_rank=None, basis=INFERRED, hidden=True)
    if inferred < longest - _CONTRADICTION_SECONDS:
        return replace(unknown, contradicted=True)
    return replace(
        as_recorded,
        seconds=max(inferred, longest),
        slowest_rank=rank if longest >= inferred - _PRECISION_SECONDS else None,
        basis=INFERRED,
        at_least_seconds=longest if is_last else None,
    )


def _witnessed(
    key: Key, following: Key, known: Mapping[int, float], ranks: Ranks, seconds_between: float | None
) -> float | None:
    """Return the inferred time of the slowest process of the operation ``key``; None if the time cannot be inferred.

    The result is the median over up to five ranks that recorded the starts of ``key`` and ``following``.
    """
    if seconds_between is None:
        return None
    found = (inferred_seconds(ranks[r].timings, key, following, seconds_between) for r in sorted(known))
    few = list(itertools.islice((seconds for seconds in found if seconds is not None), _WITNESSES))
    return statistics.median(few) if few else None


def _following(keys: Iterable[Key]) -> dict[Key, Key]:
    """Return {operation: next operation}. An operation without a known next operation is omitted.

    The next operation after the last save is the first load.
    """
    ordered = sorted(keys, key=_in_order)
    return {
        this: then
        for this, then in itertools.pairwise(ordered)
        if (this[0] == then[0] and then[1] == this[1] + 1) or (this[0], *then) == ("save", "load", 1)
    }


def _in_order(key: Key) -> tuple[bool, int]:
    return key[0] == "load", key[1]


def _before_first(times: RankTimes) -> float | None:
    """Return the seconds from the run's start to its first operation, on this rank's clock; None if unknown."""
    first = min((timing.start for timing in times.timings.values()), default=None)
    if first is None or times.began is None or first < times.began:
        return None
    return first - times.began


def _idle_seconds(ranks: Ranks, processes: int) -> float | None:
    """Return the median idle time between two consecutive saves, or loads; None if not all ranks have times.

    The idle time is the time from the slowest rank's end of an operation to the start of the next operation.
    """
    if len(ranks) < processes:
        return None
    timings = ranks[min(ranks)].timings
    idle = [
        timings[then].start - timings[this].start - max(t.timings[this].seconds for t in ranks.values())
        for this, then in _following(timings).items()
        if this[0] == then[0] and all(this in t.timings for t in ranks.values())
    ]
    return statistics.median(idle) if idle else None


def _copies(ranks: Ranks) -> dict[int, str]:
    """Return {rank: reason} for ranks whose file is a copy of another rank's file.

    A file is a copy if all its times equal the times in the other file to the microsecond.
    """
    seen: dict[frozenset[tuple[Key, Timing]], int] = {}
    found = {}
    for rank in sorted(ranks):
        timings = frozenset(ranks[rank].timings.items())
        if len(timings) >= _MAXIMUM_ALIKE and timings in seen:
            found[rank] = f"its times equal the times of rank {seen[timings]}, to the microsecond: it is a copy"
        else:
            seen[timings] = rank
    return found


def _reference(ranks: Ranks) -> dict[Key, float]:
    """Return {operation: reference start}. The reference start is the median start over all ranks.

    If there are fewer than three ranks, the reference start is the start on the lowest rank.
    """
    if len(ranks) < 3:
        return {key: timing.start for key, timing in ranks[min(ranks)].timings.items()}
    starts: dict[Key, list[float]] = {}
    for times in ranks.values():
        for key, timing in times.timings.items():
            starts.setdefault(key, []).append(timing.start)
    return {key: statistics.median(values) for key, values in starts.items()}

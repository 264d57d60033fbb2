"""Advisory judges: even over the ranks, the same again, not slowed by deletions, not sped up by content. Pure."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from pytest_ckpt.facts.engines import built_in
from pytest_ckpt.facts.file_rules import OF_LAYOUT
from pytest_ckpt.judging.decision import Decision, measured_as, not_decided, undecided
from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.sizing.files import files_of
from pytest_ckpt.sizing.models import layout
from pytest_ckpt.support.units import counted, format_percent, format_ratio, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.measurement import Measurement, Operation, OperationKind
    from pytest_ckpt.facts.verdict import Reason
    from pytest_ckpt.sizing.limits import ClusterLimits

MAXIMUM_SKEW = 1.5
MAXIMUM_TAIL = 1.3
MAXIMUM_VARIATION = 0.10
MAXIMUM_RETENTION = 1.10
MAXIMUM_DATA_EFFECT = 1.05
# Loads that become this much faster come from a cache that the earlier ones had not filled yet.
_CACHED_RATIO = 3.0
# The fewest loads of which one may be slow without moving their median to it.
_MINIMUM_FIRST = 3
_RANKS_OF_A_PERCENTILE = 100
_MAXIMUM_SHOWN = 4

_KINDS: tuple[OperationKind, ...] = ("save", "load")


def judge_straggler(measurement: Measurement, _limits: ClusterLimits, *, maximum: float = MAXIMUM_SKEW) -> Decision:
    """No rank is far behind the others: slowest / median and 99th / 50th percentile of the time for each byte."""
    if not measurement.operations:
        return undecided(measurement, "save")
    if measurement.processes < 3:
        return not_decided("too few", f"Too few ranks to find a straggler: {measurement.processes}.")
    if (engine := built_in(measurement.engine)) and engine.is_collective:
        return not_decided(
            "not possible",
            f"The ranks of engine {engine.name} wait for each other inside its library: their times do not tell which "
            "of them was slow.",
        )
    worst = max(measurement.operations, key=lambda o: skew_of(o, measurement.rank_bytes)[0])
    skew, tail = skew_of(worst, measurement.rank_bytes)
    host = next((r.host for r in measurement.ranks if r.rank == worst.slowest_rank), "")
    where = f"{worst.kind} {worst.index}, rank {worst.slowest_rank}{' on ' + host if host else ''}"
    ratios = [("slowest / median", skew, maximum)]
    if tail is not None:
        ratios.append(("p99 / p50", tail, MAXIMUM_TAIL))
    numbers = ", ".join(f"{name} {format_ratio(value, limit)} (at most {limit})" for name, value, limit in ratios)
    failed = any(value > limit for _, value, limit in ratios)
    because = f"{numbers}, in {where}." if failed else f"At worst {numbers}, in {where}."
    detail = (
        *_files_of(measurement, worst.slowest_rank),
        *_slow_hosts(measurement, worst),
        *_slow_endpoints(measurement),
        *(
            f"{o.kind} {o.index}: slowest / median {skew_of(o, measurement.rank_bytes)[0]:.2f}"
            for o in measurement.operations
        ),
    )
    # The value shown is the one that is nearest to its limit, or farthest beyond it.
    unit, measured, limit = max(ratios, key=lambda r: r[1] / r[2])
    return measured_as("over limit" if failed else "met", measured, limit, unit, because, detail)


def _slow_hosts(measurement: Measurement, operation: Operation) -> list[str]:
    """Say how the ranks of each of several hosts compare with all ranks, slowest first: a whole host may be late."""
    per_byte = {
        rank: seconds / count
        for rank, (seconds, count) in enumerate(zip(operation.rank_seconds, measurement.rank_bytes, strict=True))
        if count
    }
    of_host: dict[str, list[float]] = {}
    for facts in measurement.ranks:
        if facts.rank in per_byte:
            of_host.setdefault(facts.host, []).append(per_byte[facts.rank])
    if len(of_host) < 2:
        return []
    middle = statistics.median(per_byte.values())
    slowest = sorted(((statistics.median(times) / middle, host) for host, times in of_host.items()), reverse=True)
    shown = ", ".join(f"{host} {ratio:.2f}" for ratio, host in slowest[:_MAXIMUM_SHOWN])
    return [f"by host, median of its ranks / median of all, {operation.kind} {operation.index}: {shown}"]


def _slow_endpoints(measurement: Measurement) -> list[str]:
    """Say how long requests to each of several endpoints took, kind by kind, slowest first."""
    kinds: dict[str, list[tuple[float, str]]] = {}
    for requests in measurement.requests:
        if requests.median_seconds is not None:
            kinds.setdefault(requests.kind, []).append((requests.median_seconds, requests.endpoint))
    return [
        f"by endpoint, median of {kind} requests: "
        + ", ".join(
            f"{name} {format_seconds(seconds)}" for seconds, name in sorted(times, reverse=True)[:_MAXIMUM_SHOWN]
        )
        for kind, times in kinds.items()
        if len(times) > 1
    ]


def _files_of(measurement: Measurement, rank: int | None) -> list[str]:
    """Say which files a rank has; of many, the first two and how many there are."""
    if measurement.model not in MODELS:
        # Of a user's model a measurement has the name alone.
        return []
    processes = measurement.processes if measurement.mode == "open" else None
    shards = layout(measurement.model, mode=measurement.mode, processes=processes, scale=measurement.scale)
    if rank is None or rank >= shards.processes:
        return []
    engine = built_in(measurement.engine)
    names = [file.name for file in files_of(shards.rank(rank), engine.files if engine else OF_LAYOUT)]
    shown = names if len(names) <= 3 else [*names[:2], f"… ({len(names)} files)"]
    return [f"rank {rank} has {', '.join(shown)}"]


def judge_repeat(measurement: Measurement, _limits: ClusterLimits, *, maximum: float = MAXIMUM_VARIATION) -> Decision:
    """The same operation takes the same time again: coefficient of variation of the saves, and of the loads."""
    # Deltas and the restores of chains take other times than what is whole.
    alike = {k: measurement.whole(k) for k in _KINDS}
    variations = {k: _variation(alike[k]) for k in _KINDS}
    known = {k: v for k, v in variations.items() if v is not None}
    if len(known) < len(_KINDS):
        if measurement.failure:
            return undecided(measurement, "load")
        what = "saves and two loads of a whole checkpoint" if measurement.save_bytes else "operations of a kind"
        return not_decided("too few", f"Variation needs at least two {what}.")
    worst = max(known, key=known.__getitem__)
    value = known[worst]
    because = (
        f"Coefficient of variation: {format_percent(variations['save'] or 0)} for saves and "
        f"{format_percent(variations['load'] or 0)} for loads (limit {format_percent(maximum)})."
    )
    detail = tuple(f"{k}s: " + ", ".join(format_seconds(o.seconds) for o in alike[k]) for k in _KINDS)
    warm = _much_faster(alike["load"])
    if warm:
        because = f"{warm} {because}"
    reason: Reason = "cached" if warm else "over limit" if value > maximum else "met"
    return measured_as(reason, value, maximum, "fraction", because, detail)


def judge_retention(
    measurement: Measurement, _limits: ClusterLimits, *, maximum: float = MAXIMUM_RETENTION
) -> Decision:
    """Deleting the oldest checkpoint in the middle of a save makes the save hardly longer."""
    found = measurement.retention
    if found is None:
        return undecided(measurement, "load")
    ratio = found.save_while_deleting_seconds / found.save_seconds
    deletes = ", ".join(format_seconds(s) for s in found.delete_seconds) or "none"
    because = (
        f"Save during a deletion: {format_seconds(found.save_while_deleting_seconds)}; median save without: "
        f"{format_seconds(found.save_seconds)} ({format_ratio(ratio, maximum)} x; limit {maximum} x)."
    )
    detail = (
        f"deletions between saves, each alone: {deletes}",
        f"the newest {counted(found.kept, 'checkpoint was', 'checkpoints were')} kept",
    )
    reason: Reason = "over limit" if ratio > maximum else "met"
    return measured_as(reason, ratio, maximum, "with / without deletion", because, detail)


def judge_data(measurement: Measurement, _limits: ClusterLimits, *, maximum: float = MAXIMUM_DATA_EFFECT) -> Decision:
    """Unique data are as fast as constant data: the storage gains nothing by what it stores."""
    found = measurement.data
    if found is None:
        return undecided(measurement, "load")
    pairs = {
        "save": (found.unique_save_seconds, found.constant_save_seconds),
        "load": (found.unique_load_seconds, found.constant_load_seconds),
    }
    ratios = {kind: statistics.median(u) / statistics.median(c) for kind, (u, c) in pairs.items()}
    worst = max(ratios, key=ratios.__getitem__)
    times = {kind: format_ratio(ratio, maximum) for kind, ratio in ratios.items()}
    because = (
        f"Unique data took {times['save']} x the time of constant data to save and {times['load']} x to load "
        f"(at most {maximum}). The result is that of unique data in any case."
    )
    detail = tuple(
        f"{kind}s: unique {', '.join(map(format_seconds, u))}; constant {', '.join(map(format_seconds, c))}"
        for kind, (u, c) in pairs.items()
    )
    if found.fault_count:
        faults = counted(found.fault_count, "fault")
        because = f"{faults} in what was loaded for this comparison, so its times are not valid. {because}"
    reason: Reason = "wrong bytes" if found.fault_count else "over limit" if ratios[worst] > maximum else "met"
    return measured_as(reason, ratios[worst], maximum, "unique / constant", because, detail)


def _much_faster(loads: Sequence[Operation]) -> str:
    """Say which loads were much faster than the cold reads of the same run; empty when none was.

    The cold reads are known by the median of all loads, or by that of the first ones where it is larger: a cache that
    fills on the way makes all but the first loads fast. A median, since one slow load says nothing of the others.
    """
    first = loads[: max(_MINIMUM_FIRST, len(loads) // 3)]
    middles = {f"the first {len(first)} loads": first, "all loads": loads}
    which, seconds = max(
        ((name, statistics.median_low(o.seconds for o in some)) for name, some in middles.items()), key=lambda m: m[1]
    )
    fast = [o for o in loads if o.seconds * _CACHED_RATIO <= seconds]
    if not fast:
        return ""
    names = ", ".join(str(o.index) for o in fast)
    plural = "s" if len(fast) > 1 else ""
    return (
        f"Load{plural} {names} took a third or less of the median of {which}, {format_seconds(seconds)}: a cache "
        "behind the client may have held what they read."
    )


def skew_of(operation: Operation, rank_bytes: Sequence[int]) -> tuple[float, float | None]:
    """Return (slowest / median, p99 / p50) of the ranks' seconds for each byte; no p99 of fewer than 100 ranks.

    Layouts give ranks different amounts to write; a rank that has more to do is no straggler.
    """
    rates = sorted(s / b for s, b in zip(operation.rank_seconds, rank_bytes, strict=True) if b)
    middle = statistics.median(rates)
    p99 = rates[math.ceil(0.99 * len(rates)) - 1] / middle if len(rates) >= _RANKS_OF_A_PERCENTILE else None
    return rates[-1] / middle, p99


def _variation(operations: Sequence[Operation]) -> float | None:
    if len(operations) < 2:
        return None
    seconds = [o.seconds for o in operations]
    return statistics.stdev(seconds) / statistics.fmean(seconds)

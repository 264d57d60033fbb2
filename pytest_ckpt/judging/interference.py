"""Judges of contention: a second job saves, or data loaders read, during the saves. Pure."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from pytest_ckpt.judging.decision import Decision, measured_as, not_decided
from pytest_ckpt.judging.restore_patterns import without_pattern
from pytest_ckpt.judging.save_costs import save_limit_seconds
from pytest_ckpt.support.units import compared, counted, format_bytes, format_ratio, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.measurement import Measurement
    from pytest_ckpt.facts.verdict import Reason
    from pytest_ckpt.sizing.limits import ClusterLimits

MAXIMUM_NEIGHBOUR = 1.25
MAXIMUM_READ_DELAY = 2.0
MAXIMUM_MIXED_SAVE = 1.25
# Of fewer reads, the 99th percentile is the slowest one.
_MINIMUM_READS = 100


def judge_neighbour(
    measurement: Measurement, _limits: ClusterLimits, *, maximum: float = MAXIMUM_NEIGHBOUR
) -> Decision:
    """A save grows little when a second job saves in bursts."""
    found = measurement.patterns.neighbour if measurement.patterns else None
    if found is None:
        return without_pattern(measurement, ("neighbour",))
    detail = (
        f"{counted(found.ranks, 'rank')} saved {format_bytes(found.bytes)}; "
        f"{counted(found.neighbour_ranks, 'more was', 'more were')} the second job",
        f"alone: {_times(found.alone_seconds)}",
        f"beside it: {_times(found.contended_seconds)}",
        f"the second job completed {counted(found.bursts, 'burst')}, {format_bytes(found.neighbour_bytes)}",
    )
    if not found.bursts:
        because = "The second job completed no burst, so nothing was beside the saves."
        return not_decided("too few", because, detail)
    alone, beside = statistics.median(found.alone_seconds), statistics.median(found.contended_seconds)
    because = (
        f"Median save during a second job's bursts: {format_seconds(beside)}; alone: {format_seconds(alone)} "
        f"({format_ratio(beside / alone, maximum)} x; limit {maximum:g} x)."
    )
    reason: Reason = "over limit" if beside / alone > maximum else "met"
    return measured_as(reason, beside / alone, maximum, "beside / alone", because, detail)


def judge_mixed(measurement: Measurement, limits: ClusterLimits, *, maximum: float = MAXIMUM_READ_DELAY) -> Decision:
    """Reads of samples are delayed little by a save, and the save by them."""
    found = measurement.patterns.mixed if measurement.patterns else None
    if found is None:
        return without_pattern(measurement, ("mixed",))
    limit = save_limit_seconds(measurement, limits) * MAXIMUM_MIXED_SAVE
    detail = (
        found.reads,
        f"99th percentile alone: {_times(found.alone_p99_seconds)}, of {_counts(found.alone_reads)} reads",
        f"during saves: {_times(found.contended_p99_seconds)}, of {_counts(found.contended_reads)} reads",
        f"{counted(len(found.save_seconds), 'save')} beside the reads, the slowest "
        f"{format_seconds(max(found.save_seconds))}; "
        f"{MAXIMUM_MIXED_SAVE:g} x the save limit is {format_seconds(limit)}",
    )
    minimum = min(*found.alone_reads, *found.contended_reads)
    if minimum < _MINIMUM_READS:
        because = f"One turn read only {counted(minimum, 'sample')}; a 99th percentile needs {_MINIMUM_READS}."
        return not_decided("too few", because, detail)
    slowest = max(found.save_seconds)
    took, allowed = compared(slowest, limit)
    if slowest > limit:
        because = (
            f"Slowest save during sample reads: {took}, {format_ratio(slowest / limit)} x the limit of {allowed} "
            f"({MAXIMUM_MIXED_SAVE:g} x the save limit)."
        )
        return measured_as("over limit", slowest, limit, "s", because, detail)
    alone, beside = statistics.median(found.alone_p99_seconds), statistics.median(found.contended_p99_seconds)
    because = (
        f"99th percentile of a sample read during saves: {format_seconds(beside)}; alone: {format_seconds(alone)} "
        f"({format_ratio(beside / alone, maximum)} x; limit {maximum:g} x). Slowest save during the reads: {took}; "
        f"limit {allowed}."
    )
    reason: Reason = "over limit" if beside / alone > maximum else "met"
    return measured_as(reason, beside / alone, maximum, "during saves / alone", because, detail)


def _times(seconds: Sequence[float]) -> str:
    return ", ".join(format_seconds(s) for s in seconds)


def _counts(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts))

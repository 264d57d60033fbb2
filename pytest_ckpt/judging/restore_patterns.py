"""Judges of resharded loads: storm, shifted, reshaped. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.judging.cold import is_drop_proven
from pytest_ckpt.judging.decision import (
    Decision,
    ended_before,
    failed_by,
    is_decided_in,
    measured_as,
    not_decided,
)
from pytest_ckpt.judging.proof import MAXIMUM_RESIDENT
from pytest_ckpt.judging.variability import skew_of
from pytest_ckpt.judging.wording import describe_fault
from pytest_ckpt.support.units import (
    compared,
    counted,
    format_count,
    format_percent,
    format_rate,
    format_ratio,
    format_seconds,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.measurement import LoadPattern, Measurement
    from pytest_ckpt.facts.proofs import CacheFacts, Integrity
    from pytest_ckpt.facts.subject import Pattern
    from pytest_ckpt.sizing.limits import ClusterLimits

MAXIMUM_STORM = 1.5
MAXIMUM_STORM_SKEW = 2.0
# A rank that is late by less than this is late by its client's doing, and nobody's concern.
_MINIMUM_LAG_SECONDS = 0.25


def judge_storm(measurement: Measurement, limits: ClusterLimits, *, maximum: float = MAXIMUM_STORM) -> Decision:
    """All replicas restore at once within ``most`` load limits, the slowest rank within twice the median's time."""
    found = measurement.patterns.storm if measurement.patterns else None
    if found is None:
        return without_pattern(measurement, ("storm",))
    if no_time := _no_time(found, measurement.cache):
        return no_time
    decision = _within(measurement, {"storm": found}, limits, maximum)
    if decision.outcome == "failed":
        return decision
    late = [
        o for o in found.operations if o.seconds - o.seconds / skew_of(o, found.rank_bytes)[0] > _MINIMUM_LAG_SECONDS
    ]
    worst = max(late, key=lambda o: skew_of(o, found.rank_bytes)[0], default=None)
    ratio = skew_of(worst, found.rank_bytes)[0] if worst else 0.0
    if worst is None or ratio <= MAXIMUM_STORM_SKEW:
        return decision
    times = format_ratio(ratio, MAXIMUM_STORM_SKEW)
    because = (
        f"Load {worst.index}: rank {worst.slowest_rank} took {times} x the median rank's time per byte "
        f"(at most {MAXIMUM_STORM_SKEW:g}): the storage serves the replicas unevenly."
    )
    return measured_as("uneven", ratio, MAXIMUM_STORM_SKEW, "slowest / median", because, decision.detail)


def judge_shifted(measurement: Measurement, limits: ClusterLimits) -> Decision:
    """Each rank loads what another one wrote, all within the load limit."""
    found = measurement.patterns.shifted if measurement.patterns else None
    if found is None:
        return without_pattern(measurement, ("shifted",))
    if no_time := _no_time(found, measurement.cache):
        return no_time
    return _within(measurement, {"shifted": found}, limits, 1.0)


def judge_reshaped(measurement: Measurement, limits: ClusterLimits) -> Decision:
    """Half as many readers, and twice as many for each file: both load the whole checkpoint within the load limit."""
    patterns = measurement.patterns
    if patterns is None or patterns.joined is None or patterns.split is None:
        return without_pattern(measurement, ("joined", "split"))
    both = {"joined": patterns.joined, "split": patterns.split}
    for found in both.values():
        if no_time := _no_time(found, measurement.cache):
            return no_time
    return _within(measurement, both, limits, 1.0)


def without_pattern(measurement: Measurement, names: Sequence[Pattern]) -> Decision:
    """Decide where a pattern was not measured: it failed itself, cannot be with these ranks, or was not reached."""
    failure = measurement.failure
    if failure and any(is_decided_in(failure, name) for name in names):
        return failed_by(failure)
    reasons = measurement.patterns.not_run if measurement.patterns else {}
    for name in names:
        if name in reasons:
            return not_decided("not possible", reasons[name])
    if failure:
        return ended_before(failure)
    return not_decided("not measured", "It was not measured.")


def wrong_bytes(integrity: Integrity, detail: Sequence[str]) -> Decision | None:
    """Decide where loaded bytes are wrong, or could not all be compared."""
    if integrity.fault_count:
        because = (
            f"{counted(integrity.fault_count, 'faulty place')} in the loaded data; "
            f"first: {describe_fault(integrity.faults[0])}."
        )
        return Decision(
            outcome="failed",
            reason="wrong bytes",
            measured=float(integrity.fault_count),
            limit=0.0,
            unit="faults",
            because=because,
            detail=(*detail, *(describe_fault(fault) for fault in integrity.faults)),
        )
    if integrity.bytes_checked != integrity.bytes_expected:
        because = (
            f"Only {format_count(integrity.bytes_checked)} of {counted(integrity.bytes_expected, 'byte')} could be "
            "compared."
        )
        return Decision(
            outcome="failed",
            reason="missing bytes",
            measured=float(integrity.bytes_checked),
            limit=float(integrity.bytes_expected),
            unit="bytes",
            because=because,
            detail=tuple(detail),
        )
    return None


def not_cold(
    which: str, resident: int | None, mapped: int | None, detail: Sequence[str], cache: CacheFacts | None
) -> Decision | None:
    """Decide where ``which`` load is not known to have come from the storage, or did not.

    Of a target that declares its clients without a ``cache`` nothing is counted; where the kernel does not count,
    timed reads may show that what was dropped before is read from the storage.
    """
    if cache and (cache.is_declared_cold or (not cache.gauge and is_drop_proven(cache))):
        return None
    if resident is None or not mapped:
        because = "That these loads were cold cannot be proven here, so their times say nothing of the storage."
        return not_decided("unproven", because, detail)
    if resident / mapped > MAXIMUM_RESIDENT:
        because = (
            f"{format_percent(resident / mapped)} of what {which} was about to read was cached "
            f"(limit {format_percent(MAXIMUM_RESIDENT)}), so its time is not the storage's."
        )
        return not_decided("cached", because, detail)
    return None


def _no_time(found: LoadPattern, cache: CacheFacts | None) -> Decision | None:
    """Decide where the times of a pattern say nothing: wrong bytes, or bytes that did not come from the storage."""
    detail = (found.reads,)
    if wrong := wrong_bytes(found.integrity, detail):
        return wrong
    for each in found.operations:
        if unproven := not_cold(f"load {each.index}", each.resident_bytes, each.mapped_bytes, detail, cache):
            return unproven
    return None


def _within(
    measurement: Measurement, patterns: dict[str, LoadPattern], limits: ClusterLimits, maximum: float
) -> Decision:
    """Hold the slowest load of the patterns against ``most`` load limits at the size that was run."""
    share = measurement.share
    limit = limits.load_limit_seconds * maximum * share
    name, slowest = max(
        ((name, o) for name, found in patterns.items() for o in found.operations), key=lambda pair: pair[1].seconds
    )
    times = f"{maximum:g} x the load limit" if maximum != 1 else "the load limit"
    origin = [limits.reason("load_limit_seconds")]
    if share < 1:
        origin.append(f"the run was at {share:.4g} of the full size, so the limit is {format_seconds(limit)}")
    detail = [_describe(each, found) for each, found in patterns.items()]
    where = f"{name} load {slowest.index}" if len(patterns) > 1 else f"load {slowest.index}"
    took, allowed = compared(slowest.seconds, limit)
    if slowest.seconds > limit:
        because = (
            f"Slowest {where}: {took}; limit {allowed}, {times} "
            f"({format_ratio(slowest.seconds / limit)} x the limit); rank {slowest.slowest_rank} was last."
        )
        return measured_as("over limit", slowest.seconds, limit, "s", because, (*detail, *origin))
    because = f"Slowest {where}: {took}; limit {allowed}, {times}."
    return measured_as("met", slowest.seconds, limit, "s", because, (*detail, *origin))


def _describe(name: str, found: LoadPattern) -> str:
    seconds = ", ".join(format_seconds(o.seconds) for o in found.operations)
    worst = max(skew_of(o, found.rank_bytes)[0] for o in found.operations)
    slowest_rate = min(o.bytes_per_second for o in found.operations)
    return (
        f"{name}: {found.reads}; {seconds}; slowest rank / median {worst:.2f} at most; "
        f"{counted(sum(found.rank_bytes), 'byte')} in each, at least {format_rate(slowest_rate)}"
    )

"""The judge of saves and loads in which a component of the storage is broken. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.facts.failover import BREAKS
from pytest_ckpt.judging.decision import Decision, ended_before, failed_by, is_decided_in, measured_as, not_decided
from pytest_ckpt.judging.proof import MOST_RESIDENT
from pytest_ckpt.judging.restore_patterns import without_pattern
from pytest_ckpt.judging.wording import describe_failure, describe_fault
from pytest_ckpt.support.units import counted, format_count, format_percent, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ckpt.facts.failover import Failover, FailoverOperation, FailoverTrial
    from pytest_ckpt.facts.measurement import Measurement
    from pytest_ckpt.sizing.limits import ClusterLimits

MOST_STALL_SECONDS = 60.0
MOST_NEXT_SAVE = 1.5


def judge_failover(measurement: Measurement, limits: ClusterLimits, *, most: float = MOST_STALL_SECONDS) -> Decision:
    """No wrong byte, no stall beyond ``most`` seconds, and the next save within 1.5 save limits."""
    found = measurement.patterns.failover if measurement.patterns else None
    if found is None:
        return without_pattern(measurement, ("failover",))
    limit = limits.save_limit_seconds * MOST_NEXT_SAVE * measurement.bytes / measurement.full_bytes
    detail = tuple(_detail(found, limit))
    if wrong := _wrong(found, detail) or _too_slow(found, limit, most, detail):
        return wrong
    if failure := found.failure:
        if is_decided_in(failure, "failover"):
            failed = failed_by(failure)
            return Decision(
                outcome="failed", reason=failed.reason, because=failed.because, detail=(*failed.detail, *detail)
            )
        return ended_before(failure)
    if found.not_run:
        return not_decided("command failed", found.not_run, detail)
    if len(found.trials) < len(BREAKS) or not found.integrity:
        because = f"Something was broken in {len(found.trials)} of {len(BREAKS)} operations only."
        return not_decided("not measured", because, detail)
    if cached := _cached(found, detail):
        return cached
    stall, where = _longest_stall(found)
    broken = " and ".join(counted(BREAKS.count(kind), kind) for kind in dict.fromkeys(BREAKS))
    errors = sum(bool(o.error) for t in found.trials for o in t.operations)
    ended = f"{errors} ended with an error and left nothing behind" if errors else "all succeeded"
    because = (
        f"A component was broken in {broken}: {ended}; {counted(found.integrity.bytes_checked, 'byte')} compared, "
        f"none wrong. Longest stall: {format_seconds(stall)} in {where} (limit {format_seconds(most)})."
    )
    return measured_as("met", stall, most, "s", because, detail)


def stall_seconds(found: Failover, operation: FailoverOperation) -> float:
    """Return for how much longer than in an undisturbed operation of its kind a rank stood still, in seconds."""
    usual = max((o.quiet_seconds for o in found.undisturbed if o.kind == operation.kind), default=0.0)
    return max(0.0, operation.quiet_seconds - usual)


def _longest_stall(found: Failover) -> tuple[float, str]:
    stalls = [
        (stall_seconds(found, operation), f"{_name(trial, number)}, rank {operation.quiet_rank}")
        for number, trial in enumerate(found.trials, start=1)
        for operation in trial.operations
    ]
    return max(stalls, key=lambda pair: pair[0], default=(0.0, ""))


def _name(trial: FailoverTrial, number: int) -> str:
    return f"{trial.kind} of break {number}"


def _wrong(found: Failover, detail: tuple[str, ...]) -> Decision | None:
    """Decide where bytes are wrong, missing or gone."""
    integrity = found.integrity
    if integrity and integrity.fault_count:
        because = (
            f"{counted(integrity.fault_count, 'faulty place')} in loaded data; "
            f"first: {describe_fault(integrity.faults[0])}."
        )
        faults = tuple(describe_fault(fault) for fault in integrity.faults)
        return measured_as("wrong bytes", float(integrity.fault_count), 0.0, "faults", because, (*faults, *detail))
    for number, trial in enumerate(found.trials, start=1):
        if trial.committed_in_error:
            error = next(o.error for o in trial.operations if o.error)
            because = f"The {_name(trial, number)} failed and its checkpoint is committed: {error}."
            return Decision(outcome="failed", reason="missing bytes", because=because, detail=detail)
        if trial.lost:
            because = f"After break {number} was mended, a committed checkpoint could not be loaded: {trial.lost}."
            return Decision(outcome="failed", reason="missing bytes", because=because, detail=detail)
    if integrity and integrity.bytes_checked != integrity.bytes_expected:
        because = (
            f"Only {format_count(integrity.bytes_checked)} of {counted(integrity.bytes_expected, 'byte')} could be "
            "compared."
        )
        checked, expected = float(integrity.bytes_checked), float(integrity.bytes_expected)
        return measured_as("missing bytes", checked, expected, "bytes", because, detail)
    return None


def _too_slow(found: Failover, limit: float, most: float, detail: tuple[str, ...]) -> Decision | None:
    """Decide where a rank stood still for too long, or the save while the storage rebuilds was late or failed."""
    stall, where = _longest_stall(found)
    if stall > most:
        because = f"Longest stall: {format_seconds(stall)} in {where}; limit {format_seconds(most)}."
        return measured_as("over limit", stall, most, "s", because, detail)
    for number, trial in enumerate(found.trials, start=1):
        if trial.after and trial.after.error:
            because = f"The save after break {number} was mended failed: {trial.after.error}."
            return Decision(outcome="failed", reason="error", because=because, detail=detail)
    slowest = max(((t.after.seconds, n) for n, t in enumerate(found.trials, start=1) if t.after), default=(0.0, 0))
    if slowest[0] > limit:
        because = (
            f"The save after break {slowest[1]} was mended took {format_seconds(slowest[0])}; limit "
            f"{format_seconds(limit)} ({MOST_NEXT_SAVE:g} x the save limit)."
        )
        return measured_as("over limit", slowest[0], limit, "s", because, detail)
    return None


def _cached(found: Failover, detail: tuple[str, ...]) -> Decision | None:
    """Decide where the compared bytes may be those of a client's cache."""
    if found.is_declared_cold:
        return None
    if found.resident_fraction is None:
        because = "That what was compared came from the storage cannot be proven here: caches cannot be seen."
        return not_decided("unproven", because, detail)
    if found.resident_fraction > MOST_RESIDENT:
        because = (
            f"{format_percent(found.resident_fraction)} of a checkpoint that was to be compared was cached "
            f"(limit {format_percent(MOST_RESIDENT)}), so the bytes are not the storage's."
        )
        return not_decided("cached", because, detail)
    return None


def _detail(found: Failover, limit: float) -> Iterator[str]:
    for operation in found.undisturbed:
        yield (
            f"undisturbed {operation.kind}: {format_seconds(operation.seconds)}, a rank without a sign of life for "
            f"{format_seconds(operation.quiet_seconds)} at most"
        )
    for number, trial in enumerate(found.trials, start=1):
        yield f"break {number}: {'; '.join(_told(found, trial))}"
    yield f"limit of the save after a break: {MOST_NEXT_SAVE:g} x the save limit, {format_seconds(limit)}"
    if found.failure:
        yield describe_failure(found.failure)
    if found.mended_after and not found.mended_after.is_good:
        yield f"{found.mended_after.sentence} The storage may still be broken: mend it by hand."
    elif found.mended_after:
        yield "the mend command ran when the ranks were gone, and ended well"


def _told(found: Failover, trial: FailoverTrial) -> Iterator[str]:
    """Yield what happened in one trial, piece by piece."""
    yield f"{format_seconds(trial.moment_seconds)} into a {trial.kind}"
    yield f"break command {format_seconds(trial.broke.seconds)}" if trial.broke.is_good else trial.broke.sentence
    for operation in trial.operations:
        outcome = operation.error or "succeeded"
        stall = format_seconds(stall_seconds(found, operation))
        yield f"{operation.kind} {format_seconds(operation.seconds)}, stall {stall}, {outcome}"
    if trial.mended and not trial.mended.is_good:
        yield f"{trial.mended.sentence} The storage may still be broken: mend it by hand."
    if trial.after:
        yield f"next save {format_seconds(trial.after.seconds)}{f', {trial.after.error}' if trial.after.error else ''}"

"""Saves and loads during which a component of the storage fails."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ckpt.facts.commands import BREAKS
from pytest_ckpt.judging.client_ceiling import over_limit
from pytest_ckpt.judging.decision import Decision, measured_as, not_decided
from pytest_ckpt.judging.loads import (
    describe_end,
    describe_undisturbed,
    ended_by,
    if_cold,
    lost,
    missing_bytes,
    wrong_bytes,
)
from pytest_ckpt.judging.requirement import requirement
from pytest_ckpt.judging.save_costs import save_limit_seconds
from pytest_ckpt.judging.service_levels import STALL_SECONDS, stall_level, survival_level
from pytest_ckpt.support.units import compared, counted, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ckpt.facts.commands import Failover, FailoverTrial, OperationTrial
    from pytest_ckpt.facts.measurement import Measurement
    from pytest_ckpt.sizing.limits import ClusterLimits

MAXIMUM_NEXT_SAVE = 1.5


@requirement(
    "FAILOVER",
    title="A broken component costs no byte and little time",
    maximum=60.0,
    units=("s", "faults", "bytes"),
    figure="the longest stall of a rank; the time of the next save, if it was too slow; faults, if there are any",
    limit=f"{{maximum:g}}; {MAXIMUM_NEXT_SAVE:g} x the save limit for the next save; no fault",
    source="our proposal: a stall of at most 60 s, the next save within 1.5 x the save limit; NVIDIA HSS16",
    own_launch="failover",
    requested_by=lambda settings: settings.includes_failover,
    not_given="No command was given that breaks a component (--ckpt-actions [failover]).",
    next_step="Compare the fault in the message with the storage's log at that moment.",
    help="A component broke, or the storage was maintained",
    also_known_as=("NVIDIA HSS16",),
)
def test_a_failed_component_loses_no_byte_and_little_time(
    failover: Failover, measurement: Measurement, limits: ClusterLimits, maximum: float
) -> Decision:
    """When a component breaks during a save or load, no byte is wrong and no rank stalls for more than 60 s.

    Drives, controllers and servers fail, some of them during a checkpoint. The operator gives two commands
    (--ckpt-actions [failover]): `fault` breaks a component at a random moment of three saves and three loads, and
    `repair` repairs it. A save or load may end with an error. A save that ends with an error must not be committed.
    Every earlier checkpoint must load completely after the repair. If the commit itself ends with an error, it may have
    succeeded: if the checkpoint exists after the repair, it counts as committed. Every committed checkpoint must
    contain every byte. The next save runs while the storage rebuilds, and takes at most 1.5 times the save limit. A
    rank stalls while it moves no byte and none of its calls ends. The longest stall of an undisturbed save or load is
    subtracted from each stall.
    """
    limit = save_limit_seconds(measurement, limits) * MAXIMUM_NEXT_SAVE
    detail = tuple(_detail(failover, limit))
    if wrong := _wrong(failover, detail) or _failed_after(failover, detail):
        return wrong
    if decided := ended_by(failover.failure, "failover", detail):
        return decided
    if failover.not_run:
        return not_decided("command failed", failover.not_run, detail)
    if len(failover.trials) < len(BREAKS) or not failover.integrity:
        because = f"A component was broken in only {len(failover.trials)} of {len(BREAKS)} operations."
        return not_decided("not measured", because, detail)
    operations = [operation for trial in failover.trials for operation in trial.operations]
    quick = sum(stall_seconds(failover, operation) <= STALL_SECONDS for operation in operations)
    detail += (stall_level(quick, len(operations), "with a fault"),)
    # The last check, because a longer time alone does not decide and must not hide a cause that does.
    if slow := _too_slow(failover, measurement, limit, maximum, detail):
        return slow
    stall, where = _longest_stall(failover)
    broken = " and ".join(counted(BREAKS.count(kind), kind) for kind in dict.fromkeys(BREAKS))
    answers = sum(t.commit_answer_lost for t in failover.trials)
    errors = sum(bool(o.error) for t in failover.trials for o in t.operations) - answers
    ended = ", ".join(
        filter(
            None,
            (
                f"{errors} ended with an error and left no files" if errors else "",
                f"{counted(answers, 'commit')} ended with an error and had succeeded" if answers else "",
            ),
        )
    )
    ended = ended or "all succeeded"
    because = (
        f"A component was broken in {broken}: {ended}; {counted(failover.integrity.bytes_checked, 'byte')} compared, "
        f"no fault. Longest stall: {format_seconds(stall)} in {where} (limit {format_seconds(maximum)})."
    )
    decision = if_cold(measured_as("met", stall, maximum, "s", because, detail), failover, measurement.cache)
    if decision.outcome != "met":
        return decision
    # Only uncached loads show what the storage has kept.
    injected = f"{counted(len(failover.trials), 'fault')} that the command injected"
    return replace(decision, detail=(*decision.detail, survival_level(injected, "faults that it does not inject")))


def stall_seconds(found: Failover, operation: OperationTrial) -> float:
    """Return the longest stall of a rank in this operation, in seconds.

    The longest stall in undisturbed operations of the same kind is subtracted.
    """
    usual = max((o.longest_stall_seconds for o in found.undisturbed if o.kind == operation.kind), default=0.0)
    return max(0.0, operation.longest_stall_seconds - usual)


def _longest_stall(found: Failover) -> tuple[float, str]:
    stalls = [
        (stall_seconds(found, operation), f"{_name(trial, number)}, rank {operation.stalled_rank}")
        for number, trial in enumerate(found.trials, start=1)
        for operation in trial.operations
    ]
    return max(stalls, key=lambda pair: pair[0], default=(0.0, ""))


def _name(trial: FailoverTrial, number: int) -> str:
    return f"{trial.kind} with fault {number}"


def _wrong(found: Failover, detail: tuple[str, ...]) -> Decision | None:
    """Return the decision "failed" if bytes are wrong or missing, or a checkpoint is lost or wrongly committed.

    Return None if none of these faults was found.
    """
    if decided := wrong_bytes(found.integrity, detail):
        return decided
    for number, trial in enumerate(found.trials, start=1):
        if trial.committed_in_error:
            error = next(o.error for o in trial.operations if o.error)
            return lost(f"The {_name(trial, number)} failed and its checkpoint is committed: {error}.", detail)
        if trial.lost:
            because = f"After fault {number} was repaired, a committed checkpoint could not be loaded: {trial.lost}."
            return lost(because, detail)
    return missing_bytes(found.integrity, detail)


def _failed_after(found: Failover, detail: tuple[str, ...]) -> Decision | None:
    """Return the decision "failed" if a save failed after the repair of the component; None otherwise."""
    for number, trial in enumerate(found.trials, start=1):
        if trial.after and trial.after.error:
            because = f"The save after the repair of fault {number} failed: {trial.after.error}."
            return Decision(outcome="failed", reason="error", because=because, detail=detail)
    return None


def _too_slow(
    found: Failover, measurement: Measurement, limit: float, maximum: float, detail: tuple[str, ...]
) -> Decision | None:
    """Return a decision if a rank stalled too long, or if a save after a repair was too slow.

    Return None if neither happened.
    """
    stall, where = _longest_stall(found)
    if stall > maximum:
        took, allowed = compared(stall, maximum)
        because = f"Longest stall: {took} in {where}; limit {allowed}."
        return measured_as("over limit", stall, maximum, "s", because, detail)
    slowest = max(((t.after.seconds, n) for n, t in enumerate(found.trials, start=1) if t.after), default=(0.0, 0))
    if slowest[0] > limit:
        took, allowed = compared(slowest[0], limit)
        because = (
            f"The save after the repair of fault {slowest[1]} took {took}; limit {allowed} "
            f"({MAXIMUM_NEXT_SAVE:g} x the save limit)."
        )
        return over_limit(measurement, "save", slowest[0], limit, because, detail)
    return None


def _detail(found: Failover, limit: float) -> Iterator[str]:
    yield from describe_undisturbed(found.undisturbed)
    for number, trial in enumerate(found.trials, start=1):
        yield f"fault {number}: {'; '.join(_describe_trial(found, trial))}"
    yield f"limit of the save after a break: {MAXIMUM_NEXT_SAVE:g} x the save limit, {format_seconds(limit)}"
    yield from describe_end(found.failure)
    if found.repaired_after and not found.repaired_after.is_good:
        yield f"{found.repaired_after.sentence} The storage may still be broken: repair it by hand."
    elif found.repaired_after:
        yield "the repair command ran when the ranks were gone, and ended well"


def _describe_trial(found: Failover, trial: FailoverTrial) -> Iterator[str]:
    """Yield descriptions of the events of one trial: the break, the operations during it, the repair, the next save."""
    yield f"{format_seconds(trial.moment_seconds)} into a {trial.kind}"
    yield f"fault command {format_seconds(trial.fault.seconds)}" if trial.fault.is_good else trial.fault.sentence
    for operation in trial.operations:
        outcome = operation.error or "succeeded"
        stall = format_seconds(stall_seconds(found, operation))
        yield f"{operation.kind} {format_seconds(operation.seconds)}, stall {stall}, {outcome}"
    if trial.commit_answer_lost:
        yield "the answer of the commit was lost: after the repair the checkpoint was there, and counts as committed"
    if trial.repaired and not trial.repaired.is_good:
        yield f"{trial.repaired.sentence} The storage may still be broken: repair it by hand."
    if trial.after:
        yield f"next save {format_seconds(trial.after.seconds)}{f', {trial.after.error}' if trial.after.error else ''}"

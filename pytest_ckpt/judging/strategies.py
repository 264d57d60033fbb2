"""Judges of saves that let the job go on: what they take from training, and what they put at risk. Pure."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, get_args

from pytest_ckpt.analysis.statistics import slowdown
from pytest_ckpt.facts.strategies import strategy_of
from pytest_ckpt.facts.strategy_results import LOCAL_TIER, Reached
from pytest_ckpt.judging.decision import (
    Decision,
    ended_before,
    failed_by,
    is_decided_by,
    measured_as,
    not_decided,
    undecided,
)
from pytest_ckpt.judging.restore_patterns import without_pattern
from pytest_ckpt.judging.save_costs import SaveCost, save_costs
from pytest_ckpt.judging.speed import judge_time
from pytest_ckpt.judging.with_commands import lost, missing_bytes, wrong_bytes
from pytest_ckpt.support.units import compared, counted, format_bytes, format_percent, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_ckpt.facts.measurement import Measurement
    from pytest_ckpt.facts.strategy_results import Crashes, Training
    from pytest_ckpt.facts.verdict import Reason
    from pytest_ckpt.sizing.limits import ClusterLimits

MAXIMUM_SLOWDOWN = 0.05
# Kills that come when all is over prove nothing about the middle.
_MINIMUM_EARLY_KILLS = 0.1


def judge_blocking(measurement: Measurement, limits: ClusterLimits) -> Decision:
    """What every save takes from training is within the save limit, at the size that was run."""
    if decided := not_saved(measurement):
        return decided
    decision = _judge_cost(measurement, limits, lambda cost: cost.lost_seconds, describe_loss)
    limit = limits.save_limit_seconds * measurement.share
    worst = max(save_costs(measurement), key=lambda cost: cost.blocked_seconds)
    # Where full saves stand still between deltas, what is late is as for any such save.
    if decision.outcome != "failed" or worst.blocked_seconds <= limit or measurement.save_bytes:
        return decision
    what, of = (
        ("save to the local tier", "of that tier, not of the target")
        if measurement.drains
        else ("copy of the state", "of the client's memory, not of the storage")
    )
    because = (
        f"{decision.because} The {what} alone took {format_seconds(worst.blocked_seconds)}: that is the time {of}."
    )
    return dataclasses.replace(decision, because=because)


def judge_background(measurement: Measurement, limits: ClusterLimits) -> Decision:
    """Every save is committed before the next is due, at the size that was run."""
    reason = (
        f"{limits.reason('interval_seconds')} A save that is not committed by then makes the next one wait; saves of "
        "this run begin when the one before is committed."
    )
    return judge_time(measurement, "save", limits.interval_seconds, reason)


def judge_lost_work(measurement: Measurement, limits: ClusterLimits) -> Decision:
    """What a save takes and the work that it puts at risk are within the save limit, at the size that was run."""
    if decided := not_saved(measurement):
        return decided
    failures = limits.checkpoints_per_failure
    return _judge_cost(
        measurement,
        limits,
        lambda cost: cost.with_risk_seconds(limits),
        lambda cost: f"{describe_loss(cost)} + {format_seconds(cost.background_seconds)} at risk / {failures}",
    )


def judge_preempt(measurement: Measurement, _limits: ClusterLimits) -> Decision:
    """What a job saves at notice is committed in time, at the size that was run."""
    found = measurement.patterns.preempt if measurement.patterns else None
    if found is None:
        return without_pattern(measurement, ("preempt",))
    limit, slowest = found.notice_seconds * measurement.share, max(found.committed_seconds)
    detail = [
        f"{format_bytes(found.bytes)} each; from the notice until the commit: "
        f"{', '.join(map(format_seconds, found.committed_seconds))}"
    ]
    if not strategy_of(measurement.subject).blocks:
        detail.append("a save had just begun when the notice came: the last one waits for it")
    if measurement.share < 1:
        detail.append(f"the run wrote {measurement.share:.4g} of the full size, and has as small a part of the notice")
    took, allowed = compared(slowest, limit)
    because = f"Slowest of {counted(len(found.committed_seconds), 'save')} at notice: {took}; limit {allowed}."
    return measured_as("over limit" if slowest > limit else "met", slowest, limit, "s", because, detail)


def judge_slowdown(measurement: Measurement, _limits: ClusterLimits, *, maximum: float = MAXIMUM_SLOWDOWN) -> Decision:
    """Steps beside a save take little longer."""
    if decided := not_saved(measurement):
        return decided
    training = measurement.patterns.training if measurement.patterns else None
    found = slowdown(training) if training else None
    if training is None or found is None:
        return not_decided("too few", "No step of training went on beside a save: every save was over at once.")
    detail = tuple(_describe_steps(training))
    steps = sum(save.steps for save in training.saves)
    if found.low is None or found.high is None:
        because = f"Only {counted(steps, 'step')} went on beside the saves: too few to tell how much longer they took."
        return not_decided("too few", because, detail)
    figures = (
        f"{format_percent(max(0.0, found.share))} longer (95 % interval {format_percent(found.low)} to "
        f"{format_percent(found.high)}; limit {format_percent(maximum)})"
    )
    if found.low <= maximum < found.high:
        because = f"{counted(steps, 'step')} beside the saves took {figures}: they scatter too much to decide."
        return not_decided("perhaps late", because, detail)
    because = f"{counted(steps, 'step')} beside the saves took {figures}."
    reason: Reason = "over limit" if found.share > maximum else "met"
    return measured_as(reason, max(0.0, found.share), maximum, "fraction", because, detail)


def judge_crash(measurement: Measurement, _limits: ClusterLimits) -> Decision:
    """What is committed outlives its processes whole, and nothing else is taken for a checkpoint."""
    found = measurement.patterns.crashes if measurement.patterns else None
    if found is None:
        return without_pattern(measurement, ("crashes",))
    detail = tuple(_describe_kills(found))
    if decided := wrong_bytes(found.integrity, detail):
        return decided
    for number, kill in enumerate(found.kills, start=1):
        if kill.lost:
            return lost(f"After kill {number} the newest checkpoint did not load whole: {kill.lost}.", detail)
        if kill.reached == "committed" and not kill.is_committed:
            return lost(f"After kill {number} a checkpoint is gone whose commit had returned.", detail)
    if decided := missing_bytes(found.integrity, detail):
        return decided
    if measurement.failure and len(found.kills) < found.planned:
        return ended_before(measurement.failure)
    early = sum(not kill.is_committed for kill in found.kills)
    if early < len(found.kills) * _MINIMUM_EARLY_KILLS or not early:
        because = (
            f"Only {early} of {counted(len(found.kills), 'kill')} came before the commit: saves end too soon to be "
            "caught in the middle."
        )
        return not_decided("too few", because, detail)
    compared = found.integrity.bytes_checked
    because = (
        f"{counted(len(found.kills), 'kill')}, {early} before the commit: nothing was left that is taken for a "
        f"checkpoint. Each time the newest one loaded whole; {counted(compared, 'byte')} compared, none wrong."
    )
    return measured_as("met", 0.0, 0.0, "faults", because, detail)


def judge_retain_committed(measurement: Measurement, _limits: ClusterLimits) -> Decision:
    """The newest committed checkpoint loads whole when older ones are deleted during a save that then fails."""
    found = measurement.patterns.crashes if measurement.patterns else None
    if found is None:
        return without_pattern(measurement, ("crashes",))
    detail = tuple(_describe_kills(found))
    for number, kill in enumerate(found.kills, start=1):
        if kill.lost and kill.deletes_older:
            because = (
                f"After kill {number} the checkpoint before the newest was deleted, and the newest did not load whole: "
                f"{kill.lost}."
            )
            return lost(because, detail)
    if measurement.failure and len(found.kills) < found.planned:
        return ended_before(measurement.failure)
    cut = [kill for kill in found.kills if kill.deletes_older and not kill.is_committed]
    if not cut:
        because = "No save was cut off while an older checkpoint was deleted."
        return not_decided("too few", because, detail)
    because = (
        f"{counted(len(cut), 'save was', 'saves were')} cut off while the checkpoint before the newest was deleted: "
        "each time the newest committed one loaded whole."
    )
    return measured_as("met", 0.0, 0.0, "faults", because, detail)


def _describe_kills(found: Crashes) -> Iterator[str]:
    yield (f"saves of {format_bytes(found.bytes)}; from copy to commit {format_seconds(found.usual_seconds)} at least")
    for reached in get_args(Reached):
        of = [kill for kill in found.kills if kill.reached == reached]
        there = sum(kill.is_committed for kill in of)
        yield f"killed when {reached}: {len(of)}; {there} of these stand there as checkpoints"


def not_saved(measurement: Measurement, *, lanes: tuple[str, ...] = ("", LOCAL_TIER)) -> Decision | None:
    """Decide where not every save was measured, with the steps beside it; a failure counts in ``lanes`` of a rank."""
    failure = measurement.failure
    if failure and is_decided_by(failure, "save"):
        # What failed in the background is another requirement's affair: the job had gone on.
        return failed_by(failure) if failure.lane in lanes else ended_before(failure)
    if len(measurement.of_kind("save")) < measurement.operations_planned:
        return undecided(measurement, "save")
    if not save_costs(measurement):
        if failure:
            return ended_before(failure)
        return not_decided("not measured", "What went on beside the saves was not measured.")
    return None


def _judge_cost(
    measurement: Measurement,
    limits: ClusterLimits,
    seconds_of: Callable[[SaveCost], float],
    describe: Callable[[SaveCost], str],
) -> Decision:
    costs = save_costs(measurement)
    share = measurement.share
    limit = limits.save_limit_seconds * share
    worst = max(costs, key=seconds_of)
    seconds = seconds_of(worst)
    detail = [f"save {cost.index}: {format_seconds(seconds_of(cost))} ({describe(cost)})" for cost in costs]
    detail.append(limits.reason("save_limit_seconds"))
    if share < 1:
        detail.append(
            f"the run wrote {share:.4g} of the full size, so the limit is {format_seconds(limit)}: the copy, the steps "
            "beside a save and the save are taken to grow with the size"
        )
    over = [cost for cost in costs if seconds_of(cost) > limit]
    took, allowed = compared(seconds, limit)
    if over:
        because = (
            f"{len(over)} of {counted(len(costs), 'save')} cost more than {allowed}; worst: save {worst.index}, {took} "
            f"({describe(worst)})."
        )
        return measured_as("over limit", seconds, limit, "s", because, detail)
    because = f"Worst of {counted(len(costs), 'save')}: {took} ({describe(worst)}); limit {allowed}."
    return measured_as("met", seconds, limit, "s", because, detail)


def describe_loss(cost: SaveCost) -> str:
    """Say what a save takes from training."""
    extra = format_seconds(max(0.0, cost.extra_seconds))
    return f"blocked {format_seconds(cost.blocked_seconds)} + {extra} by slower steps"


def _describe_steps(training: Training) -> Iterator[str]:
    yield (
        f"a step stands in for training: {format_seconds(training.step_seconds)}, of which "
        f"{format_percent(training.cpu_share)} work of each rank's core on the state that is saved, the rest a wait"
    )
    for save in training.saves:
        beside = sum(batch.seconds for batch in save.beside)
        each = f", {format_seconds(beside / save.steps)} each" if save.steps else ""
        yield (
            f"save {save.checkpoint}: {counted(save.steps, 'step')} beside it{each}; "
            f"alone {format_seconds(save.alone_seconds)}"
        )

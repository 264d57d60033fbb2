"""Judges of saves to a local tier that drains to the target: drains, restores, lost hosts. Pure."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from pytest_ckpt.facts.strategy_results import BACKGROUND
from pytest_ckpt.judging.decision import Decision, ended_before, measured_as, not_decided
from pytest_ckpt.judging.restore_patterns import without_pattern
from pytest_ckpt.judging.save_costs import at_full_size, save_costs
from pytest_ckpt.judging.strategies import describe_loss, not_saved
from pytest_ckpt.judging.with_commands import lost, missing_bytes, wrong_bytes
from pytest_ckpt.sizing.drains import drain_limit_seconds
from pytest_ckpt.support.units import compared, counted, format_bytes, format_percent, format_rate, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ckpt.facts.measurement import Measurement
    from pytest_ckpt.facts.strategy_results import DrainRule, NodeLoss, TierRestore, Tiers
    from pytest_ckpt.judging.save_costs import SaveCost
    from pytest_ckpt.sizing.limits import ClusterLimits

MAXIMUM_SLOWER_SAVE = 1.10


def judge_drain(measurement: Measurement, limits: ClusterLimits, *, maximum: float = MAXIMUM_SLOWER_SAVE) -> Decision:
    """Every drain is over in time, risks little work, and slows saves to the local tier little."""
    rule = measurement.drains
    if decided := not_saved(measurement, lanes=(BACKGROUND,)):
        return decided
    assert rule, "asked of tiers alone"
    costs, share = save_costs(measurement), measurement.share
    each_limit = [drain_limit_seconds(rule, limits, full.lost_seconds) for full in at_full_size(costs, measurement)]
    over = [(cost, limit * share) for cost, limit in zip(costs, each_limit, strict=True)]
    worst, limit = max(over, key=lambda each: each[0].background_seconds - each[1])
    seconds = worst.background_seconds
    detail = [*_describe_drains(costs, measurement, rule), *_describe_limit(rule, limits, share)]
    if not limit:
        because = (
            f"Save {worst.index} leaves no time for a drain ({describe_loss(worst)}): with 1 of "
            f"{counted(rule.every, 'save')} drained and {format_percent(rule.target_share)} of failures that only the "
            "target survives, the work that is not drained yet costs too much."
        )
        return measured_as("over limit", seconds, 0.0, "s", because, detail)
    took, allowed = compared(seconds, limit)
    figures = f"{counted(len(costs), 'drain')}, the slowest {took}; limit {allowed}"
    if seconds > limit:
        return measured_as("over limit", seconds, limit, "s", f"{figures}.", detail)
    found = measurement.patterns.tiers if measurement.patterns else None
    if found is None:
        return without_pattern(measurement, ("tiers",))
    detail += _describe_beside(found)
    ratio = statistics.median(found.beside_seconds) / statistics.median(found.alone_seconds)
    # Single saves scatter: slower beside a drain is only what is slower than every one alone, and by that much. Within
    # the save limit it takes no more from training than a save may.
    is_slower = min(found.beside_seconds) > maximum * max(found.alone_seconds)
    slowest, save_limit = max(found.beside_seconds), limits.save_limit_seconds * share
    if is_slower and slowest > save_limit:
        longest, permitted = compared(slowest, save_limit)
        because = (
            f"Every save to the local tier beside a drain took over {maximum:g} x the slowest alone, and up to "
            f"{longest}, over the save limit of {permitted}."
        )
        return measured_as("over limit", ratio, maximum, "beside / alone", because, detail)
    within = (
        ", within the save limit"
        if is_slower
        else ""
        if ratio <= maximum
        else "; single ones scatter too much to count"
    )
    because = f"{figures}. Saves to the local tier took {ratio:.2f} x as long beside a drain{within}."
    return measured_as("met", seconds, limit, "s", because, detail)


def judge_tier_order(measurement: Measurement, _limits: ClusterLimits) -> Decision:
    """A restore takes the newest checkpoint that is whole on all ranks, from either tier, and every byte is right."""
    found = measurement.patterns.tiers if measurement.patterns else None
    if found is None:
        return without_pattern(measurement, ("tiers",))
    detail = tuple(_describe_restores(found))
    for when, restore in (("newest one whole in the local tier", found.whole), ("newest one torn", found.torn)):
        if not restore.is_right:
            because = (
                f"With the {when}, checkpoint {restore.expected} of the {_place(restore.expected_tier)} was expected, "
                f"and {_taken(restore)}."
            )
            return lost(because, detail)
        if decided := wrong_bytes(restore.integrity, detail) or missing_bytes(restore.integrity, detail):
            return decided
    compared = sum(r.integrity.bytes_checked for r in (found.whole, found.torn) if r.integrity)
    because = (
        "The newest checkpoint came from the local tier; when the files of one rank were gone there, the newest whole "
        f"one came from the target. {counted(compared, 'byte')} compared, none wrong."
    )
    return measured_as("met", 0.0, 0.0, "faults", because, detail)


def judge_node_loss(measurement: Measurement, limits: ClusterLimits) -> Decision:
    """A checkpoint outlives the loss of a host with its local tier; it takes several hosts to try that."""
    found = measurement.patterns.tiers if measurement.patterns else None
    if found is None:
        return ended_before(measurement.failure) if measurement.failure else without_pattern(measurement, ("tiers",))
    loss = found.node_loss
    if loss is None:
        because = (
            "One host: copies of checkpoints on partner hosts are not written, and no host can be lost. What only the "
            "target survives is TIER-ORDER's and LOAD's."
        )
        return not_decided("not possible", because)
    detail = tuple(_describe_loss_of_host(loss, measurement, limits))
    if loss.missing:
        because = (
            f"{loss.lost} lost what its local tier held, and {counted(loss.missing, 'copy', 'copies')} of its files "
            f"that {loss.partner} had taken were gone or cut off."
        )
        return lost(because, detail)
    if decided := wrong_bytes(loss.integrity, detail) or missing_bytes(loss.integrity, detail):
        return decided
    seconds, limit = loss.return_seconds + loss.load_seconds, limits.load_limit_seconds * measurement.share
    figures = (
        f"{loss.lost} lost all that its local tier held. {format_bytes(loss.returned_bytes)} came back from "
        f"{loss.partner} and all ranks loaded in {format_seconds(seconds)}; limit {format_seconds(limit)}"
    )
    if seconds > limit:
        return measured_as("over limit", seconds, limit, "s", f"{figures}.", detail)
    compared = counted(loss.integrity.bytes_checked, "byte") if loss.integrity else "nothing"
    return measured_as("met", seconds, limit, "s", f"{figures}. {compared} compared, none wrong.", detail)


def _describe_loss_of_host(loss: NodeLoss, measurement: Measurement, limits: ClusterLimits) -> Iterator[str]:
    yield (
        f"copies to the next host of {counted(loss.hosts, 'host')}: {format_bytes(loss.copied_bytes)} over the network "
        f"of the ranks in {format_seconds(loss.copy_seconds)}, which no other figure of the run contains"
    )
    if not loss.missing:
        yield f"return {format_seconds(loss.return_seconds)}, load {format_seconds(loss.load_seconds)}"
    if rule := measurement.drains:
        yield (
            "a host and its partner lost at once: the checkpoint that was drained last is left (TIER-ORDER), and up "
            f"to {rule.every} x {format_seconds(limits.interval_seconds)} and a drain of work is lost"
        )
    yield limits.reason("load_limit_seconds")


def _place(tier: str) -> str:
    return "local tier" if tier == "local" else "target"


def _taken(restore: TierRestore) -> str:
    if not restore.tier:
        return "no whole one was found"
    return f"checkpoint {restore.number} of the {_place(restore.tier)} was taken"


def _describe_drains(costs: Sequence[SaveCost], measurement: Measurement, rule: DrainRule) -> Iterator[str]:
    yield f"1 of {counted(rule.every, 'save')} is drained; the saves of this run are such saves"
    for cost in costs:
        rate = measurement.bytes / cost.background_seconds if cost.background_seconds else 0.0
        drained = f"drained in {format_seconds(cost.background_seconds)}, {format_rate(rate)}"
        yield f"save {cost.index}: {drained}; {describe_loss(cost)}"


def _describe_limit(rule: DrainRule, limits: ClusterLimits, share: float) -> Iterator[str]:
    interval, failures = limits.interval_seconds, limits.checkpoints_per_failure
    yield (
        f"a drain ends before the next begins: {rule.every} x {format_seconds(interval)}; and what a save takes from "
        f"training + {format_percent(rule.target_share)} x ({(rule.every - 1) / 2:g} x {format_seconds(interval)} + "
        f"drain) / {failures} is at most the save limit, {format_seconds(limits.save_limit_seconds)}"
    )
    if share < 1:
        yield f"the run wrote {share:.4g} of the full size, and the limit is as small a part of that of full size"


def _describe_beside(found: Tiers) -> Iterator[str]:
    yield f"saves of {format_bytes(found.bytes)} to the local tier, alone: {_times(found.alone_seconds)}"
    yield f"beside a drain: {_times(found.beside_seconds)}; the drains: {_times(found.drain_seconds)}"


def _describe_restores(found: Tiers) -> Iterator[str]:
    for when, restore in (("whole", found.whole), ("torn", found.torn)):
        took = f" in {format_seconds(restore.seconds)}" if restore.integrity else ""
        yield f"newest one of the local tier {when}: {_taken(restore)}{took}"


def _times(seconds: Sequence[float]) -> str:
    return ", ".join(map(format_seconds, seconds))

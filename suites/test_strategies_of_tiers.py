"""Saves to a local tier that are copied to the target (drained): drains, restores, and the loss of a host."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from pytest_ckpt.facts.strategy_results import BACKGROUND
from pytest_ckpt.judging.decision import Decision, ended_before, measured_as, not_decided
from pytest_ckpt.judging.given import not_saved, without_pattern
from pytest_ckpt.judging.loads import lost, missing_bytes, wrong_bytes
from pytest_ckpt.judging.requirement import requirement
from pytest_ckpt.judging.save_costs import at_full_size, describe_loss, save_costs
from pytest_ckpt.sizing.drains import drain_limit_seconds
from pytest_ckpt.support.units import (
    compared,
    counted,
    format_bytes,
    format_percent,
    format_rate,
    format_seconds,
    format_times,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ckpt.facts.measurement import Measurement
    from pytest_ckpt.facts.strategy_results import DrainRule, NodeLoss, TierRestore, Tiers
    from pytest_ckpt.judging.save_costs import SaveCost
    from pytest_ckpt.sizing.limits import ClusterLimits


@requirement(
    "DRAIN",
    title="The local tier is drained in time",
    maximum=1.10,
    units=("s", "during drains / without"),
    ratios=("during drains / without",),
    spans=("operations", "tiers"),
    figure="the slowest drain, from the moment the job could continue until the checkpoint was committed on the "
    "target; the ratio of medians if drains slow saves",
    limit="the time from one drain to the next, or less if the work at risk leaves less; {maximum:g} x for "
    "saves to the local tier during a drain that miss the save limit",
    source="derived from the cluster: a failure that only the target survives costs all work since the last drain",
    of_strategy=lambda strategy: strategy.tiers,
    next_step="Find the longer part: the drain (the target, or the local tier that it reads), or the "
    "time that saves take from training; --ckpt-strategy=tiered:drain-every sets how many saves share a drain.",
    help="A save in the background costs too much",
)
def test_the_local_tier_is_drained_in_time(measurement: Measurement, limits: ClusterLimits, maximum: float) -> Decision:
    """Every drain from the local tier to the target is over before the next begins, and puts little work at risk.

    Training waits until a checkpoint is saved to the local tier. Every N-th checkpoint is copied to the target
    (drained) while training continues. If only the target survives a failure, all work since the last drain is lost.
    The limit therefore follows from three values: the failure rate of the cluster, the share of failures that only the
    target survives, and the cost of saves for training. A save to the local tier during a drain may take at most 10 %
    longer than an undisturbed save, or must still meet the save limit.
    """
    rule = measurement.drains
    if decided := not_saved(measurement, lanes=(BACKGROUND,)):
        return decided
    assert rule, "only for tiers"
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
    detail += _describe_concurrent_saves(found)
    ratio = statistics.median(found.during_drain_seconds) / statistics.median(found.undisturbed_seconds)
    # Times of single saves vary: saves during a drain count as slower only if each takes more than ``maximum`` times as
    # long as the slowest undisturbed save. If they still meet the save limit, their cost for training is permitted.
    is_slower = min(found.during_drain_seconds) > maximum * max(found.undisturbed_seconds)
    slowest, save_limit = max(found.during_drain_seconds), limits.save_limit_seconds * share
    if is_slower and slowest > save_limit:
        longest, permitted = compared(slowest, save_limit)
        because = (
            f"Every save to the local tier during a drain took over {maximum:g} x the slowest undisturbed save, and up "
            f"to {longest}, over the save limit of {permitted}."
        )
        return measured_as("over limit", ratio, maximum, "during drains / without", because, detail)
    within = (
        ", within the save limit" if is_slower else "" if ratio <= maximum else "; single saves vary too much to count"
    )
    because = f"{figures}. Saves to the local tier took {ratio:.2f} x as long during a drain{within}."
    return measured_as("met", seconds, limit, "s", because, detail)


@requirement(
    "TIER-ORDER",
    title="A restore loads the newest complete checkpoint of the two tiers",
    units=("faults", "bytes"),
    figure="faults in restored data; bytes compared, if fewer than all",
    limit="no fault, every byte",
    source="zero tolerance",
    of_strategy=lambda strategy: strategy.tiers,
    next_step="Find the tier that showed an incomplete checkpoint or hid a complete one, and check the named file.",
    help="A committed checkpoint did not survive",
)
def test_a_restore_uses_the_newest_complete_checkpoint(tiers: Tiers) -> Decision:
    """A restore uses the newest checkpoint that is complete on all ranks, from the local tier or from the target.

    If the local tier has a newer checkpoint than the target, the checkpoint of the local tier is loaded. Then the files
    of one rank are deleted from the local tier, as if its host were lost, and caches are dropped. The checkpoint that
    was last copied to the target (drained) must then be loaded from the target. A mixture of two checkpoints must never
    be loaded. Every byte is compared.
    """
    detail = tuple(_describe_restores(tiers))
    for when, restore in (
        ("newest one complete in the local tier", tiers.complete),
        ("newest one incomplete", tiers.incomplete),
    ):
        if not restore.is_right:
            because = (
                f"With the {when}, checkpoint {restore.expected} of the {_place(restore.expected_tier)} was expected, "
                f"and {_describe_choice(restore)}."
            )
            return lost(because, detail)
        if decided := wrong_bytes(restore.integrity, detail) or missing_bytes(restore.integrity, detail):
            return decided
    compared = sum(r.integrity.bytes_checked for r in (tiers.complete, tiers.incomplete) if r.integrity)
    because = (
        "The newest checkpoint came from the local tier; when the files of one rank were deleted there, the newest "
        f"complete one came from the target. {counted(compared, 'byte')} compared, no fault."
    )
    return measured_as("met", 0.0, 0.0, "faults", because, detail)


@requirement(
    "NODE-LOSS",
    title="A checkpoint outlives the loss of a host",
    units=("s", "faults", "bytes"),
    figure="the time until all ranks had loaded again, with a partner's copies in place of the files of one lost "
    "host; faults in restored data; bytes compared, if fewer than all",
    limit="the load limit of the cluster ({load} for 16,000 accelerators); no fault, every byte",
    source="as LOAD: load budget x mean time to failure; zero tolerance",
    of_strategy=lambda strategy: strategy.tiers,
    next_step="If the run has one host, name several (--ckpt-hosts). Else check the partner's tier and the "
    "ranks' network; the target is not involved.",
    help="A committed checkpoint did not survive",
)
def test_a_checkpoint_survives_the_loss_of_a_host(measurement: Measurement, limits: ClusterLimits) -> Decision:
    """When a host is lost with its local tier, a partner host's copies are restored, within the load limit.

    Jobs keep a second copy of each checkpoint in the local tier of another host. Two checkpoints are saved to the local
    tiers. Over the network of the ranks, each rank sends its files to a rank of the next host, its partner. The partner
    makes the files durable in its own tier. Then the complete tier of the last host is deleted: its own files, and the
    copies that it keeps for another host. The partner returns the deleted files of the last host, all ranks load, and
    every byte is compared, so that an older copy is detected. The copies are made only for this requirement: no other
    measurement includes them. With one host NODE-LOSS is not decided, and saves in tiers are not certified.
    """
    found = measurement.patterns.tiers if measurement.patterns else None
    if found is None:
        return ended_before(measurement.failure) if measurement.failure else without_pattern(measurement, ("tiers",))
    loss = found.node_loss
    if loss is None:
        because = (
            "One host: copies of checkpoints on partner hosts are not written, and no host can be lost. TIER-ORDER "
            "and LOAD judge failures that only the target survives."
        )
        return not_decided("not possible", because)
    detail = tuple(_describe_loss_of_host(loss, measurement, limits))
    if loss.missing:
        because = (
            f"{loss.lost} lost its local tier, and {counted(loss.missing, 'copy', 'copies')} of its files on "
            f"{loss.partner} were missing or cut off."
        )
        return lost(because, detail)
    if decided := wrong_bytes(loss.integrity, detail) or missing_bytes(loss.integrity, detail):
        return decided
    seconds, limit = loss.return_seconds + loss.load_seconds, limits.load_limit_seconds * measurement.share
    figures = (
        f"{loss.lost} lost its whole local tier. {format_bytes(loss.returned_bytes)} came back from {loss.partner} and "
        f"all ranks loaded in {format_seconds(seconds)}; limit {format_seconds(limit)}"
    )
    if seconds > limit:
        return measured_as("over limit", seconds, limit, "s", f"{figures}.", detail)
    compared = counted(loss.integrity.bytes_checked, "byte") if loss.integrity else "nothing"
    return measured_as("met", seconds, limit, "s", f"{figures}. {compared} compared, no fault.", detail)


def _describe_loss_of_host(loss: NodeLoss, measurement: Measurement, limits: ClusterLimits) -> Iterator[str]:
    yield (
        f"copies to the next host of {counted(loss.hosts, 'host')}: {format_bytes(loss.copied_bytes)} over the network "
        f"of the ranks in {format_seconds(loss.copy_seconds)}, which no other time of the run includes"
    )
    if not loss.missing:
        yield f"return {format_seconds(loss.return_seconds)}, load {format_seconds(loss.load_seconds)}"
    if rule := measurement.drains:
        yield (
            "a host and its partner lost at the same time: the last drained checkpoint is left (TIER-ORDER), and up "
            f"to {rule.every} x {format_seconds(limits.interval_seconds)} and a drain of work is lost"
        )
    yield limits.reason("load_limit_seconds")


def _place(tier: str) -> str:
    return "local tier" if tier == "local" else "target"


def _describe_choice(restore: TierRestore) -> str:
    if not restore.tier:
        return "no complete one was found"
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
        f"a drain ends before the next begins: {rule.every} x {format_seconds(interval)}; and the cost of a save for "
        f"training + {format_percent(rule.target_share)} x ({(rule.every - 1) / 2:g} x {format_seconds(interval)} + "
        f"drain) / {failures} is at most the save limit, {format_seconds(limits.save_limit_seconds)}"
    )
    if share < 1:
        yield f"the run wrote {share:.4g} of the full size, and the limit is the same share of the limit at full size"


def _describe_concurrent_saves(found: Tiers) -> Iterator[str]:
    undisturbed = format_times(found.undisturbed_seconds)
    yield f"saves of {format_bytes(found.bytes)} to the local tier, undisturbed: {undisturbed}"
    yield f"during a drain: {format_times(found.during_drain_seconds)}; the drains: {format_times(found.drain_seconds)}"


def _describe_restores(found: Tiers) -> Iterator[str]:
    for when, restore in (("complete", found.complete), ("incomplete", found.incomplete)):
        took = f" in {format_seconds(restore.seconds)}" if restore.integrity else ""
        yield f"newest one of the local tier {when}: {_describe_choice(restore)}{took}"

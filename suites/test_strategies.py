"""Saves during which the job continues: the training time that they cost, and the work that a failure would lose."""

from __future__ import annotations

import dataclasses
import statistics
from typing import TYPE_CHECKING, get_args

from pytest_ckpt.analysis.statistics import slowdown
from pytest_ckpt.facts.strategies import strategy_of
from pytest_ckpt.facts.strategy_results import Reached
from pytest_ckpt.judging.client_ceiling import over_limit
from pytest_ckpt.judging.decision import (
    Decision,
    ended_before,
    measured_as,
    not_decided,
)
from pytest_ckpt.judging.given import not_saved
from pytest_ckpt.judging.loads import lost, missing_bytes, wrong_bytes
from pytest_ckpt.judging.requirement import requirement
from pytest_ckpt.judging.save_costs import SaveCost, describe_loss
from pytest_ckpt.judging.speed import within
from pytest_ckpt.support.units import (
    compared,
    counted,
    format_bytes,
    format_percent,
    format_ratio,
    format_seconds,
    format_times,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_ckpt.facts.compression import Compression
    from pytest_ckpt.facts.measurement import Measurement
    from pytest_ckpt.facts.strategy_results import Crashes, Preempted, Training
    from pytest_ckpt.facts.verdict import Reason
    from pytest_ckpt.judging.given import Operations
    from pytest_ckpt.sizing.limits import ClusterLimits

# The smallest share of kills before a commit: kills after it do not test the middle of a save.
_MINIMUM_EARLY_KILLS = 0.1
# If a save spends at least this share of its time in the codec, the rank's cores limit it.
_LIMITS_FROM = 0.5


@requirement(
    "BLOCKING",
    title="Saves take little time from training",
    units=("s",),
    figure="the largest time that a save took from training: the wait, without the copy of the state in the client's "
    "memory, and the delay of steps during the save",
    limit="the save limit of the cluster ({save} for 16,000 accelerators)",
    source="as SAVE: save budget x interval, for every strategy",
    of_strategy=lambda strategy: not strategy.blocks,
    next_step="Find the longest part: the wait for the previous save, the save to a local tier (its "
    "disk), or the steps during the save (cores, memory bandwidth and network that the save uses).",
    help="A save in the background costs too much",
)
def test_saves_cost_training_little_time(
    costs: tuple[SaveCost, ...], measurement: Measurement, limits: ClusterLimits
) -> Decision:
    """Of the training time that a background save costs, the part that the storage causes is at most the save limit.

    In an asynchronous save, training waits while the state is copied, and continues while the copy is written. The copy
    takes the same time on any storage, so its time is reported and not judged. Two other times together must meet the
    limit of a blocking save: the rest of the wait, and the delay of steps during the save compared with undisturbed
    steps. Steps are simulated: each step waits as if for an accelerator, and changes the state that is saved. No model
    is trained, and no data are copied from a device.
    """
    decision = _judge_cost(costs, measurement, limits, lambda cost: cost.added_seconds, describe_loss)
    limit = limits.save_limit_seconds * measurement.share
    because = decision.because
    copying = max(cost.copying_seconds for cost in costs)
    if copying:
        because += (
            f" The copy of the state took up to {format_seconds(copying)} more: that is the time of the client's "
            "memory, not of the storage."
        )
    blocked = max(cost.blocked_seconds for cost in costs)
    if decision.outcome == "failed" and blocked > limit and measurement.drains:
        because += (
            f" The save to the local tier took {format_seconds(blocked)}: that is the time of that tier, not of the "
            "target."
        )
    return dataclasses.replace(decision, because=because)


@requirement(
    "BACKGROUND",
    title="Every save is committed before the next is due",
    units=("s",),
    figure="the slowest save, from its start until it is committed",
    limit="the interval between checkpoints of the cluster ({interval} for 16,000 accelerators)",
    source="derived from the cluster: mean time to failure / checkpoints per failure",
    of_strategy=lambda strategy: strategy.stages,
    next_step="Check the phase and rank that took longest: the storage writes the checkpoint too slowly.",
    help="A save in the background costs too much",
)
def test_saves_are_committed_before_the_next_is_due(saves: Operations, limits: ClusterLimits) -> Decision:
    """Every save is committed within the interval between two checkpoints.

    The clock runs from the start of the save until the slowest rank has made its files durable and the checkpoint is
    committed. If a save takes longer than the interval, the next save must wait, and training waits too.
    """
    reason = (
        f"{limits.reason('interval_seconds')} A save that is not committed by then makes the next one wait; saves of "
        "this run begin when the previous save is committed."
    )
    return within(saves, limits.interval_seconds, reason, limits.stated.assurance)


@requirement(
    "LOST-WORK",
    title="A save and the work at risk cost no more than a blocking save",
    units=("s",),
    figure="the largest cost of a save: the time that the storage took from training (as in BLOCKING), plus the time "
    "until the commit divided by the checkpoints per failure",
    limit="the save limit of the cluster ({save} for 16,000 accelerators)",
    source="derived from the cluster: a failure before the commit costs the work since the previous save",
    of_strategy=lambda strategy: strategy.stages,
    next_step="Find the largest part: blocked, steps during the save, or the time until the commit.",
    help="A save in the background costs too much",
)
def test_saves_risk_little_work(
    costs: tuple[SaveCost, ...], measurement: Measurement, limits: ClusterLimits
) -> Decision:
    """The training time that the storage costs, plus the work that a save puts at risk, is at most the save limit.

    Until a save is committed, a failure loses all work since the previous save. With k checkpoints per failure, one of
    k intervals ends with a failure. On average, each save therefore risks 1/k of the time from the end of blocking to
    the commit. Together with the training time that the save costs, this risk is at most the time of the slowest
    allowed blocking save. Training also waits while the state is copied in the client's memory. BLOCKING reports the
    time of this copy; it is not included here.
    """
    failures = limits.checkpoints_per_failure
    return _judge_cost(
        costs,
        measurement,
        limits,
        lambda cost: cost.with_risk_seconds(limits),
        lambda cost: f"{describe_loss(cost)} + {format_seconds(cost.background_seconds)} at risk / {failures}",
    )


@requirement(
    "CRASH-ASYNC",
    title="Training that is killed during a save loses no checkpoint",
    units=("faults", "bytes"),
    figure="faults in the newest committed checkpoint, after every kill; the number of compared bytes, if it is too "
    "low",
    limit="no fault, every byte",
    source="zero tolerance; 60 kills, 6 with --ckpt-profile=smoke, are our proposal",
    of_strategy=lambda strategy: not strategy.blocks,
    needs=("paths",),
    next_step="Check the remaining files that the message names, and whether they were committed too early.",
    help="A committed checkpoint did not survive",
)
def test_a_crash_during_a_save_loses_no_checkpoint(crashes: Crashes, measurement: Measurement) -> Decision:
    """When the processes of training are killed during a save in the background, no checkpoint is lost or damaged.

    A background save can be interrupted at any moment: jobs are cancelled, nodes fail, or memory runs out. The test
    kills the saving processes at random moments, some after the commit. After every kill, the newest committed
    checkpoint must load completely, with every byte compared. In every second save, the ranks do not commit before the
    kill: such a save must not appear as a checkpoint. The hosts stay up: DURABLE judges power cuts. Small checkpoints
    are used.
    """
    detail = tuple(_describe_kills(crashes))
    if decided := wrong_bytes(crashes.integrity, detail):
        return decided
    for number, kill in enumerate(crashes.kills, start=1):
        if kill.lost:
            return lost(f"After kill {number} the newest checkpoint did not load intact: {kill.lost}.", detail)
        if kill.reached == "committed" and not kill.is_committed:
            return lost(f"After kill {number} a committed checkpoint is missing.", detail)
        if kill.is_commit_withheld and kill.is_committed:
            because = (
                f"After kill {number} the interrupted save appears as a checkpoint, but no rank had begun its commit."
            )
            return Decision(outcome="failed", reason="anomaly", because=because, detail=detail)
    if decided := missing_bytes(crashes.integrity, detail):
        return decided
    if measurement.failure and len(crashes.kills) < crashes.planned:
        return ended_before(measurement.failure)
    early = sum(not kill.is_committed for kill in crashes.kills)
    if early < len(crashes.kills) * _MINIMUM_EARLY_KILLS or not early:
        because = (
            f"Only {early} of {counted(len(crashes.kills), 'kill')} came before the commit: saves end too soon to be "
            "caught in the middle."
        )
        return not_decided("too few", because, detail)
    compared = crashes.integrity.bytes_checked
    because = (
        f"{counted(len(crashes.kills), 'kill')}, {early} before the commit: no partial save was taken for a "
        f"checkpoint. Each time the newest checkpoint loaded intact; {counted(compared, 'byte')} compared, no fault."
    )
    return measured_as("met", 0.0, 0.0, "faults", because, detail)


@requirement(
    "RETAIN-COMMITTED",
    title="Retention leaves the newest committed checkpoint while a save fails",
    units=("faults",),
    figure="newest committed checkpoints that did not load intact",
    limit="none",
    source="zero tolerance",
    of_strategy=lambda strategy: not strategy.blocks,
    needs=("paths",),
    next_step="Find out which files of the newest checkpoint disappeared with the deleted one.",
    help="A committed checkpoint did not survive",
)
def test_retention_leaves_the_newest_committed_checkpoint(crashes: Crashes, measurement: Measurement) -> Decision:
    """When older checkpoints are deleted during a save that fails, the newest committed checkpoint loads completely.

    Jobs keep a few checkpoints and delete the oldest during the next save. If a job keeps two checkpoints and that save
    is interrupted, only the newest committed checkpoint is left. During every save that CRASH-ASYNC kills, the second
    newest committed checkpoint is deleted. After the kill, caches are dropped, the newest committed checkpoint is
    loaded and every byte is compared.
    """
    detail = tuple(_describe_kills(crashes))
    for number, kill in enumerate(crashes.kills, start=1):
        if kill.lost and kill.deletes_older:
            because = (
                f"After kill {number} the second newest checkpoint was deleted, and the newest did not load intact: "
                f"{kill.lost}."
            )
            return lost(because, detail)
    if measurement.failure and len(crashes.kills) < crashes.planned:
        return ended_before(measurement.failure)
    cut = [kill for kill in crashes.kills if kill.deletes_older and not kill.is_committed]
    if not cut:
        because = "No save was cut off while an older checkpoint was deleted."
        return not_decided("too few", because, detail)
    because = (
        f"{counted(len(cut), 'save was', 'saves were')} cut off while the second newest checkpoint was deleted: each "
        "time the newest committed one loaded intact."
    )
    return measured_as("met", 0.0, 0.0, "faults", because, detail)


@requirement(
    "COMPRESSION",
    title="Compressed saves are not slower than plain ones",
    severity="advisory",
    maximum=1.05,
    units=("compressed / plain",),
    ratios=("compressed / plain",),
    hidden_by_load=True,
    figure="the ratio of the median times of saves, compressed and plain",
    limit="{maximum:g}",
    source="our proposal: a codec that slows saves has no benefit for training",
    of_strategy=lambda strategy: strategy.compresses,
    next_step=(
        "Compress at a lower level (--ckpt-strategy=compressed:codec), with more cores for each rank, or not at all."
    ),
    help="A save in the background costs too much",
)
def test_compressed_saves_are_not_slower_than_plain_ones(compression: Compression, maximum: float) -> Decision:
    """Saves with a codec take at most 5 % longer than plain saves of the same content.

    A codec (such as zstd) compresses the content: it saves bytes of storage and costs processor time of the client.
    Compressed and plain saves and loads take turns, three of each. Caches are dropped before each load, and every byte
    is compared. The content compresses like one measured training state: zstd stores mixed-precision states in about
    0.9 of their bytes, and LZ4 does not reduce them. A job's own data may compress differently. Advisory: no published
    limit exists.
    """
    saves, loads = (
        statistics.median(compressed) / statistics.median(plain)
        for compressed, plain in (
            (compression.compressed_save_seconds, compression.plain_save_seconds),
            (compression.compressed_load_seconds, compression.plain_load_seconds),
        )
    )
    detail = tuple(_describe(compression))
    because = (
        f"Compressed saves took {format_ratio(saves, maximum)} x the time of plain ones (at most {maximum}), loads "
        f"{loads:.2f} x. "
        f"{compression.codec} stored {compression.stored_bytes / compression.bytes:.2f} of content that is made to "
        "compress as one measured training state: a job's own data may compress more or less."
    )
    if compression.fault_count:
        faults = counted(compression.fault_count, "fault")
        because = f"{faults} in what was loaded for this comparison, so its times are not valid. {because}"
        return measured_as("wrong bytes", saves, maximum, "compressed / plain", because, detail)
    if saves > maximum:
        codec, save = (
            statistics.median(compression.save_codec_seconds),
            statistics.median(compression.compressed_save_seconds),
        )
        took = f"{format_seconds(codec)} of a rank's processor in {format_seconds(save)}"
        cause = (
            f"The codec took {took}: the client's processor is the limit, not the storage."
            if codec >= save * _LIMITS_FROM
            else f"The codec took {took}: the rest is waiting, for the storage or for a processor."
        )
        because = f"{because} {cause}"
    reason: Reason = "over limit" if saves > maximum else "met"
    return measured_as(reason, saves, maximum, "compressed / plain", because, detail)


@requirement(
    "PREEMPT",
    title="After a preemption notice a job saves in time",
    severity="advisory",
    units=("s",),
    figure="the slowest save after a notice, from the notice to the ranks until the commit",
    limit="the notice, --ckpt-suite=strategies:preemption-notice",
    source="given by the user",
    requested_by=lambda settings: bool(settings.preemption_notice_seconds),
    next_step="Look at the phase that took longest, and check whether the save waited for a save in the background.",
    help="A save in the background costs too much",
)
def test_a_job_saves_within_the_preemption_notice(
    preempt: Preempted, measurement: Measurement, limits: ClusterLimits
) -> Decision:
    """After a preemption notice, the state of a job is saved and committed before the job ends.

    Schedulers and clouds warn a job before they end it, often two minutes ahead. In the test, rank 0 notifies all
    ranks, which save their state. The clock runs from the notice until this save is committed on the target. If saves
    run in the background, another save has just begun when the notice is given. No signal is sent, and no checkpoint is
    loaded. Measured with --ckpt-suite=strategies:preemption-notice. Advisory: the user sets the length of the notice.
    """
    limit, slowest = limits.stated.notice_seconds * measurement.share, max(preempt.committed_seconds)
    detail = [
        f"{format_bytes(preempt.bytes)} each; from the notice until the commit: "
        f"{format_times(preempt.committed_seconds)}"
    ]
    if not strategy_of(measurement.subject).blocks:
        detail.append("a save had just begun when the notice came: the last one waits for it")
    if measurement.share < 1:
        detail.append(f"the run wrote {measurement.share:.4g} of the full size; the limit is this share of the notice")
    took, allowed = compared(slowest, limit)
    because = f"Slowest of {counted(len(preempt.committed_seconds), 'save')} at notice: {took}; limit {allowed}."
    if slowest > limit:
        return over_limit(measurement, "save", slowest, limit, because, detail)
    return measured_as("met", slowest, limit, "s", because, detail)


@requirement(
    "SLOWDOWN",
    title="A save in the background hardly slows training",
    severity="advisory",
    maximum=0.05,
    units=("fraction",),
    ratios=("fraction",),
    hidden_by_load=True,
    figure="the additional time of steps during saves, as a share of undisturbed steps",
    limit="{maximum:g}",
    source="our proposal: at most 5 % longer, with a 95 % interval",
    of_strategy=lambda strategy: not strategy.blocks,
    next_step="Find out what the save takes from training: cores, memory bandwidth or the network.",
    help="A save in the background costs too much",
)
def test_background_saves_slow_training_little(measurement: Measurement, maximum: float) -> Decision:
    """Training steps during a save take at most 5 % longer than undisturbed steps.

    A save in the background takes memory bandwidth, cores and network from training. Steps during every save are
    compared with the steps before and after the save, with a 95 % interval. If the interval contains the limit, the
    result is "not decided". Advisory: no published limit exists.
    """
    if decided := not_saved(measurement):
        return decided
    training = measurement.patterns.training if measurement.patterns else None
    found = slowdown(training) if training else None
    if training is None or found is None:
        return not_decided("too few", "No step of training ran during a save: every save was too short.")
    detail = tuple(_describe_steps(training))
    steps = sum(save.steps for save in training.saves)
    if found.low is None or found.high is None:
        because = f"Only {counted(steps, 'step')} ran during the saves: too few to determine how much longer they took."
        return not_decided("too few", because, detail)
    figures = (
        f"{format_percent(max(0.0, found.share))} longer (95 % interval {format_percent(found.low)} to "
        f"{format_percent(found.high)}; limit {format_percent(maximum)})"
    )
    if found.low <= maximum < found.high:
        because = f"{counted(steps, 'step')} during the saves took {figures}: they vary too much to decide."
        return not_decided("perhaps late", because, detail)
    because = f"{counted(steps, 'step')} during the saves took {figures}."
    reason: Reason = "over limit" if found.share > maximum else "met"
    return measured_as(reason, max(0.0, found.share), maximum, "fraction", because, detail)


def _describe_kills(found: Crashes) -> Iterator[str]:
    yield (f"saves of {format_bytes(found.bytes)}; from copy to commit at least {format_seconds(found.usual_seconds)}")
    for reached in get_args(Reached):
        of = [kill for kill in found.kills if kill.reached == reached]
        there = sum(kill.is_committed for kill in of)
        yield f"killed when {reached}: {len(of)}; {there} of these are visible as checkpoints"


def _judge_cost(
    costs: tuple[SaveCost, ...],
    measurement: Measurement,
    limits: ClusterLimits,
    seconds_of: Callable[[SaveCost], float],
    describe: Callable[[SaveCost], str],
) -> Decision:
    share = measurement.share
    limit = limits.save_limit_seconds * share
    worst = max(costs, key=seconds_of)
    seconds = seconds_of(worst)
    detail = [
        f"save {cost.index}: {format_seconds(seconds_of(cost))} ({describe(cost)})"
        + (f"; the copy {format_seconds(cost.copying_seconds)}" if cost.copying_seconds else "")
        for cost in costs
    ]
    detail.append(limits.reason("save_limit_seconds"))
    if share < 1:
        detail.append(
            f"the run wrote {share:.4g} of the full size, so the limit is {format_seconds(limit)}: the copy, the steps "
            "during a save and the save are assumed to grow with the size"
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


def _describe_steps(training: Training) -> Iterator[str]:
    yield (
        f"simulated training step: {format_seconds(training.step_seconds)}, of which "
        f"{format_percent(training.cpu_share)} work of each rank's core on the state that is saved, the rest a wait"
    )
    for save in training.saves:
        during = sum(batch.seconds for batch in save.during)
        each = f", {format_seconds(during / save.steps)} each" if save.steps else ""
        yield (
            f"save {save.checkpoint}: {counted(save.steps, 'step')} during it{each}; "
            f"undisturbed {format_seconds(save.undisturbed_seconds)} each"
        )


def _describe(found: Compression) -> Iterator[str]:
    yield f"{format_bytes(found.bytes)} of tensors, stored in {format_bytes(found.stored_bytes)}"
    yield f"content: {found.content}"
    for kind, plain, compressed, codec in (
        ("saves", found.plain_save_seconds, found.compressed_save_seconds, found.save_codec_seconds),
        ("loads", found.plain_load_seconds, found.compressed_load_seconds, found.load_codec_seconds),
    ):
        yield (
            f"{kind}: plain {format_times(plain)}; compressed "
            f"{format_times(compressed)}; in the codec, of the rank that took most, "
            f"{format_times(codec)} of its processor"
        )

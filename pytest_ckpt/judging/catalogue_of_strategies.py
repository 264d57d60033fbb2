"""The requirements on saves that let the job go on: part of the catalogue, in the order in which it has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.judging import chains, compression, strategies, tiers
from pytest_ckpt.judging.requirement import Requirement

if TYPE_CHECKING:
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.facts.strategies import StrategySpec


def _lets_go_on(strategy: StrategySpec) -> bool:
    return not strategy.blocks


def _copies_state(strategy: StrategySpec) -> bool:
    return strategy.stages


def _has_tiers(strategy: StrategySpec) -> bool:
    return strategy.tiers


def _saves_deltas(strategy: StrategySpec) -> bool:
    return strategy.saves_deltas


def _compresses(strategy: StrategySpec) -> bool:
    return strategy.compresses


def _asks_notice(settings: Settings) -> bool:
    return bool(settings.notice_seconds)


STRATEGY_ROWS = (
    Requirement(
        id="BLOCKING",
        title="Saves take little time from training",
        severity="required",
        judge=strategies.judge_blocking,
        units=("s",),
        figure="the most that a save took from training: blocked, and steps beside it longer",
        limit="the save limit of the cluster ({save} for 16,000 accelerators)",
        source="as SAVE: overhead x interval, whatever the way of saving",
        suite="strategies",
        of_strategy=_lets_go_on,
    ),
    Requirement(
        id="BACKGROUND",
        title="Every save is committed before the next is due",
        severity="required",
        judge=strategies.judge_background,
        units=("s",),
        figure="the slowest save, from its begin until it is committed",
        limit="the interval between checkpoints of the cluster",
        source="derived from the cluster: mean time to failure / checkpoints per failure",
        suite="strategies",
        of_strategy=_copies_state,
    ),
    Requirement(
        id="LOST-WORK",
        title="Saving and the work at risk cost no more than a save that blocks",
        severity="required",
        judge=strategies.judge_lost_work,
        units=("s",),
        figure="the most that a save cost: what it took from training, and the time until its commit / checkpoints per "
        "failure",
        limit="the save limit of the cluster ({save} for 16,000 accelerators)",
        source="derived from the cluster: a failure before the commit costs the work since the save before",
        suite="strategies",
        of_strategy=_copies_state,
    ),
    Requirement(
        id="CRASH-ASYNC",
        title="Training that dies in a save loses no checkpoint",
        severity="required",
        judge=strategies.judge_crash,
        units=("faults", "bytes"),
        figure="faults in the newest committed checkpoint, after every kill; bytes compared, where some were not",
        limit="no fault, every byte",
        source="zero tolerance; 60 kills, 6 with --ckpt-profile=smoke, are our proposal",
        suite="strategies",
        of_strategy=_lets_go_on,
        needs=frozenset(("paths",)),
    ),
    Requirement(
        id="RETAIN-COMMITTED",
        title="Retention leaves the newest committed checkpoint while a save fails",
        severity="required",
        judge=strategies.judge_retain_committed,
        units=("faults",),
        figure="newest committed checkpoints that did not load whole",
        limit="none",
        source="zero tolerance",
        suite="strategies",
        of_strategy=_lets_go_on,
        needs=frozenset(("paths",)),
    ),
    Requirement(
        id="CHAIN",
        title="The longest chain of deltas is restored in time",
        severity="required",
        judge=chains.judge_chain,
        units=("s",),
        figure="the restore of the longest chain: a full save and all deltas behind it",
        limit="the load limit of the cluster ({load} for 16,000 accelerators)",
        source="as LOAD: restore budget x mean time to failure",
        suite="strategies",
        of_strategy=_saves_deltas,
    ),
    Requirement(
        id="RETAIN-CHAIN",
        title="Deleting old checkpoints breaks no chain that is kept",
        severity="required",
        judge=chains.judge_retain_chain,
        units=("faults", "bytes"),
        figure="faults in a chain that was loaded when all before it was deleted; bytes that came back, where too few "
        "did",
        limit="no fault, every byte; half of the space, from 1 GB that were deleted",
        source="zero tolerance; the share of the space is our proposal",
        suite="strategies",
        of_strategy=_saves_deltas,
    ),
    Requirement(
        id="DRAIN",
        title="The local tier is drained in time",
        severity="required",
        maximum=tiers.MAXIMUM_SLOWER_SAVE,
        judge=tiers.judge_drain,
        units=("s", "beside / alone"),
        figure="the slowest drain, from when the job could go on until the checkpoint was committed on the target; the "
        "ratio of medians where drains slow saves",
        limit="the time from one drain to the next, less where the work at risk leaves less; {maximum:g} x for saves "
        "to the local tier beside a drain that miss the save limit",
        source="derived from the cluster: a failure that only the target survives costs all work since the last drain",
        suite="strategies",
        of_strategy=_has_tiers,
    ),
    Requirement(
        id="TIER-ORDER",
        title="A restore takes the newest whole checkpoint of both tiers",
        severity="required",
        judge=tiers.judge_tier_order,
        units=("faults", "bytes"),
        figure="faults in what was restored; bytes compared, where some were not",
        limit="no fault, every byte",
        source="zero tolerance",
        suite="strategies",
        of_strategy=_has_tiers,
    ),
    Requirement(
        id="NODE-LOSS",
        title="A checkpoint outlives the loss of a host",
        severity="required",
        judge=tiers.judge_node_loss,
        units=("s", "faults", "bytes"),
        figure="the time until all ranks had loaded again, with a partner's copies in place of what one host lost; "
        "faults in what was restored; bytes compared, where some were not",
        limit="the load limit of the cluster ({load} for 16,000 accelerators); no fault, every byte",
        source="as LOAD: restore budget x mean time to failure; zero tolerance",
        suite="strategies",
        of_strategy=_has_tiers,
    ),
    Requirement(
        id="COMPRESSION",
        title="Compressed saves are not slower than plain ones",
        severity="advisory",
        maximum=compression.MAXIMUM_SLOWER,
        judge=compression.judge_compression,
        units=("compressed / plain",),
        figure="the ratio of the median times of saves, compressed and plain",
        limit="{maximum:g}",
        source="our proposal: a codec that slows saves gains nothing for training",
        suite="strategies",
        of_strategy=_compresses,
    ),
    Requirement(
        id="PREEMPT",
        title="A job that is given notice saves in time",
        severity="advisory",
        judge=strategies.judge_preempt,
        units=("s",),
        figure="the slowest save at notice, from when the ranks were told until it was committed",
        limit="the notice, --ckpt-notice",
        source="given by the user",
        suite="strategies",
        asked_by=_asks_notice,
    ),
    Requirement(
        id="SLOWDOWN",
        title="A save in the background hardly slows training",
        severity="advisory",
        maximum=strategies.MAXIMUM_SLOWDOWN,
        judge=strategies.judge_slowdown,
        units=("fraction",),
        figure="by how much longer the steps beside saves took",
        limit="{maximum:g}",
        source="our proposal: at most 5 % longer, with a 95 % interval",
        suite="strategies",
        of_strategy=_lets_go_on,
    ),
)

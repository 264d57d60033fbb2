"""What drains from a local tier to the target may take, and what they put at risk. Pure.

With an interval I between saves, an save budget b, k checkpoints a failure, every n-th save drained in D seconds,
and a share p of failures that only the target survives: a drain ends before the next begins, D <= n I, and what a save
takes from training and the work at risk cost no more than a save that blocks, lost + p ((n - 1) I / 2 + D) / k <= b I.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ckpt.facts.strategy_results import DrainRule
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.units import format_percent

if TYPE_CHECKING:
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.facts.strategies import StrategySpec
    from pytest_ckpt.sizing.limits import ClusterLimits, Demand

DRAIN_BUFFERS_BYTES = 64 << 20
"""What a rank holds of a file while it drains it, unless more requests are to be in flight."""

PARTNER_PIECE_BYTES = 16 << 20
"""What a rank holds of a file while it sends it to a partner, or takes it."""

LOCAL_CHECKPOINTS = 3
"""Checkpoints in the local tier at most: one that is drained, the newest, and one that is written."""


PARTNER_CHECKPOINTS = 4
"""Ranks' parts of checkpoints in the tier of one of several hosts: two of its own ranks, and copies of two others."""


def drain_buffers_bytes(request_bytes: int, depth: int) -> int:
    """Return what a rank holds at most while it drains: ``depth`` requests are read while as many are written."""
    return max(DRAIN_BUFFERS_BYTES, 2 * depth * request_bytes)


def drain_depth(piece_bytes: int, request_bytes: int, depth: int) -> int:
    """Return how many pieces are read, and as many written, at once: fewer where a target's parts are larger."""
    return max(1, min(depth, drain_buffers_bytes(request_bytes, depth) // (2 * piece_bytes)))


def drain_rule(settings: Settings, strategy: StrategySpec) -> DrainRule | None:
    """Return which saves by a strategy are drained; None where it knows no tiers."""
    if not strategy.tiers:
        return None
    return DrainRule(every=settings.drain_every, target_share=settings.target_share)


def drain_limit_seconds(rule: DrainRule, limits: ClusterLimits, lost_seconds: float = 0.0) -> float:
    """Return how long a drain may take where a save takes ``lost_seconds`` from training; 0: no drain is fast enough.

    All at full size.
    """
    interval, failures = limits.interval_seconds, limits.checkpoints_per_failure
    left = (limits.save_limit_seconds - lost_seconds) * failures / rule.target_share - _undrained_seconds(
        rule, interval
    )
    return max(0.0, min(rule.every * interval, left))


def at_risk_seconds(rule: DrainRule, interval_seconds: float, drain_seconds: float) -> float:
    """Return the work that a failure costs on average beyond half an interval: where only the target survives, more."""
    return rule.target_share * (_undrained_seconds(rule, interval_seconds) + drain_seconds)


def as_blocking_seconds(rule: DrainRule, limits: ClusterLimits, lost_seconds: float, drain_seconds: float) -> float:
    """Return the seconds of a save that blocks and needs the same cluster to meet its save limit; infinite: none does.

    All conditions grow with the interval, so each is met by the clusters whose b I reaches a time of its own.
    """
    failures, save_budget = limits.checkpoints_per_failure, limits.save_budget
    # What is left of b where each save that is not drained is at risk.
    left = save_budget - rule.target_share * (rule.every - 1) / 2 / failures
    if left <= 0:
        return math.inf
    with_risk = (lost_seconds + rule.target_share * drain_seconds / failures) * save_budget / left
    return max(lost_seconds, with_risk, save_budget * drain_seconds / rule.every)


def with_drains(asks: Demand, limits: ClusterLimits, rule: DrainRule | None) -> Demand:
    """Return what limits ask of the target where a local tier takes the saves: slower drains, and fewer of them.

    Raises UsageError where no drain would be fast enough, whatever the cluster.
    """
    if rule is None:
        return asks
    longer = drain_limit_seconds(rule, limits) / limits.interval_seconds
    if not longer:
        raise UsageError(
            f"--ckpt-strategy=tiered:drain-every={rule.every} with "
            f"--ckpt-strategy=tiered:target-share={format_percent(rule.target_share)}: the work "
            "that is not drained yet costs more than the save budget, however fast a drain is.",
            "Drain more often, such as --ckpt-strategy=tiered:drain-every=2, or raise --ckpt-save-budget.",
        )
    return replace(
        asks,
        save_limit_seconds=asks.save_limit_seconds * longer,
        save_bytes_per_second=asks.save_bytes_per_second / longer,
        cluster_save_bytes_per_second=asks.cluster_save_bytes_per_second / longer,
        per_writer_bytes_per_second=asks.per_writer_bytes_per_second / longer,
        per_node_bytes_per_second=asks.per_node_bytes_per_second / longer,
        bytes_per_day=asks.bytes_per_day / rule.every,
        sustained_bytes_per_second=asks.sustained_bytes_per_second / rule.every,
    )


def _undrained_seconds(rule: DrainRule, interval_seconds: float) -> float:
    """Return how old the newest drained checkpoint is on average, beyond half an interval."""
    return (rule.every - 1) * interval_seconds / 2

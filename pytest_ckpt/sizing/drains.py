"""The permitted time of drains, and the work at risk during them. Pure functions.

A drain copies a checkpoint from the local tier of the hosts to the target. Symbols: I is the interval between saves, b
the save budget, k the number of checkpoints per failure. Every n-th save is drained, and a drain takes D seconds. The
share p of all failures destroys the local tier; after such a failure, only the target has checkpoints.

A drain must meet two conditions. First, it ends before the next drain begins: D <= n I. Second, a save may cost at most
as much as a blocking save: lost + p ((n - 1) I / 2 + D) / k <= b I. The cost is the time by which the save delays
training (lost), and the work at risk.
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
"""The memory of a rank for buffers while it drains a file, unless the options set more or larger requests."""

PARTNER_PIECE_BYTES = 16 << 20
"""The memory of a rank for buffers while it sends a file to a partner or receives one."""

LOCAL_CHECKPOINTS = 3
"""The maximum number of checkpoints in the local tier: the one being drained, the newest one, and the one being
written."""


PARTNER_CHECKPOINTS = 4
"""The maximum number of checkpoint parts in the tier of one of several hosts.

These are two checkpoints of its own ranks, and copies of two checkpoints of another host's ranks.
"""


def drain_buffers_bytes(request_bytes: int, depth: int) -> int:
    """Return the maximum memory of a rank during a drain, with ``depth`` reads and ``depth`` writes in flight."""
    return max(DRAIN_BUFFERS_BYTES, 2 * depth * request_bytes)


def drain_depth(piece_bytes: int, request_bytes: int, depth: int) -> int:
    """Return the number of reads that a drain keeps in flight. It also keeps this number of writes in flight.

    Each read and each write moves ``piece_bytes``. ``piece_bytes`` exceeds ``request_bytes`` if the target needs larger
    parts. The result is ``depth``, or less if the buffers would exceed `drain_buffers_bytes`.
    """
    return max(1, min(depth, drain_buffers_bytes(request_bytes, depth) // (2 * piece_bytes)))


def drain_rule(settings: Settings, strategy: StrategySpec) -> DrainRule | None:
    """Return which saves of a strategy are drained to the target; None if the strategy has no local tier."""
    if not strategy.tiers:
        return None
    return DrainRule(every=settings.drain_every, target_share=settings.target_share)


def drain_limit_seconds(rule: DrainRule, limits: ClusterLimits, lost_seconds: float = 0.0) -> float:
    """Return the maximum time of a drain; 0 if no drain is fast enough.

    ``lost_seconds`` is the time by which a save delays training. All values are at full size.
    """
    interval, failures = limits.interval_seconds, limits.checkpoints_per_failure
    left = (limits.save_limit_seconds - lost_seconds) * failures / rule.target_share - _undrained_seconds(
        rule, interval
    )
    return max(0.0, min(rule.every * interval, left))


def at_risk_seconds(rule: DrainRule, interval_seconds: float, drain_seconds: float) -> float:
    """Return the average work, in seconds, that a failure costs because the newest saves are not drained.

    Every failure also costs half an interval on average. This loss is not included.
    """
    return rule.target_share * (_undrained_seconds(rule, interval_seconds) + drain_seconds)


def as_blocking_seconds(rule: DrainRule, limits: ClusterLimits, lost_seconds: float, drain_seconds: float) -> float:
    """Return the time of a blocking save that is sufficient for the same clusters as these drains.

    ``lost_seconds`` is the time by which a save delays training. ``drain_seconds`` is the time of a drain. The result
    is the smallest save limit b I with which a cluster meets this module's conditions for drains. The result is
    infinite if no cluster can meet these conditions.
    """
    failures, save_budget = limits.checkpoints_per_failure, limits.save_budget
    # The part of the save budget b that remains after the average loss of saves that are not drained.
    left = save_budget - rule.target_share * (rule.every - 1) / 2 / failures
    if left <= 0:
        return math.inf
    with_risk = (lost_seconds + rule.target_share * drain_seconds / failures) * save_budget / left
    return max(lost_seconds, with_risk, save_budget * drain_seconds / rule.every)


def with_drains(asks: Demand, limits: ClusterLimits, strategy: StrategySpec, rule: DrainRule | None) -> Demand:
    """Return the demand on the target if saves go to a local tier first: fewer bytes a day, at a lower rate.

    Without a ``rule``, the demand is unchanged. Raises UsageError if no drain would be fast enough for any cluster.
    """
    if rule is None:
        return asks
    longer = drain_limit_seconds(rule, limits) / limits.save_seconds(strategy)
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
    """Return the average time between the newest drained save and the newest save when a failure occurs.

    The time of a drain is not included.
    """
    return (rule.every - 1) * interval_seconds / 2

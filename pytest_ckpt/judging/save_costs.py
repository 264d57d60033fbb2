"""What saves cost training: the time that they take from it, and the work that they put at risk. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_ckpt.facts.strategies import strategy_of
from pytest_ckpt.facts.strategy_results import DrainRule
from pytest_ckpt.sizing.drains import as_blocking_seconds, at_risk_seconds, drain_limit_seconds
from pytest_ckpt.support.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.measurement import Measurement, Operation
    from pytest_ckpt.sizing.limits import ClusterLimits


@dataclass(frozen=True, kw_only=True, slots=True)
class SaveCost:
    """One save, in seconds from its begin, as it was measured.

    ``blocked_seconds``: until the job could go on and change its state, on the last rank. ``extra_seconds``: by how
    much longer the steps beside it took. ``seconds``: until it was committed. ``copying_seconds`` of the blocked ones
    are the copy of the state in the client's memory. ``drains``: from when the job could go on until then it was
    drained from a local tier, as one of several saves.
    """

    index: int
    blocked_seconds: float
    extra_seconds: float
    seconds: float
    copying_seconds: float = 0.0
    drains: DrainRule | None = None

    @property
    def lost_seconds(self) -> float:
        """What training loses, however it is saved."""
        return self.blocked_seconds + max(0.0, self.extra_seconds)

    @property
    def added_seconds(self) -> float:
        """What the storage adds to what training loses: all but the copy, which would take as long into any storage."""
        return self.lost_seconds - self.copying_seconds

    @property
    def background_seconds(self) -> float:
        """How long training goes on until it is committed."""
        return max(0.0, self.seconds - self.blocked_seconds)

    def at_risk_seconds(self, interval_seconds: float) -> float:
        """How much work a failure costs on average beyond half an interval between saves."""
        if self.drains:
            return at_risk_seconds(self.drains, interval_seconds, self.background_seconds)
        return self.background_seconds

    @property
    def minimum_interval_seconds(self) -> float:
        """How soon after a save the next may begin: not before this one, or what is drained of it, is over."""
        if self.drains:
            return max(self.blocked_seconds, self.background_seconds / self.drains.every)
        return self.seconds if self.background_seconds else 0.0

    def with_risk_seconds(self, limits: ClusterLimits) -> float:
        """What the storage adds, and the work at risk as it is lost on average: once in as many saves as one fails."""
        return self.added_seconds + self.at_risk_seconds(limits.interval_seconds) / limits.checkpoints_per_failure

    def as_blocking_seconds(self, limits: ClusterLimits) -> float:
        """Return the seconds of a save that stands still and needs the same cluster to meet its save limit.

        That is the largest of what BLOCKING and LOST-WORK hold to the save limit, b x interval, and what BACKGROUND
        holds to the interval: so all three are met by the same clusters as SAVE by a save of that many seconds. With a
        local tier, DRAIN stands in place of the last two.
        """
        if self.drains:
            return as_blocking_seconds(self.drains, limits, self.added_seconds, self.background_seconds)
        if not self.background_seconds:
            return self.added_seconds
        return max(self.with_risk_seconds(limits), limits.save_budget * self.seconds)


def save_costs(measurement: Measurement) -> tuple[SaveCost, ...]:
    """Return what each save cost; empty where steps should have gone on beside them and none were measured."""
    saves = measurement.of_kind("save")
    if strategy_of(measurement.subject).blocks:
        return tuple(_blocking(o) for o in saves)
    training = measurement.patterns.training if measurement.patterns else None
    if training is None:
        return ()
    costs = []
    for save in saves:
        steps = training.of(save.checkpoint)
        if steps is None or save.returned_seconds is None or save.staged_seconds is None:
            return ()
        costs.append(
            SaveCost(
                index=save.index,
                blocked_seconds=max(save.returned_seconds, save.staged_seconds),
                extra_seconds=steps.extra_seconds,
                seconds=save.seconds,
                copying_seconds=save.copying_seconds or 0.0,
                drains=measurement.drains,
            )
        )
    return tuple(costs)


def save_limit_seconds(measurement: Measurement, limits: ClusterLimits) -> float:
    """Return how long a save may take until it is committed, at the size that was run; with tiers, a drain."""
    if measurement.drains:
        return drain_limit_seconds(measurement.drains, limits) * measurement.share
    return limits.save_seconds(strategy_of(measurement.subject)) * measurement.share


def at_full_size(costs: Sequence[SaveCost], measurement: Measurement) -> list[SaveCost]:
    """Return costs as they would be at full size, at the same bandwidths."""
    factor = 1 / measurement.share
    return [
        replace(
            cost,
            blocked_seconds=cost.blocked_seconds * factor,
            extra_seconds=cost.extra_seconds * factor,
            seconds=cost.seconds * factor,
            copying_seconds=cost.copying_seconds * factor,
        )
        for cost in costs
    ]


def _blocking(save: Operation) -> SaveCost:
    return SaveCost(index=save.index, blocked_seconds=save.seconds, extra_seconds=0.0, seconds=save.seconds)


def describe_loss(cost: SaveCost) -> str:
    """Say what the storage adds to what a save takes from training."""
    extra = format_seconds(max(0.0, cost.extra_seconds))
    waited = format_seconds(cost.blocked_seconds - cost.copying_seconds)
    beside = " beside the copy" if cost.copying_seconds else ""
    return f"blocked {waited}{beside} + {extra} by slower steps"

"""The cost of saves for training: the time that they take from it, and the work that they put at risk. Pure."""

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
    """One save, in seconds from its start, as it was measured.

    ``blocked_seconds``: until the job could continue and change its state, on the last rank. ``extra_seconds``: the
    slowdown of the concurrent steps. ``seconds``: until it was committed. ``copying_seconds`` is the part of
    ``blocked_seconds`` in which the state was copied in the client's memory. With ``drains``, the time from when the
    job could continue until ``seconds`` is a drain from a local tier, which only one of several saves has.
    """

    index: int
    blocked_seconds: float
    extra_seconds: float
    seconds: float
    copying_seconds: float = 0.0
    drains: DrainRule | None = None

    @property
    def lost_seconds(self) -> float:
        """Training time that the save costs, with any strategy."""
        return self.blocked_seconds + max(0.0, self.extra_seconds)

    @property
    def added_seconds(self) -> float:
        """The storage's part of the lost time: all except the copy, which takes the same time with any storage."""
        return self.lost_seconds - self.copying_seconds

    @property
    def background_seconds(self) -> float:
        """How long training continues until the save is committed."""
        return max(0.0, self.seconds - self.blocked_seconds)

    def at_risk_seconds(self, interval_seconds: float) -> float:
        """How much work a failure costs on average beyond half an interval between saves."""
        if self.drains:
            return at_risk_seconds(self.drains, interval_seconds, self.background_seconds)
        return self.background_seconds

    @property
    def minimum_interval_seconds(self) -> float:
        """Minimum time from a save's begin to the next one's: this save, or its share of a drain, must be over."""
        if self.drains:
            return max(self.blocked_seconds, self.background_seconds / self.drains.every)
        return self.seconds if self.background_seconds else 0.0

    def with_risk_seconds(self, limits: ClusterLimits) -> float:
        """The storage's part of the lost time, plus the average loss of the work at risk per save."""
        return self.added_seconds + self.at_risk_seconds(limits.interval_seconds) / limits.checkpoints_per_failure

    def as_blocking_seconds(self, limits: ClusterLimits) -> float:
        """Return the seconds of a blocking save whose save limit implies the same cluster.

        That is the maximum of the times that BLOCKING and LOST-WORK compare with the save limit, b x interval, and the
        time that BACKGROUND compares with the interval. So the clusters that meet SAVE with a save of that many seconds
        also meet these three. With a local tier, DRAIN replaces BACKGROUND and LOST-WORK.
        """
        if self.drains:
            return as_blocking_seconds(self.drains, limits, self.added_seconds, self.background_seconds)
        if not self.background_seconds:
            return self.added_seconds
        return max(self.with_risk_seconds(limits), limits.save_budget * self.seconds)


def save_costs(measurement: Measurement) -> tuple[SaveCost, ...]:
    """Return the cost of each save; empty if concurrent steps were expected and not measured."""
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
    """Return a sentence on the storage's part of the time that a save takes from training."""
    extra = format_seconds(max(0.0, cost.extra_seconds))
    waited = format_seconds(cost.blocked_seconds - cost.copying_seconds)
    beside = " (without the copy)" if cost.copying_seconds else ""
    return f"blocked {waited}{beside} + {extra} by slower steps"

"""The cost of saves for training: the training time lost to saves, and the work lost in a failure. Pure."""

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
    """The measured cost of one save, in seconds.

    - ``blocked_seconds``: the time from the start until the job could continue and change its state, on the last rank.
    - ``extra_seconds``: the slowdown of the training steps during the save.
    - ``seconds``: the time from the start until the save was committed.
    - ``copying_seconds``: the part of ``blocked_seconds`` that copied the state in the client's memory.
    - ``drains``: set only for saves to a local tier. The time from ``blocked_seconds`` to ``seconds`` is then a drain,
      and only one of several saves is drained.
    """

    index: int
    blocked_seconds: float
    extra_seconds: float
    seconds: float
    copying_seconds: float = 0.0
    drains: DrainRule | None = None

    @property
    def lost_seconds(self) -> float:
        """The training time that the save costs: blocked time and slowdown."""
        return self.blocked_seconds + max(0.0, self.extra_seconds)

    @property
    def added_seconds(self) -> float:
        """The lost training time without the time for the copy of the state.

        The storage causes only this part, because the copy takes the same time with any storage.
        """
        return self.lost_seconds - self.copying_seconds

    @property
    def background_seconds(self) -> float:
        """The time for which training continues before the save is committed."""
        return max(0.0, self.seconds - self.blocked_seconds)

    def at_risk_seconds(self, interval_seconds: float) -> float:
        """Return the average work that a failure loses, in addition to half of the interval between saves."""
        if self.drains:
            return at_risk_seconds(self.drains, interval_seconds, self.background_seconds)
        return self.background_seconds

    @property
    def minimum_interval_seconds(self) -> float:
        """The minimum time between the starts of two saves.

        For a blocking save, the result is 0, because training waits for the end of the save. A background save must end
        before the next save starts. With a local tier, each drain must end before the next drain starts.
        """
        if self.drains:
            return max(self.blocked_seconds, self.background_seconds / self.drains.every)
        return self.seconds if self.background_seconds else 0.0

    def with_risk_seconds(self, limits: ClusterLimits) -> float:
        """Return the lost time per save that the storage causes, including the average loss of work at risk."""
        return self.added_seconds + self.at_risk_seconds(limits.interval_seconds) / limits.checkpoints_per_failure

    def as_blocking_seconds(self, limits: ClusterLimits) -> float:
        """Return the time of a blocking save that is sufficient for the same clusters as this save.

        BLOCKING and LOST-WORK compare a time with the save limit (save budget x interval). BACKGROUND compares a time
        with the interval. With a local tier, DRAIN replaces BACKGROUND and LOST-WORK. The result is the largest of
        these times, scaled to the save limit. If a cluster's save limit permits a blocking save of this time, the
        measured save meets these requirements on the cluster.
        """
        if self.drains:
            return as_blocking_seconds(self.drains, limits, self.added_seconds, self.background_seconds)
        if not self.background_seconds:
            return self.added_seconds
        return max(self.with_risk_seconds(limits), limits.save_budget * self.seconds)


def save_costs(measurement: Measurement) -> tuple[SaveCost, ...]:
    """Return the cost of each save; empty if the training steps during background saves were not measured."""
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
    """Return the maximum time in seconds until a save is committed, at the size of the measurement.

    With a local tier, the result is the maximum time of a drain.
    """
    if measurement.drains:
        return drain_limit_seconds(measurement.drains, limits) * measurement.share
    return limits.save_seconds(strategy_of(measurement.subject)) * measurement.share


def at_full_size(costs: Sequence[SaveCost], measurement: Measurement) -> list[SaveCost]:
    """Return the costs of saves, projected to full size at the same bandwidth."""
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
    """Return a phrase on the part of a save's lost training time that the storage causes."""
    extra = format_seconds(max(0.0, cost.extra_seconds))
    waited = format_seconds(cost.blocked_seconds - cost.copying_seconds)
    exclusion = " (without the copy)" if cost.copying_seconds else ""
    return f"blocked {waited}{exclusion} + {extra} by slower steps"

"""The effect of measured times on training: sufficient cluster sizes, and the share of time spent on training. Pure.

The share of time spent on training is the goodput, also called effective training time ratio. If a measurement was not
at full size, its times are projected to full size at the same bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from pytest_ckpt.facts.bounds import AtMostOne, Count, NotNegative, Text
from pytest_ckpt.facts.strategies import strategy_of
from pytest_ckpt.grading.reservations import is_projectable
from pytest_ckpt.judging.save_costs import SaveCost, at_full_size, save_costs
from pytest_ckpt.judging.speed import misses_allowed
from pytest_ckpt.sizing.limits import sufficient_up_to_accelerators
from pytest_ckpt.sizing.reliability import daly_interval_seconds, effective_training_time_ratio, young_interval_seconds

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pytest_ckpt.facts.measurement import Measurement
    from pytest_ckpt.sizing.limits import ClusterLimits
    from pytest_ckpt.sizing.plan import Plan

CLUSTERS = (1_000, 4_000, 16_000, 32_000, 64_000, 100_000)
"""The cluster sizes, in accelerators, that a report contains in addition to the chosen size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterSize:
    """The largest cluster, in accelerators, whose limits a subject meets: by saves, by loads, and by both together.

    If the sampling plan of ``--ckpt-confidence`` permits some operations to miss the limit, these slowest operations
    are left out. A size is None if the measurement is missing, or too short or too small to be projected. If
    ``is_load_proven`` is False, COLD was not met and loads may have come from a cache. Loads then imply no size.
    """

    subject: Text
    save: Count | None
    load: Count | None
    overall: Count | None
    projected: bool
    is_load_proven: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """The checkpoint interval by one rule (``name``), and the effective training time ratio at this interval."""

    name: str
    interval_seconds: NotNegative
    effective_training_time_ratio: AtMostOne


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterGoodput:
    """The goodput of a cluster with a subject's save and load times, at the save interval with the least loss.

    ``is_served``: the times meet the limits of the cluster; None if the measurement is too short or too small to
    decide.
    """

    accelerators: Count
    interval_seconds: NotNegative
    effective_training_time_ratio: AtMostOne
    is_served: bool | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRow:
    """The effect of one subject's times, at full size, on training.

    - ``save_seconds``: the training time that a save costs. It is the maximum over all saves, or the mean if full saves
      and deltas alternate.
    - ``at_risk_seconds``: the average work that a failure loses in addition to half an interval; 0 if the job waits
      during a save.
    """

    subject: Text
    save_seconds: NotNegative
    at_risk_seconds: NotNegative
    load_seconds: NotNegative
    projected: bool
    intervals: tuple[Interval, ...]
    clusters: tuple[ClusterGoodput, ...]


def cluster_sizes(
    plan: Plan, measurements: Sequence[Measurement], unproven_loads: Collection[str] = ()
) -> list[ClusterSize]:
    """Return, for each measurement, the largest cluster for which the measured times are sufficient.

    ``unproven_loads`` are the subjects whose loads were not proven to come from the storage.
    """
    rows = []
    for m in measurements:
        # An operation that is too short or too small implies no limit of another cluster.
        known = is_projectable(m)
        costs = _full_size_costs(m) if known else []
        # Operations that the sampling plan allows to miss the limit do not determine the largest cluster either.
        misses = misses_allowed(plan.limits.stated.assurance, m.operations_planned)
        load = _full_size_seconds(m, "load", misses) if known else None
        blocking = sorted((cost.as_blocking_seconds(plan.limits) for cost in costs), reverse=True)
        # Background saves have more limits, and these allow no misses.
        deciding = blocking[misses if strategy_of(m.subject).blocks else 0] if blocking else 0.0
        by_save = sufficient_up_to_accelerators("save", deciding, plan.limits) if blocking else None
        is_load_proven = str(m.subject) not in unproven_loads
        by_load = sufficient_up_to_accelerators("load", load, plan.limits) if load and is_load_proven else None
        overall = min(by_save, by_load) if by_save is not None and by_load is not None else None
        rows.append(
            ClusterSize(
                subject=str(m.subject),
                save=by_save,
                load=by_load,
                overall=overall,
                projected=m.share < 1,
                is_load_proven=is_load_proven,
            )
        )
    return rows


def training_rows(plan: Plan, measurements: Sequence[Measurement], sizes: Sequence[ClusterSize]) -> list[TrainingRow]:
    """Return the effect of the measured times on training, for intervals by the run's rule, by Young and by Daly.

    The time to restart the job counts as zero. ``sizes`` is the result of `cluster_sizes`.
    """
    rows = []
    served = {size.subject: size.overall for size in sizes}
    clusters = sorted({*CLUSTERS, plan.limits.accelerators})
    for m in measurements:
        costs, load = _full_size_costs(m), _full_size_seconds(m, "load")
        if not costs or not load:
            continue
        worst = _worst(costs, load, is_mixed=bool(m.save_bytes))
        rows.append(
            TrainingRow(
                subject=str(m.subject),
                save_seconds=worst.lost_seconds,
                at_risk_seconds=worst.cost.at_risk_seconds(plan.limits.interval_seconds),
                load_seconds=load,
                projected=m.share < 1,
                intervals=tuple(
                    Interval(
                        name=name,
                        interval_seconds=seconds,
                        effective_training_time_ratio=worst.ratio(seconds, plan.limits.mttf_seconds),
                    )
                    for name, seconds in worst.intervals(plan.limits).items()
                ),
                clusters=tuple(_at(n, worst, served.get(str(m.subject)), plan.limits) for n in clusters),
            )
        )
    return rows


@dataclass(frozen=True, kw_only=True, slots=True)
class _WorstTimes:
    """The costliest save and the slowest load of a subject, in seconds at full size.

    - ``lost_seconds``: the training time that a save costs. It is the maximum over all saves, or the mean if full saves
      and deltas alternate.
    - ``cost``: the cost of the save that puts the most work at risk.
    - ``minimum_interval_seconds``: the minimum time between the starts of two saves.
    """

    lost_seconds: float
    cost: SaveCost
    minimum_interval_seconds: float
    load_seconds: float

    def ratio(self, interval_seconds: float, mttf_seconds: float) -> float:
        return effective_training_time_ratio(
            save_seconds=self.lost_seconds,
            load_seconds=self.load_seconds,
            interval_seconds=interval_seconds,
            mttf_seconds=mttf_seconds,
            at_risk_seconds=self.cost.at_risk_seconds(interval_seconds),
        )

    def intervals(self, limits: ClusterLimits) -> dict[str, float]:
        mttf = limits.mttf_seconds
        return {
            "rule": limits.interval_seconds,
            "Young": max(self.minimum_interval_seconds, young_interval_seconds(self.lost_seconds, mttf)),
            "Daly": self.best_interval(mttf),
        }

    def best_interval(self, mttf_seconds: float) -> float:
        return max(self.minimum_interval_seconds, daly_interval_seconds(self.lost_seconds, mttf_seconds))


def _worst(costs: Sequence[SaveCost], load_seconds: float, *, is_mixed: bool) -> _WorstTimes:
    return _WorstTimes(
        lost_seconds=(fmean if is_mixed else max)([cost.lost_seconds for cost in costs]),
        cost=max(costs, key=lambda cost: cost.background_seconds),
        minimum_interval_seconds=max(cost.minimum_interval_seconds for cost in costs),
        load_seconds=load_seconds,
    )


def _at(accelerators: int, worst: _WorstTimes, largest: int | None, limits: ClusterLimits) -> ClusterGoodput:
    mttf = limits.failures.mttf_seconds(accelerators)
    interval = worst.best_interval(mttf)
    return ClusterGoodput(
        accelerators=accelerators,
        interval_seconds=interval,
        effective_training_time_ratio=worst.ratio(interval, mttf),
        is_served=None if largest is None else accelerators <= largest,
    )


def _full_size_costs(measurement: Measurement) -> list[SaveCost]:
    """Return the cost of each save at full size; empty if saves are missing."""
    if len(measurement.of_kind("save")) < measurement.operations_planned:
        return []
    return at_full_size(save_costs(measurement), measurement)


def _full_size_seconds(measurement: Measurement, kind: str, misses: int = 0) -> float | None:
    """Return the seconds of the slowest operation at full size; None if operations are missing.

    The ``misses`` slowest operations are left out.
    """
    seconds = sorted((o.seconds for o in measurement.operations if o.kind == kind), reverse=True)
    if len(seconds) < measurement.operations_planned or not seconds:
        return None
    return seconds[misses] * measurement.full_bytes / measurement.bytes

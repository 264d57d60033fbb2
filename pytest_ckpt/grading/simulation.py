"""Simulates a month of training with measured times, and derives the lost training time. Pure.

Verdicts do not depend on the simulation.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from pytest_ckpt.analysis.training_runs import MeasuredTimes, quantiles, share_of, simulate_runs
from pytest_ckpt.judging.save_costs import at_full_size, save_costs
from pytest_ckpt.sizing.reliability import daly_interval_seconds, effective_training_time_ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.analysis.training_runs import FailureArrivals
    from pytest_ckpt.facts.measurement import Measurement
    from pytest_ckpt.judging.save_costs import SaveCost
    from pytest_ckpt.sizing.limits import ClusterLimits

# The minimum time between the starts of two saves: the slowest save, plus a little training.
_MINIMUM_OF_SAVES = 1.05
_HOUR = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulationRules:
    """Parameters of a simulation: ``runs`` training runs of ``seconds`` each.

    - ``restart_seconds``: the time to restart the job after each failure.
    - ``arrivals``: when failures occur.
    - ``interval_seconds``: the time between saves. If None, the interval of the cluster is used.
    - ``takes_best``: use the interval with the least loss, by Daly, and ignore ``interval_seconds``.
    """

    runs: int
    seconds: float
    restart_seconds: float
    arrivals: FailureArrivals
    seed: int
    interval_seconds: float | None = None
    takes_best: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatedRow:
    """The simulated training of one subject on one cluster: medians over the simulated runs. Hours are per run.

    - ``goodput``: the share of the time that is spent on training. The middle 90 % of the shares are between
      ``goodput_low`` and ``goodput_high``.
    - ``closed_form``: the same share by a formula for independent failures and constant times.
    - ``is_served``: saves and restores meet the limits of the cluster.
    - ``projected``: the times were measured at less than full size.
    """

    subject: str
    accelerators: int
    interval_seconds: float
    best_interval_seconds: float
    goodput: float
    goodput_low: float
    goodput_high: float
    closed_form: float
    saving_hours: float
    lost_work_hours: float
    restoring_hours: float
    failures: float
    met_save_share: float
    is_served: bool
    projected: bool


def measured_costs(measurement: Measurement) -> list[SaveCost]:
    """Return the cost of each save at full size; empty for an incomplete measurement."""
    counts = [len(measurement.of_kind(kind)) for kind in ("save", "load")]
    if min(counts) < max(1, measurement.operations_planned):
        return []
    return at_full_size(save_costs(measurement), measurement)


def measured_times(measurement: Measurement, costs: Sequence[SaveCost]) -> MeasuredTimes:
    """Return the times of each save and load of a measurement at full size."""
    rule = measurement.drains
    return MeasuredTimes(
        lost_seconds=tuple(cost.lost_seconds for cost in costs),
        background_seconds=tuple(cost.background_seconds for cost in costs),
        load_seconds=tuple(o.seconds / measurement.share for o in measurement.of_kind("load")),
        every=rule.every if rule else 1,
        target_share=rule.target_share if rule else 1.0,
    )


def simulated_row(
    measurement: Measurement, costs: Sequence[SaveCost], limits: ClusterLimits, rules: SimulationRules
) -> SimulatedRow:
    """Return the simulated training of one subject on the cluster of ``limits``. ``costs`` are the costs of its saves.

    If the cluster has more clients than the measurement, the simulation uses the same times.
    """
    times = measured_times(measurement, costs)
    usual, background = fmean(times.lost_seconds), fmean(times.background_seconds)
    minimum = max(_MINIMUM_OF_SAVES * max(times.lost_seconds), *(cost.minimum_interval_seconds for cost in costs))
    best = max(minimum, daly_interval_seconds(usual, limits.mttf_seconds) + usual)
    interval_chosen = best if rules.takes_best else rules.interval_seconds or limits.interval_seconds
    interval = max(minimum, interval_chosen)
    found = simulate_runs(
        times,
        interval_seconds=interval,
        mttf_seconds=limits.mttf_seconds,
        restart_seconds=rules.restart_seconds,
        seconds=rules.seconds,
        runs=rules.runs,
        arrivals=rules.arrivals,
        seed=rules.seed,
    )
    middle, low, high = quantiles(found.goodput)
    hours = rules.seconds / _HOUR
    slowest = max(cost.as_blocking_seconds(limits) for cost in costs)
    return SimulatedRow(
        subject=str(measurement.subject),
        accelerators=limits.accelerators,
        interval_seconds=interval,
        best_interval_seconds=best,
        goodput=middle,
        goodput_low=low,
        goodput_high=high,
        closed_form=effective_training_time_ratio(
            save_seconds=usual,
            load_seconds=fmean(times.load_seconds),
            interval_seconds=interval,
            mttf_seconds=limits.mttf_seconds,
            restart_seconds=rules.restart_seconds,
            at_risk_seconds=times.target_share * ((times.every - 1) * interval / 2 + background),
        ),
        saving_hours=quantiles(found.saving)[0] * hours,
        lost_work_hours=quantiles(found.lost_work)[0] * hours,
        restoring_hours=quantiles(found.restoring)[0] * hours,
        failures=quantiles(found.failures.astype(float))[0],
        met_save_share=share_of(found.met_save, found.failures),
        is_served=slowest <= limits.save_limit_seconds and max(times.load_seconds) <= limits.load_limit_seconds,
        projected=measurement.share < 1,
    )


def simulated_rows(
    measurements: Sequence[Measurement], clusters: Sequence[ClusterLimits], rules: SimulationRules
) -> list[SimulatedRow]:
    """Return the simulated training of each complete measurement on each cluster."""
    found = [(m, costs) for m in measurements if (costs := measured_costs(m))]
    return [simulated_row(m, costs, limits, rules) for m, costs in found for limits in clusters]

"""The forecast for the whole cluster: rates with more clients, times with more ranks, and a month of training.

The forecast does not affect verdicts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from pytest_ckpt.analysis.client_counts import MINIMUM_COUNTS, Projection, rates_of
from pytest_ckpt.analysis.statistics import slowest_of
from pytest_ckpt.facts.bounds import AtMostOne, Count, NotNegative, Text
from pytest_ckpt.facts.measurement import ClientUnit, OperationKind
from pytest_ckpt.sizing.limits import sufficient_up_to_accelerators

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ckpt.facts.measurement import Measurement
    from pytest_ckpt.sizing.limits import ClusterLimits
    from pytest_ckpt.sizing.plan import Plan, PlannedCheckpoint

DAYS, RUNS, SEED = 30, 1000, 1
"""Parameters of the simulated month. The seed is fixed, so that buyer and vendor see the same numbers."""

KINDS: tuple[OperationKind, ...] = ("save", "load")
_DAY = 86_400.0
# With more failures, the simulation takes longer than a report should; such a cluster makes no progress anyway.
_MAXIMUM_FAILURES = 5_000
# Processors may compute the last digits differently, so the numbers are rounded.
_DIGITS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectedRate(Projection):
    """The predicted rate of more clients than the run had, based on the measured rates of a few client counts.

    ``unit`` is the unit of a client. ``sufficient_up_to_accelerators_low`` and ``sufficient_up_to_accelerators_high``
    are bounds of the largest cluster whose limit these clients would meet.
    """

    kind: OperationKind
    unit: ClientUnit
    sufficient_up_to_accelerators_low: Count
    sufficient_up_to_accelerators_high: Count


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpectedSlowest:
    """The predicted time of the slowest rank in a save or load by all ``ranks`` of the whole cluster, at full size.

    The prediction is an extrapolation from the slowest times of ``measured_ranks`` ranks. It assumes that the median
    does not change. ``seconds`` is the mean. The middle 90 % of the predicted times are between ``low_seconds`` and
    ``high_seconds``.
    """

    kind: OperationKind
    ranks: Count
    measured_ranks: Count
    seconds: NotNegative
    low_seconds: NotNegative
    high_seconds: NotNegative


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatedMonth:
    """A simulated month of training. ``goodput`` is the share of the month that is spent on training.

    ``goodput`` and all hours are medians of the simulated runs. The middle 90 % of the goodputs are between
    ``goodput_low`` and ``goodput_high``. ``interval_seconds`` is the time between saves: the interval of the run's
    rule, but at least the time of a save.
    """

    accelerators: Count
    interval_seconds: NotNegative
    goodput: AtMostOne
    goodput_low: AtMostOne
    goodput_high: AtMostOne
    saving_hours: NotNegative
    lost_work_hours: float
    restoring_hours: NotNegative
    failures: NotNegative


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """The forecast of one subject on the whole cluster.

    ``month`` is None if there are too many failures to simulate.
    """

    subject: Text
    projected: tuple[ProjectedRate, ...]
    slowest: tuple[ExpectedSlowest, ...]
    month: SimulatedMonth | None


def forecasts(plan: Plan, measurements: Sequence[Measurement]) -> list[Forecast] | None:
    """Return a forecast for each complete measurement; None if numpy is not installed."""
    whole = [
        m
        for m in measurements
        if all(len(m.of_kind(kind)) >= max(1, m.operations_planned) for kind in KINDS) and m.failure is None
    ]
    if not whole:
        return []
    try:
        import pytest_ckpt.analysis.training_runs  # noqa: F401, PLC0415 - it needs numpy, which judging does not
    except ImportError:
        return None
    return [
        Forecast(
            subject=str(m.subject),
            projected=tuple(_projected(m, plan.of(m.subject), plan.limits)),
            slowest=tuple(_slowest(m, plan.of(m.subject))),
            month=_month(m, plan.limits),
        )
        for m in whole
    ]


def _projected(m: Measurement, planned: PlannedCheckpoint, limits: ClusterLimits) -> Iterator[ProjectedRate]:
    found = m.patterns.scaling if m.patterns else None
    if found is None or len(found.counts) < MINIMUM_COUNTS:
        return
    from pytest_ckpt.analysis.saturation import project  # noqa: PLC0415 - it needs numpy

    largest = found.counts[-1]
    clients = math.ceil(_writers(planned) * largest.clients / largest.ranks)
    if clients <= largest.clients:
        return
    for kind in KINDS:
        rates = {n: of for n, of in rates_of(found, kind).items() if of}
        if len(rates) < MINIMUM_COUNTS:
            continue
        at = project(rates, clients, limits.stated.bytes_per_second(kind) or None)
        low, high = (
            sufficient_up_to_accelerators(kind, planned.demand.cluster_bytes / rate, limits)
            for rate in (at.low, at.high)
        )
        yield ProjectedRate(
            kind=kind,
            unit=found.unit,
            sufficient_up_to_accelerators_low=low,
            sufficient_up_to_accelerators_high=high,
            clients=clients,
            unavailable_reason=at.unavailable_reason,
            model=at.model,
            median=None if at.median is None else _rounded(at.median),
            low=_rounded(at.low),
            high=_rounded(at.high),
            leave_one_out_error=_rounded(at.leave_one_out_error),
        )


def _slowest(m: Measurement, planned: PlannedCheckpoint) -> Iterator[ExpectedSlowest]:
    ranks = _writers(planned)
    if ranks <= m.processes or any(bytes_ <= 0 for bytes_ in m.rank_bytes):
        return
    for kind in KINDS:
        times: list[float] = []
        of: list[int] = []
        middles = []
        for operation in m.whole(kind):
            per_byte = [s / size for s, size in zip(operation.rank_seconds, m.rank_bytes, strict=False)]
            if middle := median(per_byte) if per_byte else 0.0:
                times += [time / middle for time in per_byte]
                of += range(len(per_byte))
                middles.append(median(operation.rank_seconds))
        found = slowest_of(times, ranks, of)
        if found is None:
            continue
        usual = median(middles) / m.share
        yield ExpectedSlowest(
            kind=kind,
            ranks=ranks,
            measured_ranks=m.processes,
            seconds=_rounded(usual * found.expected),
            low_seconds=_rounded(usual * found.low),
            high_seconds=_rounded(usual * found.high),
        )


def _writers(planned: PlannedCheckpoint) -> int:
    """Return the number of ranks that save one checkpoint on the whole cluster. A run may have fewer ranks."""
    return max(planned.demand.writers, planned.layout.model.processes)


def _month(m: Measurement, limits: ClusterLimits) -> SimulatedMonth | None:
    from pytest_ckpt.analysis.training_runs import FailureArrivals  # noqa: PLC0415 - they need numpy
    from pytest_ckpt.grading.simulation import SimulationRules, measured_costs, simulated_row  # noqa: PLC0415

    costs = measured_costs(m)
    if not costs or limits.failures_per_day * DAYS > _MAXIMUM_FAILURES:
        return None
    rules = SimulationRules(runs=RUNS, seconds=DAYS * _DAY, restart_seconds=0.0, arrivals=FailureArrivals(), seed=SEED)
    row = simulated_row(m, costs, limits, rules)
    return SimulatedMonth(
        accelerators=row.accelerators,
        interval_seconds=_rounded(row.interval_seconds),
        goodput=_rounded(row.goodput),
        goodput_low=_rounded(row.goodput_low),
        goodput_high=_rounded(row.goodput_high),
        saving_hours=_rounded(row.saving_hours),
        lost_work_hours=_rounded(row.lost_work_hours),
        restoring_hours=_rounded(row.restoring_hours),
        failures=_rounded(row.failures),
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")

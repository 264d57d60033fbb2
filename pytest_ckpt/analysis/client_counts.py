"""Throughput of saves and loads by client count, measured and projected, in the form of the report. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.facts.bounds import Count, NotNegative

if TYPE_CHECKING:
    from pytest_ckpt.facts.measurement import ClientUnit, Measurement, OperationKind, Scaling

KINDS: tuple[OperationKind, ...] = ("save", "load")

MINIMUM_COUNTS = 4
"""The minimum number of different client counts with which one model can be distinguished from another."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedRates:
    """The rates of saves, or of loads, in bytes a second, by client count. Each operation has one rate.

    ``unit`` states what is counted as a client: ranks or hosts. ``ceiling`` is the maximum that the vendor declares, in
    bytes a second; 0: not declared.
    """

    name: str
    kind: OperationKind
    unit: ClientUnit
    rates: Mapping[int, tuple[float, ...]]
    ceiling: float


def rates_of(found: Scaling, kind: OperationKind) -> dict[int, tuple[float, ...]]:
    """Return {client count: rates of its saves or loads in bytes a second}, for a run with increasing client counts."""
    return {
        count.clients: tuple(
            count.bytes / o.seconds for o in (count.saves if kind == "save" else count.loads) if o.seconds > 0
        )
        for count in found.counts
    }


def counted_rates(measurements: Iterable[Measurement], ceilings: Mapping[OperationKind, float]) -> list[CountedRates]:
    """Return the rates by client count, for each model, engine and strategy.

    If some measurement has several hosts, clients are hosts, otherwise ranks. Only saves and loads of a complete
    checkpoint are used. If a run increased its client count in steps, only the rates of these steps are used.
    """
    measurements = list(measurements)
    unit: ClientUnit = "hosts" if any(len(set(m.hosts)) > 1 for m in measurements) else "ranks"
    found: dict[tuple[str, OperationKind], dict[int, tuple[float, ...]]] = {}
    for m in measurements:
        name = "/".join((m.model, m.subject.engine, m.subject.strategy))
        grown = m.patterns.scaling if m.patterns else None
        for kind in KINDS:
            if grown and grown.unit == unit:
                by_count = rates_of(grown, kind)
            else:
                count = len(set(m.hosts)) if unit == "hosts" else m.processes
                by_count = {count: tuple(m.bytes / o.seconds for o in m.whole(kind) if o.seconds > 0)}
            for count, rates in by_count.items():
                if rates:
                    of_kind = found.setdefault((name, kind), {})
                    of_kind[count] = of_kind.get(count, ()) + rates
    return [
        CountedRates(name=name, kind=kind, unit=unit, rates=dict(sorted(rates.items())), ceiling=ceilings[kind])
        for (name, kind), rates in found.items()
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Projection:
    """The projected rate for ``clients``, in bytes a second.

    ``low`` and ``high`` are its bounds. ``median`` is missing in two cases: the bounds differ by more than a factor of
    two, or the measured rates show no ceiling. ``unavailable_reason`` then states the reason. Without a measured
    ceiling, ``low`` is at most the rate of the largest measured count, and ``high`` at least the rate of linear growth.
    A declared ceiling limits all three rates.

    ``model`` is the model with the smallest ``leave_one_out_error``. To compute this error, each client count is left
    out of the fit in turn, and the logarithm of its rate is compared with the model's value. The error is the root mean
    square.
    """

    clients: Count
    unavailable_reason: str
    model: str
    median: NotNegative | None
    low: NotNegative
    high: NotNegative
    leave_one_out_error: NotNegative

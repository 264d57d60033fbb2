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
    """The measured rates of one kind of operation (saves or loads), by client count.

    ``rates`` is {client count: rates in bytes a second}, with one rate for each operation. ``unit`` states what is
    counted as a client: ranks or hosts. ``ceiling`` is the maximum rate that the vendor declares, in bytes a second; 0
    if the vendor declares none.
    """

    name: str
    kind: OperationKind
    unit: ClientUnit
    rates: Mapping[int, tuple[float, ...]]
    ceiling: float


def rates_of(found: Scaling, kind: OperationKind) -> dict[int, tuple[float, ...]]:
    """Return {client count: rates of the saves or loads in bytes a second} of a run that increased its client count.

    ``found`` is the measurement of this run. ``kind`` selects saves or loads.
    """
    return {
        count.clients: tuple(
            count.bytes / o.seconds for o in (count.saves if kind == "save" else count.loads) if o.seconds > 0
        )
        for count in found.counts
    }


def counted_rates(measurements: Iterable[Measurement], ceilings: Mapping[OperationKind, float]) -> list[CountedRates]:
    """Return the rates by client count: one entry for each kind of operation of each model, engine and strategy.

    If at least one measurement has several hosts, a client is a host; otherwise, a client is a rank. Only saves and
    loads of a complete checkpoint are used. If a run increased the number of these clients in steps, only the rates of
    the steps are used. ``ceilings`` is {kind: maximum rate that the vendor declares, in bytes a second}.
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
    """The projected rate of ``clients`` clients, in bytes a second.

    ``low`` and ``high`` are the bounds of the rate. ``median`` is None if the bounds differ by more than a factor of
    two, or if the measured rates show no ceiling. In these cases, ``unavailable_reason`` states the reason. Without a
    measured ceiling, ``low`` is at most the rate of the largest measured count, and ``high`` is at least the rate of
    linear growth. A declared ceiling, or the network of the clients, limits all three rates.

    ``model`` is the model with the smallest ``leave_one_out_error``. To compute this error, each client count is left
    out of the fit in turn. The logarithm of its measured rate is then compared with the value of the fitted model. The
    error is the root mean square of these differences.
    """

    clients: Count
    unavailable_reason: str
    model: str
    median: NotNegative | None
    low: NotNegative
    high: NotNegative
    leave_one_out_error: NotNegative

"""Rates of saves and loads by how many clients had part in them, over the measurements of several runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pytest_ckpt.facts.measurement import Measurement, OperationKind

Unit = Literal["hosts", "ranks"]
KINDS: tuple[OperationKind, ...] = ("save", "load")


@dataclass(frozen=True, kw_only=True, slots=True)
class Scaling:
    """Rates in bytes a second, one each operation, by count of clients (``unit``), for one way to save or load."""

    name: str
    kind: OperationKind
    unit: Unit
    rates: Mapping[int, tuple[float, ...]]


def scalings(measurements: Iterable[Measurement]) -> list[Scaling]:
    """Return rates by clients for each model, engine and strategy.

    Clients are hosts where some measurement has several, else ranks. Only whole saves and loads count.
    """
    measurements = list(measurements)
    unit: Unit = "hosts" if any(len(set(m.hosts)) > 1 for m in measurements) else "ranks"
    found: dict[tuple[str, OperationKind], dict[int, tuple[float, ...]]] = {}
    for m in measurements:
        count = len(set(m.hosts)) if unit == "hosts" else m.processes
        name = "/".join((m.model, m.subject.engine, m.subject.strategy))
        for kind in KINDS:
            of_kind = tuple(m.bytes / o.seconds for o in m.whole(kind) if o.seconds > 0)
            if of_kind:
                rates = found.setdefault((name, kind), {})
                rates[count] = rates.get(count, ()) + of_kind
    return [
        Scaling(name=name, kind=kind, unit=unit, rates=dict(sorted(rates.items())))
        for (name, kind), rates in found.items()
    ]

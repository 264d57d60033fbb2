"""Judge of scaling: twice the clients get nearly twice as much, until the storage gives what is stated. Pure."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from pytest_ckpt.analysis.client_counts import rates_of
from pytest_ckpt.judging.decision import Decision, measured_as
from pytest_ckpt.judging.restore_patterns import not_cold, without_pattern, wrong_bytes
from pytest_ckpt.support.units import counted, format_bytes, format_percent, format_rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ckpt.facts.measurement import ClientCount, Measurement, OperationKind, Scaling
    from pytest_ckpt.sizing.limits import ClusterLimits

MAXIMUM_LOST = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Growth:
    """From ``fewer`` clients to ``more``: bytes a second before and after, medians. ``ceiling`` is 0 where none is."""

    kind: OperationKind
    fewer: int
    more: int
    before: float
    after: float
    ceiling: float

    @property
    def lost(self) -> float:
        """The share of each doubling that is lost: 0 where twice the clients get twice as much, 0.5 where no more.

        At the ceiling that is stated nothing is lost.
        """
        if self.ceiling and self.after >= self.ceiling:
            return 0.0
        doubled = math.pow(self.after / self.before, 1 / math.log2(self.more / self.fewer))
        return 1 - doubled / 2


def growths(found: Scaling) -> Iterator[Growth]:
    """Yield every step from one count of clients to the next, of saves and of loads."""
    ceilings: dict[OperationKind, float] = {"save": found.save_ceiling, "load": found.load_ceiling}
    for kind, ceiling in ceilings.items():
        middles = {clients: median(rates) for clients, rates in rates_of(found, kind).items() if rates}
        for (fewer, before), (more, after) in itertools.pairwise(middles.items()):
            yield Growth(kind=kind, fewer=fewer, more=more, before=before, after=after, ceiling=ceiling)


def judge_scaling(measurement: Measurement, _limits: ClusterLimits, *, maximum: float = MAXIMUM_LOST) -> Decision:
    """Twice the clients get at least 2 - 2 x ``maximum`` times as much, in saves and in loads, up to the ceiling."""
    found = measurement.patterns.scaling if measurement.patterns else None
    if found is None:
        return without_pattern(measurement, ("scaling",))
    detail = tuple(_described(found))
    if wrong := wrong_bytes(found.integrity, detail):
        return wrong
    for count in found.counts:
        for load in count.loads:
            which = f"a load by {_clients(found, count)}"
            if unproven := not_cold(which, load.resident_bytes, load.mapped_bytes, detail, measurement.cache):
                return unproven
    worst = max(growths(found), key=lambda growth: growth.lost)
    needed = math.pow(2 * (1 - maximum), math.log2(worst.more / worst.fewer))
    because = (
        f"From {worst.fewer} to {counted(worst.more, found.unit[:-1])} {worst.kind}s grew "
        f"{worst.after / worst.before:.2f} x, to {format_rate(worst.after)} (at least {needed:.2g} x"
        f"{', up to the ceiling of ' + format_rate(worst.ceiling) if worst.ceiling else ''}): "
        f"{format_percent(max(worst.lost, 0.0))} of a doubling lost, the most of all steps."
    )
    return measured_as(
        "over limit" if worst.lost > maximum else "met", max(worst.lost, 0.0), maximum, "fraction", because, detail
    )


def _clients(found: Scaling, count: ClientCount) -> str:
    return counted(count.clients, found.unit[:-1])


def _described(found: Scaling) -> Iterator[str]:
    saves, loads = rates_of(found, "save"), rates_of(found, "load")
    for count in found.counts:
        ranks = f" ({counted(count.ranks, 'rank')})" if found.unit == "hosts" else ""
        yield (
            f"{_clients(found, count)}{ranks}: {format_bytes(count.bytes)} in {counted(len(count.saves), 'save')} and "
            f"as many loads; medians {_middle(saves[count.clients])} saved, {_middle(loads[count.clients])} loaded"
        )
    stated = {"saves": found.save_ceiling, "loads": found.load_ceiling}
    listed = [f"{format_rate(ceiling)} for {kinds}" for kinds, ceiling in stated.items() if ceiling]
    yield f"ceiling that the vendor states: {' and '.join(listed) or 'none'}"


def _middle(rates: tuple[float, ...]) -> str:
    return format_rate(median(rates)) if rates else "nothing"

"""Scaling: the rates of saves and loads with increasing client counts."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from pytest_ckpt.analysis.client_counts import KINDS, rates_of
from pytest_ckpt.judging.decision import Decision, measured_as
from pytest_ckpt.judging.loads import missing_bytes, not_cold, wrong_bytes
from pytest_ckpt.judging.requirement import requirement
from pytest_ckpt.sizing.patterns import saves_complete_checkpoints
from pytest_ckpt.support.units import counted, format_bytes, format_percent, format_rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ckpt.facts.measurement import ClientCount, Measurement, OperationKind, Scaling
    from pytest_ckpt.sizing.limits import ClusterLimits, StatedLimits


@dataclass(frozen=True, kw_only=True, slots=True)
class Growth:
    """One step of the measurement: from ``fewer`` clients to ``more`` clients. All rates are in bytes per second.

    ``before`` is the median rate with ``fewer`` clients; ``after`` is the median rate with ``more`` clients.
    ``ceiling`` is the maximum rate that the vendor states; 0 if none is stated.
    """

    kind: OperationKind
    fewer: int
    more: int
    before: float
    after: float
    ceiling: float

    @property
    def lost(self) -> float:
        """The share of the expected rate that is lost when the number of clients doubles.

        The share is 0 if the rate doubles, and 0.5 if the rate does not change. It is also 0 if ``after`` reaches the
        ceiling.
        """
        if self.ceiling and self.after >= self.ceiling:
            return 0.0
        doubled = math.pow(self.after / self.before, 1 / math.log2(self.more / self.fewer))
        return 1 - doubled / 2


@requirement(
    "SCALING",
    title="Twice the clients reach nearly twice the rate",
    severity="advisory",
    maximum=0.1,
    units=("fraction",),
    ratios=("fraction",),
    hidden_by_load=True,
    figure="the largest share of a doubling that was lost, over saves and loads",
    limit="{maximum:g}: twice the clients get 1.8 times the rate, up to --ckpt-suite=scaling:vendor-max-rate",
    source="our proposal: at least 1.8 times the rate, up to the maximum that the vendor states",
    requested_by=lambda settings: settings.includes_scaling,
    of_strategy=saves_complete_checkpoints,
    next_step="Find the part that ends the growth: links of clients, links of servers, or a shared part "
    "(a directory, a metadata server). If growth ends at the rate that the vendor specifies, state that rate with "
    "--ckpt-suite=scaling:vendor-max-rate.",
    help="SCALING: twice the clients do not get twice as much",
)
def test_throughput_grows_with_the_clients(
    scaling: Scaling, measurement: Measurement, limits: ClusterLimits, maximum: float
) -> Decision:
    """With twice the clients, saves and loads reach at least 1.8 times the rate, up to the stated maximum of the
    storage.

    In each of three rounds, 1 client saves and loads its shards of the checkpoint, then 2, 4 … clients do so
    concurrently. The other clients wait. Clients are hosts if several hosts take part, otherwise ranks. The median rate
    at each client count is compared with the median at the next count. Above the maximum rate that the vendor states
    (--ckpt-suite=scaling:vendor-max-rate) no growth is required. Loads are uncached and every byte is compared.
    Advisory: for a cluster, the total rate of all clients decides. The growth indicates the total rate of more clients.
    """
    detail = tuple(_described(scaling, limits.stated))
    if wrong := wrong_bytes(scaling.integrity, detail) or missing_bytes(scaling.integrity, detail):
        return wrong
    for count in scaling.counts:
        for load in count.loads:
            which = f"a load by {_clients(scaling, count)}"
            if unproven := not_cold(which, load.resident_bytes, load.mapped_bytes, detail, measurement.cache):
                return unproven
    worst = max(growths(scaling, limits.stated), key=lambda growth: growth.lost)
    needed = math.pow(2 * (1 - maximum), math.log2(worst.more / worst.fewer))
    because = (
        f"From {worst.fewer} to {counted(worst.more, scaling.unit[:-1])} {worst.kind}s grew "
        f"{worst.after / worst.before:.2f} x, to {format_rate(worst.after)} (at least {needed:.2g} x"
        f"{', up to the ceiling of ' + format_rate(worst.ceiling) if worst.ceiling else ''}): "
        f"{format_percent(max(worst.lost, 0.0))} of a doubling lost, the most of all steps."
    )
    return measured_as(
        "over limit" if worst.lost > maximum else "met", max(worst.lost, 0.0), maximum, "fraction", because, detail
    )


def growths(found: Scaling, stated: StatedLimits) -> Iterator[Growth]:
    """Yield a `Growth` for each client count and the next one, for saves and for loads."""
    for kind in KINDS:
        ceiling = stated.bytes_per_second(kind)
        middles = {clients: median(rates) for clients, rates in rates_of(found, kind).items() if rates}
        for (fewer, before), (more, after) in itertools.pairwise(middles.items()):
            yield Growth(kind=kind, fewer=fewer, more=more, before=before, after=after, ceiling=ceiling)


def _clients(found: Scaling, count: ClientCount) -> str:
    return counted(count.clients, found.unit[:-1])


def _described(found: Scaling, stated: StatedLimits) -> Iterator[str]:
    saves, loads = rates_of(found, "save"), rates_of(found, "load")
    for count in found.counts:
        ranks = f" ({counted(count.ranks, 'rank')})" if found.unit == "hosts" else ""
        yield (
            f"{_clients(found, count)}{ranks}: {format_bytes(count.bytes)} in {counted(len(count.saves), 'save')} and "
            f"as many loads; medians {_middle(saves[count.clients])} saved, {_middle(loads[count.clients])} loaded"
        )
    ceilings = {f"{kind}s": stated.bytes_per_second(kind) for kind in KINDS}
    listed = [f"{format_rate(ceiling)} for {kinds}" for kinds, ceiling in ceilings.items() if ceiling]
    yield f"ceiling that the vendor states: {' and '.join(listed) or 'none'}"


def _middle(rates: tuple[float, ...]) -> str:
    return format_rate(median(rates)) if rates else "nothing"

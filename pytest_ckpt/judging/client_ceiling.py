"""Whether the clients, rather than the storage, caused a late save. Pure.

The rate that a save limit requires is compared with the clients' highest rate without storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.judging.decision import Decision, not_decided
from pytest_ckpt.support.units import counted, format_rate, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.measurement import Measurement, Operation


def host_rate(operation: Operation, ranks: Sequence[int], rank_bytes: Sequence[int]) -> float | None:
    """Return the rate of a host's ``ranks`` in bytes a second: their bytes, divided by the time of the slowest.

    Return None if the time of a rank is not recorded.
    """
    if max(ranks) >= min(len(operation.rank_seconds), len(rank_bytes)):
        return None
    seconds = max(operation.rank_seconds[rank] for rank in ranks)
    return sum(rank_bytes[rank] for rank in ranks) / seconds if seconds > 0 else None


def ranks_by_host(measurement: Measurement) -> dict[str, list[int]]:
    """Return {host: numbers of its ranks}."""
    of_host: dict[str, list[int]] = {}
    for rank in measurement.ranks:
        of_host.setdefault(rank.host, []).append(rank.rank)
    return of_host


def clients_cannot(measurement: Measurement, limit: float) -> str:
    """Return a phrase on the host whose rate is furthest below the rate that a save limit (in seconds) requires.

    The phrase is empty if every host is fast enough. The rate of a host is its highest rate without storage, or the
    rate of its fastest save if that is higher.
    """
    of_host, saves = ranks_by_host(measurement), measurement.whole("save")
    gaps = []
    for ceiling in measurement.client_ceilings:
        ranks = of_host.get(ceiling.host, [])
        rates = [host_rate(o, ranks, measurement.rank_bytes) for o in saves] if ranks else []
        fastest = max(filter(None, rates), default=0.0)
        needed = sum(measurement.rank_bytes[rank] for rank in ranks) / limit
        highest = max(fastest, ceiling.makes_bytes_per_second)
        if needed > highest:
            gaps.append((needed / highest, needed, ceiling, fastest))
    if not gaps:
        return ""
    _, needed, worst, fastest = max(gaps, key=lambda gap: gap[0])
    of_save = f", and reached {format_rate(fastest)} in a save" if fastest > worst.makes_bytes_per_second else ""
    others = f" ({counted(len(gaps) - 1, 'more host')} as well)" if len(gaps) > 1 else ""
    return (
        f"{worst.host} made {format_rate(worst.makes_bytes_per_second)} of a checkpoint's content with "
        f"{counted(worst.ranks, 'rank')} without any storage{of_save}, and {format_rate(needed)} are needed to save in "
        f"{format_seconds(limit)}{others}"
    )


def too_slow_clients(measurement: Measurement, limit: float, late: str, detail: Sequence[str]) -> Decision | None:
    """Return "not run" for a late save if the clients cannot make its content within ``limit`` seconds, else None.

    ``late`` is the sentence on the late save.
    """
    cannot = clients_cannot(measurement, limit)
    if not cannot:
        return None
    because = (
        f"The clients cannot: {cannot}. {late} The rate of the storage with more or faster clients was not measured."
    )
    return not_decided("client too slow", because, detail)

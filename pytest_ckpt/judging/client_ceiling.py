"""Whether the clients could have met a save limit: their ceiling, compared with the rate that is needed. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.support.units import counted, format_rate, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_ckpt.facts.client_ceiling import ClientCeiling
    from pytest_ckpt.facts.measurement import Measurement, Operation


def host_rate(operation: Operation, ranks: Sequence[int], rank_bytes: Sequence[int]) -> float | None:
    """Return the bytes a second of a host's ranks, until the slowest of them ended; None if a rank is not recorded."""
    if max(ranks) >= min(len(operation.rank_seconds), len(rank_bytes)):
        return None
    seconds = max(operation.rank_seconds[rank] for rank in ranks)
    return sum(rank_bytes[rank] for rank in ranks) / seconds if seconds > 0 else None


def ranks_by_host(measurement: Measurement) -> dict[str, list[int]]:
    """Return the ranks of each host, in their order."""
    of_host: dict[str, list[int]] = {}
    for rank in measurement.ranks:
        of_host.setdefault(rank.host, []).append(rank.rank)
    return of_host


def _insufficient(ceilings: Iterable[ClientCeiling], host_bytes: Mapping[str, int], seconds: float) -> str:
    gaps = [
        (host_bytes[c.host] / seconds / c.makes_bytes_per_second, c)
        for c in ceilings
        if host_bytes.get(c.host, 0) / seconds > c.makes_bytes_per_second
    ]
    if not gaps:
        return ""
    _, worst = max(gaps, key=lambda gap: gap[0])
    others = f" ({counted(len(gaps) - 1, 'more host')} as well)" if len(gaps) > 1 else ""
    return (
        f"{worst.host} makes at most {format_rate(worst.makes_bytes_per_second)} of a checkpoint's content with "
        f"{counted(worst.ranks, 'rank')}, without any storage, and {format_rate(host_bytes[worst.host] / seconds)} are "
        f"needed to save in {format_seconds(seconds)}{others}"
    )


def clients_cannot(measurement: Measurement, limit: float) -> str:
    """Return a phrase on the host whose ranks lack most to save within a limit in seconds; empty if each host can.

    A host that was faster in a save of its own than its measured ceiling proves a higher ceiling.
    """
    of_host = ranks_by_host(measurement)
    saves = measurement.whole("save")
    highest = {
        host: max((rate for o in saves if (rate := host_rate(o, ranks, measurement.rank_bytes))), default=0.0)
        for host, ranks in of_host.items()
    }
    ceilings = [c for c in measurement.client_ceilings if highest.get(c.host, 0.0) < c.makes_bytes_per_second]
    host_bytes = {host: sum(measurement.rank_bytes[rank] for rank in ranks) for host, ranks in of_host.items()}
    return _insufficient(ceilings, host_bytes, limit)

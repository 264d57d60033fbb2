"""Whether the clients, rather than the storage, caused a late save or load. Pure.

The rate that a limit requires is compared with the clients' highest rate without storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.judging.decision import Decision, not_decided
from pytest_ckpt.support.units import counted, format_rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.measurement import LoadPattern, Measurement, Operation, OperationKind


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


def clients_cannot(
    measurement: Measurement, kind: OperationKind, limit: float, pattern: LoadPattern | None = None
) -> str:
    """Return a phrase on the host whose rate is furthest below the rate that a limit (in seconds) requires.

    The phrase is empty if every host is fast enough. The rate of a host is its highest rate without storage, or the
    rate of its fastest save or load (``kind``) if that is higher. ``pattern`` are loads with other bytes for each rank.
    """
    of_host, operations = ranks_by_host(measurement), measurement.whole(kind)
    rank_bytes = pattern.rank_bytes if pattern else measurement.rank_bytes
    others = pattern.operations if pattern else ()
    gaps = []
    for ceiling in measurement.client_ceilings:
        ranks = [rank for rank in of_host.get(ceiling.host, []) if rank < len(rank_bytes)]
        moved = (*((o, measurement.rank_bytes) for o in operations), *((o, rank_bytes) for o in others))
        rates = [host_rate(o, ranks, each) for o, each in moved] if ranks else []
        fastest = max(filter(None, rates), default=0.0)
        needed = sum(rank_bytes[rank] for rank in ranks) / limit
        alone = ceiling.makes_bytes_per_second if kind == "save" else ceiling.compares_bytes_per_second
        highest = max(fastest, alone)
        if needed > highest:
            gaps.append((needed / highest, needed, ceiling, fastest))
    if not gaps:
        return ""
    _, needed, worst, fastest = max(gaps, key=lambda gap: gap[0])
    does, alone = (
        ("made", worst.makes_bytes_per_second) if kind == "save" else ("compared", worst.compares_bytes_per_second)
    )
    reached = f", and reached {format_rate(fastest)} in a {kind}" if fastest > alone else ""
    more = f" ({counted(len(gaps) - 1, 'more host')} as well)" if len(gaps) > 1 else ""
    return (
        f"{worst.host} {does} {format_rate(alone)} of a checkpoint's content with {counted(worst.ranks, 'rank')} "
        f"without any storage{reached}, and {format_rate(needed)} are needed to meet the limit{more}"
    )


def too_slow_clients(
    measurement: Measurement,
    kind: OperationKind,
    limit: float,
    late: str,
    detail: Sequence[str],
    pattern: LoadPattern | None = None,
) -> Decision | None:
    """Return "not run" for a late save or load if the clients cannot handle its content within ``limit`` seconds.

    Return None if they can. ``late`` is the sentence on the late operation. ``pattern`` are loads with other bytes for
    each rank than those of the measurement.
    """
    cannot = clients_cannot(measurement, kind, limit, pattern)
    if not cannot:
        return None
    because = (
        f"The clients cannot: {cannot}. {late} The rate of the storage with more or faster clients was not measured."
    )
    return not_decided("client too slow", because, detail)

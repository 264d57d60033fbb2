"""Whether a save or load was late because of the clients, and not because of the storage. Pure.

The rate that a limit requires is compared with the clients' highest rate without storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.judging.decision import Decision, measured_as, not_decided
from pytest_ckpt.support.units import counted, format_rate, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.measurement import LoadPattern, Measurement, Operation, OperationKind


def host_rate(operation: Operation, ranks: Sequence[int], rank_bytes: Sequence[int]) -> float | None:
    """Return the rate of a host's ``ranks`` in bytes a second: their bytes, divided by the time of their slowest rank.

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


def _clients_cannot(
    measurement: Measurement, kind: OperationKind, needed: float, pattern: LoadPattern | None = None
) -> str:
    """Return a phrase on the host that is too slow by the largest factor; empty if every host is fast enough.

    ``needed`` is the rate that all hosts must reach together, in bytes per second. A host must reach a part of this
    rate: the share of its ranks in the bytes of all ranks. The highest rate of a host is its rate without storage, or
    the rate of its fastest save or load (``kind``) if that rate is higher. If the late load is part of a pattern,
    ``pattern`` is the result of this pattern, with its own bytes for each rank.
    """
    of_host = ranks_by_host(measurement)
    rank_bytes = pattern.rank_bytes if pattern else measurement.rank_bytes
    moved = [(operation, measurement.rank_bytes) for operation in measurement.whole(kind)]
    moved += [(operation, rank_bytes) for operation in (pattern.operations if pattern else ())]
    gaps = []
    for ceiling in measurement.client_ceilings:
        ranks = [rank for rank in of_host.get(ceiling.host, []) if rank < len(rank_bytes)]
        rates = [host_rate(operation, ranks, each) for operation, each in moved] if ranks else []
        fastest = max(filter(None, rates), default=0.0)
        part = needed * sum(rank_bytes[rank] for rank in ranks) / sum(rank_bytes)
        highest = max(fastest, ceiling.rate(kind))
        if part > highest:
            gaps.append((part / highest, part, ceiling, fastest))
    if not gaps:
        return ""
    _, part, worst, fastest = max(gaps, key=lambda gap: gap[0])
    alone, does = worst.rate(kind), "made" if kind == "save" else "compared"
    reached = f", and reached {format_rate(fastest)} in a {kind}" if fastest > alone else ""
    more = f" ({counted(len(gaps) - 1, 'more host')} as well)" if len(gaps) > 1 else ""
    return (
        f"{worst.host} {does} {format_rate(alone)} of a checkpoint's content with {counted(worst.ranks, 'rank')} "
        f"without any storage{reached}, and {format_rate(part)} are needed to meet the limit{more}"
    )


def too_slow_clients(
    measurement: Measurement,
    kind: OperationKind,
    needed: float,
    late: str,
    detail: Sequence[str],
    pattern: LoadPattern | None = None,
) -> Decision | None:
    """Return "not run" for a late save or load if the clients cannot reach the rate ``needed``, else None.

    ``needed`` is the rate of all ranks together, in bytes per second. ``late`` is the sentence on the late operation.
    If the late load is part of a pattern, ``pattern`` is the result of this pattern.
    """
    cannot = _clients_cannot(measurement, kind, needed, pattern)
    if not cannot:
        return None
    because = (
        f"The clients cannot: {cannot}. {late} The rate of the storage with more or faster clients was not measured."
    )
    return not_decided("client too slow", because, detail)


def over_limit(
    measurement: Measurement,
    kind: OperationKind,
    seconds: float,
    limit: float,
    because: str,
    detail: Sequence[str],
    *,
    needed: float | None = None,
    pattern: LoadPattern | None = None,
) -> Decision:
    """Return "failed" for a save or load of ``seconds`` that exceeds ``limit``, or "not run" if the clients are slow.

    The clients are slow if they cannot reach the rate ``needed``, in bytes per second. If ``needed`` is None, it is the
    rate that moves a checkpoint, or the bytes of ``pattern``, within the limit.
    """
    if needed is None:
        needed = sum((pattern or measurement).rank_bytes) / limit
    return too_slow_clients(measurement, kind, needed, because, detail, pattern) or measured_as(
        "over limit", seconds, limit, "s", because, detail
    )


def compared_too_slowly(load: str, took: str, allowed: str, stalled_seconds: float, detail: Sequence[str]) -> Decision:
    """Return "not run" for a late load, because the client compared bytes too slowly.

    Such a load does not count against the storage. ``load`` names the load. ``took`` and ``allowed`` are its time and
    its limit, as text.
    """
    because = (
        f"The client compared too slowly: {load} took {took}, the limit is {allowed}, and for "
        f"{format_seconds(stalled_seconds)} of it reads waited until bytes that had arrived were compared."
    )
    return not_decided("client too slow", because, detail)

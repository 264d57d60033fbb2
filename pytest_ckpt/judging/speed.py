"""The judgement that all requirements of time share: every operation within a limit. Pure."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from pytest_ckpt.judging.decision import Decision, measured_as, not_decided
from pytest_ckpt.support.units import compared, counted, format_count, format_rate, format_ratio, format_seconds

if TYPE_CHECKING:
    from pytest_ckpt.facts.measurement import Operation
    from pytest_ckpt.judging.given import Operations

_TOLD_STALL = 0.01


def within(done: Operations, full_limit: float, reason: str) -> Decision:
    """Every operation within a limit in seconds, which is for the full size; ``reason`` is where that comes from."""
    kind, operations, measurement = done.kind, done.all, done.of
    planned = measurement.operations_planned
    share = measurement.share
    limit = full_limit * share
    slowest = max(operations, key=lambda operation: operation.seconds)
    worst = slowest.seconds
    # A restore of a chain reads more than a checkpoint, and a delta is less: each within the same time.
    needed = measurement.full_bytes / full_limit * (measurement.bytes_of(slowest) / measurement.bytes)
    origin = [reason]
    if share < 1:
        origin.append(
            f"the run wrote {share:.4g} of the full size, so the limit is {format_seconds(limit)}: the bandwidth, "
            f"{format_rate(needed)}, is that of the full size"
        )
    seconds = [o.seconds for o in operations]
    rank0 = [o.rank0_seconds for o in operations if o.rank0_seconds is not None]
    detail = (
        f"slowest {kind} {slowest.index}: "
        + ", ".join([_rank(slowest), *(f"{name} {format_seconds(value)}" for name, value in slowest.phases.items())]),
        f"{kind}s: mean {format_seconds(statistics.fmean(seconds))}, "
        f"median {format_seconds(statistics.median(seconds))}, maximum {format_seconds(max(seconds))}"
        + (f"; rank 0 by itself at most {format_seconds(max(rank0))}" if rank0 else ""),
        f"{format_rate(slowest.bytes_per_second)} where {format_rate(needed)} are needed",
        *origin,
    )
    short = [o for o in operations if o.bytes != measurement.bytes_of(o)]
    if short:
        because = (
            f"{kind.capitalize()} {short[0].index} brought {format_count(short[0].bytes)} of "
            f"{counted(measurement.bytes_of(short[0]), 'byte')}: its time is not that of a whole {kind}."
        )
        return Decision(outcome="failed", reason="missing bytes", because=because, limit=limit, unit="s", detail=detail)
    took, allowed = compared(worst, limit)
    over = [o for o in operations if o.seconds > limit]
    # What a client that compares too slowly has taken is not the storage's.
    blamed = [o for o in over if o.seconds - _stalled(o) > limit]
    if over and not blamed:
        because = (
            f"The client compared too slowly: {kind} {slowest.index} took {took}, the limit is {allowed}, and for "
            f"{format_seconds(_stalled(slowest))} of it reads waited until bytes that had arrived were compared."
        )
        return not_decided("client too slow", because, detail)
    if blamed:
        slowest = max(blamed, key=lambda o: o.seconds)
        worst = slowest.seconds
        took, allowed = compared(worst, limit)
        because = (
            f"{len(blamed)} of {counted(planned, kind)} exceeded the limit of {allowed}; slowest: {kind} "
            f"{slowest.index}, {took} ({format_ratio(worst / limit)} x the limit), {_where(slowest)}.{_share(slowest)}"
        )
        return measured_as("over limit", worst, limit, "s", because, detail)
    because = f"Slowest of {counted(planned, kind)}: {took}; limit {allowed}.{_share(slowest)}"
    return measured_as("met", worst, limit, "s", because, detail)


def _stalled(operation: Operation) -> float:
    return operation.stalled_seconds or 0.0


def _share(operation: Operation) -> str:
    """Say how long reads waited for the client, where that is a share that matters."""
    if _stalled(operation) < _TOLD_STALL * operation.seconds:
        return ""
    return f" For {format_seconds(_stalled(operation))} of it reads waited for the client to compare."


def _where(operation: Operation) -> str:
    if not operation.phases:
        return f"on {_rank(operation)}"
    return f"most of it in {max(operation.phases, key=operation.phases.__getitem__)} on {_rank(operation)}"


def _rank(operation: Operation) -> str:
    return "a rank that is not recorded" if operation.slowest_rank is None else f"rank {operation.slowest_rank}"

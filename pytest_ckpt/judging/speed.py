"""The decision on a time limit that every operation must meet. Several requirements share this decision. Pure."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ckpt.analysis.acceptance import CONFIDENCE, SHARE, shown_share, tolerance, trials_for
from pytest_ckpt.facts.measurement import clients_of_run
from pytest_ckpt.facts.settings import Assurance
from pytest_ckpt.facts.verdict import AcceptanceBound, TimeEstimate
from pytest_ckpt.judging.client_ceiling import compared_too_slowly, too_slow_clients
from pytest_ckpt.judging.decision import Decision, measured_as, not_decided
from pytest_ckpt.support.units import (
    compared,
    counted,
    format_count,
    format_percent,
    format_rate,
    format_ratio,
    format_seconds,
    format_share,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ckpt.facts.measurement import Measurement, Operation, OperationKind
    from pytest_ckpt.judging.given import Operations

HOW_SURE = "how sure: "
"""The prefix of detail lines about operations that were not measured."""

_REPORTED_STALL = 0.01
_REPORTED_STARVED = 0.1


def within(done: Operations, full_limit: float, reason: str, assurance: Assurance | None) -> Decision:
    """Return the decision on whether every operation met a time limit.

    - ``full_limit``: the limit in seconds for checkpoints of full size. It is multiplied by the scale of the run.
    - ``reason``: the origin of the limit.
    - ``assurance``: the required confidence about operations that were not measured; None if not required. If its
      sampling plan permits misses, the slowest operations may miss the limit. The measured value is then the slowest
      operation that must meet the limit.
    """
    kind, operations, measurement = done.kind, done.all, done.of
    planned = measurement.operations_planned
    share = measurement.share
    limit = full_limit * share
    allowed_misses = misses_allowed(assurance, len(operations))
    by_seconds = sorted(operations, key=lambda operation: operation.seconds, reverse=True)
    slowest = by_seconds[0]
    worst = by_seconds[allowed_misses].seconds
    # A restore of a chain reads more than a checkpoint, and a delta is smaller; the same limit applies to both.
    needed = measurement.full_bytes / full_limit * (measurement.bytes_of(slowest) / measurement.bytes)
    origin = [reason]
    if share < 1:
        origin.append(
            f"the run wrote {share:.4g} of the full size, so the limit is {format_seconds(limit)}: the bandwidth, "
            f"{format_rate(needed)}, is the bandwidth at full size"
        )
    seconds = [o.seconds for o in operations]
    rank0 = [o.rank0_seconds for o in operations if o.rank0_seconds is not None]
    detail = (
        f"slowest {kind} {slowest.index}: "
        + ", ".join([_rank(slowest), *(f"{name} {format_seconds(value)}" for name, value in slowest.phases.items())]),
        f"{kind}s: mean {format_seconds(statistics.fmean(seconds))}, "
        f"median {format_seconds(statistics.median(seconds))}, maximum {format_seconds(max(seconds))}"
        + (f"; rank 0 by itself at most {format_seconds(max(rank0))}" if rank0 else ""),
        f"{format_rate(slowest.bytes_per_second)}{_rate_of_client(slowest, measurement)} where {format_rate(needed)} "
        "are needed",
        *origin,
    )
    short = [o for o in operations if o.bytes != measurement.bytes_of(o)]
    if short:
        because = (
            f"{kind.capitalize()} {short[0].index} brought {format_count(short[0].bytes)} of "
            f"{counted(measurement.bytes_of(short[0]), 'byte')}: its time is not the time of a complete {kind}."
        )
        return Decision(outcome="failed", reason="missing bytes", because=because, limit=limit, unit="s", detail=detail)
    over = [o for o in by_seconds if o.seconds > limit]
    # If the client compares or copies too slowly, its time does not count against the storage. Waits for a CPU are
    # reported but do not excuse a failure, because the storage may be busy for another thread during the wait.
    blamed = [o for o in over if o.seconds - _stalled(o) - _copying(o) > limit]
    is_met, is_failed = len(over) <= allowed_misses, len(blamed) > allowed_misses
    if not is_met and not is_failed:
        delayed = next(o for o in over if o not in blamed)
        took, allowed = compared(delayed.seconds, limit)
        late = f"{kind} {delayed.index}"
        if kind == "load":
            return compared_too_slowly(late, took, allowed, _stalled(delayed), detail)
        because = (
            f"The client copied too slowly: {late} took {took}, the limit is {allowed}, and for "
            f"{format_seconds(_copying(delayed))} of it the state was copied in memory, before the storage had "
            "anything to do."
        )
        return not_decided("client too slow", because, detail)
    # If no confidence is required, the bound uses the usual share.
    wanted = assurance or Assurance(confidence=CONFIDENCE, share=SHARE)
    # Operations that the client delayed count as misses here, which lowers the bound; a verdict that is met always has
    # a bound.
    is_delayed = not is_met and len(over) > len(blamed)
    bound = _bound(operations, limit, wanted.confidence, allowed_misses, is_delayed=is_delayed)
    estimate = _estimate(operations, wanted)
    detail += tuple(HOW_SURE + sentence for sentence in _confidence(kind, limit, bound, estimate))
    if is_failed:
        slowest = blamed[0]
        took, allowed = compared(slowest.seconds, limit)
        late = f"{kind.capitalize()} {slowest.index} took {took}, the limit is {allowed}."
        if decided := too_slow_clients(measurement, kind, measurement.bytes_of(slowest) / limit, late, detail):
            return decided
        plan = f", {allowed_misses} allowed" if allowed_misses else ""
        certain = sum(o.least_seconds > limit for o in blamed)
        because = (
            f"{certain} of {counted(planned, kind)} exceeded the limit of {allowed}{plan}; "
            f"slowest: {kind} {slowest.index}, {took} ({format_ratio(slowest.seconds / limit)} x the limit), "
            f"{_slowest_phase(slowest)}.{_share(slowest)}"
        )
        decisive = blamed[allowed_misses].seconds
        failed = measured_as("over limit", decisive, limit, "s", because, detail)
        return replace(failed, bound=bound, estimate=estimate)
    because = _met(done, limit, by_seconds, allowed_misses, assurance)
    met = measured_as("met", worst, limit, "s", because, detail)
    return replace(met, bound=bound, estimate=estimate)


def _met(
    done: Operations,
    limit: float,
    by_seconds: Sequence[Operation],
    allowed_misses: int,
    assurance: Assurance | None,
) -> str:
    """Return the reason for the outcome "met", as text. ``by_seconds`` begins with the slowest operation."""
    kind, slowest, total = done.kind, by_seconds[0], counted(done.of.operations_planned, done.kind)
    missed = sum(o.seconds > limit for o in by_seconds)
    took, allowed = compared(slowest.seconds, limit)
    if missed:
        because = (
            f"{missed} of {total} missed the limit of {allowed}, {allowed_misses} allowed; slowest: {kind} "
            f"{slowest.index}, {took}, {_slowest_phase(slowest)}.{_share(slowest)}"
        )
    else:
        because = f"Slowest of {total}: {took}; limit {allowed}.{_share(slowest)}"
    if assurance and is_planned(assurance, len(by_seconds)):
        plan = f" ({missed} of {len(by_seconds)} missed, {allowed_misses} allowed)" if allowed_misses else ""
        because += (
            f" {format_share(assurance.confidence)} confident that {format_share(assurance.share)} of {kind}s take at "
            f"most {allowed}{plan}, if {kind}s are independent."
        )
    return because


def is_planned(assurance: Assurance, operations: int) -> bool:
    """Return whether the number of operations is sufficient for the sampling plan of a required confidence."""
    return operations >= trials_for(assurance.share, assurance.confidence, assurance.misses)


def misses_allowed(assurance: Assurance | None, operations: int) -> int:
    """Return how many operations may miss the limit.

    The result is above 0 only if a sampling plan permits misses and its operations are complete.
    """
    return assurance.misses if assurance and assurance.misses and is_planned(assurance, operations) else 0


def _is_exact(operations: Sequence[Operation]) -> bool:
    """Return whether the times of these operations are exact. Some times are only upper bounds."""
    return all(o.at_least_seconds is None for o in operations)


def _bound(
    operations: Sequence[Operation], limit: float, confidence: float, allowed: int, *, is_delayed: bool
) -> AcceptanceBound | None:
    """Return the conclusion from these operations about all other operations; None without a conclusion.

    If ``is_delayed``, an operation is over the limit and the client delayed it. It is then unknown whether the storage
    would meet the limit, and there is no conclusion.
    """
    met, trials = sum(o.seconds <= limit for o in operations), len(operations)
    if not met or is_delayed or not (_is_exact(operations) or met == trials):
        return None
    share = shown_share(trials, met, confidence)
    return AcceptanceBound(trials=trials, met=met, share=share, confidence=confidence, misses_allowed=allowed)


def _estimate(operations: Sequence[Operation], wanted: Assurance) -> TimeEstimate | None:
    """Return an estimate of the time that the share ``wanted.share`` of all operations does not exceed.

    Return None if measured times are only upper bounds, if operations moved different amounts of data, or if there are
    too few operations.
    """
    is_alike = len({o.bytes for o in operations}) == 1
    if not (is_alike and _is_exact(operations)):
        return None
    return tolerance([o.seconds for o in operations], wanted.share, wanted.confidence)


def _confidence(
    kind: OperationKind, limit: float, bound: AcceptanceBound | None, estimate: TimeEstimate | None
) -> Iterator[str]:
    """Yield sentences with the conclusions from the measured operations about all operations."""
    kinds = f"{kind}s"
    if bound:
        allowed = f"; {bound.misses_allowed} may miss it" if bound.misses_allowed else ""
        yield (
            f"{bound.met} of {counted(bound.trials, kind)} met the limit{allowed}. With "
            f"{format_share(bound.confidence)} confidence, at least {format_percent(bound.share)} of all {kinds} meet "
            f"it, if {kinds} are independent. Up to {format_percent(1 - bound.share)} may be late."
        )
    if estimate:
        at_most, allowed = compared(estimate.seconds, limit)
        over = f" This is over the limit of {allowed}." if estimate.seconds > limit else ""
        doubt = " The fit is low, so the estimate is doubtful." if estimate.is_doubtful else ""
        yield (
            f"Estimate: with {format_share(estimate.confidence)} confidence, {format_share(estimate.share)} of {kinds} "
            f"take at most {at_most}, if their times are log-normal (correlation of the probability plot: "
            f"{estimate.fit:.3f}; 1 is a perfect fit).{over}{doubt}"
        )


def _stalled(operation: Operation) -> float:
    return operation.stalled_seconds or 0.0


def _copying(operation: Operation) -> float:
    return operation.copying_seconds or 0.0


def _starved(operation: Operation) -> float:
    return operation.starved_seconds or 0.0


def _share(operation: Operation) -> str:
    """Return sentences on the time in which an operation waited for the client; empty if this time is short."""
    note = ""
    if _stalled(operation) >= _REPORTED_STALL * operation.seconds:
        note += f" For {format_seconds(_stalled(operation))} of it reads waited for the client to compare."
    if _starved(operation) >= _REPORTED_STARVED * operation.seconds:
        note += f" For {format_seconds(_starved(operation))} of it a rank waited for a CPU."
    return note


def _rate_of_client(operation: Operation, measurement: Measurement) -> str:
    """Return a phrase with the rate per client; empty for one client.

    Some storage limits the rate of each client.
    """
    clients, unit = clients_of_run(len(measurement.hosts), measurement.processes)
    if clients < 2:
        return ""
    return f" ({format_rate(operation.bytes_per_second / clients)} for each of {counted(clients, unit[:-1])})"


def _slowest_phase(operation: Operation) -> str:
    if not operation.phases:
        return f"on {_rank(operation)}"
    return f"most of it in {max(operation.phases, key=operation.phases.__getitem__)} on {_rank(operation)}"


def _rank(operation: Operation) -> str:
    return "a rank that is not recorded" if operation.slowest_rank is None else f"rank {operation.slowest_rank}"

"""Judges: (measurement, limits) -> verdict. Pure; each names what was measured, the limit, and the cause."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.units import format_bytes, format_count, format_percent, format_rate, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.records import Failure, Fault, Measurement, Operation, OperationKind, Outcome
    from pytest_ckpt.sizing.limits import ClusterLimits

MOST_RESIDENT = 0.01
MOST_SKEW = 1.5
MOST_TAIL = 1.3
MOST_VARIATION = 0.10
MOST_RETENTION = 1.10
MOST_DATA_EFFECT = 1.05
# Loads that become this much faster come from a cache that the earlier ones had not filled yet.
_CACHED_RATIO = 3.0

# Units of which all or none is demanded, so that no share of a limit can be left.
_COUNTED = ("faults", "bytes", "files", "folders", "commits")

# The order of a run; a requirement is undecided when the run ended before what it needs.
_ORDER: tuple[OperationKind, ...] = ("save", "load")


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """A judge's answer, before it is given its id and severity. ``margin`` is computed from measured and limit."""

    outcome: Outcome
    because: str
    measured: float | None = None
    limit: float | None = None
    unit: str = ""
    detail: tuple[str, ...] = ()

    @property
    def margin(self) -> float | None:
        """The share of the limit that was left; negative by how much it was missed."""
        if self.measured is None or not self.limit or self.unit in _COUNTED:
            return None
        return 1 - self.measured / self.limit


def judge_save(measurement: Measurement, limits: ClusterLimits) -> Decision:
    """Every save within the save limit of the cluster, at the size that was run."""
    return _judge_time(measurement, "save", limits.save_limit_seconds, limits.reason("save_limit_seconds"))


def judge_load(measurement: Measurement, limits: ClusterLimits) -> Decision:
    """Every load within the load limit of the cluster, at the size that was run, and of all bytes."""
    return _judge_time(measurement, "load", limits.load_limit_seconds, limits.reason("load_limit_seconds"))


def judge_integrity(measurement: Measurement, _limits: ClusterLimits) -> Decision:
    """Every byte that was loaded is the byte that was saved."""
    integrity = measurement.integrity
    if integrity is None:
        return _undecided(measurement, "load")
    if integrity.fault_count:
        first = integrity.faults[0]
        return Decision(
            outcome="failed",
            measured=float(integrity.fault_count),
            limit=0.0,
            unit="faults",
            because=f"{format_count(integrity.fault_count)} faults in what was loaded; the first: {_fault(first)}.",
            detail=(
                f"{format_count(integrity.bytes_checked)} of {format_count(integrity.bytes_expected)} bytes compared",
                *(_fault(f) for f in integrity.faults),
            ),
        )
    if len(measurement.of_kind("load")) < measurement.operations_planned:
        return _undecided(measurement, "load")
    if integrity.bytes_checked != integrity.bytes_expected:
        return Decision(
            outcome="failed",
            measured=float(integrity.bytes_checked),
            limit=float(integrity.bytes_expected),
            unit="bytes",
            because=f"Only {format_count(integrity.bytes_checked)} of {format_count(integrity.bytes_expected)} "
            "bytes could be compared.",
        )
    return Decision(
        outcome="met",
        measured=0.0,
        limit=0.0,
        unit="faults",
        because=f"All {format_count(integrity.bytes_checked)} bytes that were loaded are those that were saved.",
    )


def judge_cold(measurement: Measurement, _limits: ClusterLimits) -> Decision:
    """No load found its data in a client's page cache."""
    cache = measurement.cache
    loads = [o for o in measurement.of_kind("load") if o.mapped_bytes and o.resident_bytes is not None]
    if cache is not None and not cache.gauge:
        return Decision(outcome="not run", because=f"Coldness cannot be proven: {cache.detail}.")
    if not loads:
        return _undecided(measurement, "load")
    warmest = max(loads, key=_resident)
    fraction = _resident(warmest)
    method = f" (dropped by: {cache.method}; seen by {cache.gauge})" if cache else ""
    detail = tuple(
        f"load {o.index}: {format_percent(_resident(o))} resident, {format_rate(o.bytes_per_second)}" for o in loads
    ) + tuple(
        f"{r.host}: {r.rule}: {format_bytes(r.bytes_compared)} against {format_bytes(r.memory_bytes)} of memory, "
        + ("asks for a drop" if r.asks else "asks for none")
        for r in (cache.readings if cache else ())
    )
    if fraction > MOST_RESIDENT:
        because = (
            f"{format_percent(fraction)} of what load {warmest.index} was about to read lay in the client's page cache"
            f"{method}: its time is not the storage's."
        )
        return _measured("failed", fraction, MOST_RESIDENT, "fraction", because, detail)
    if len(measurement.of_kind("load")) < measurement.operations_planned:
        return _undecided(measurement, "load")
    because = f"At most {format_percent(fraction)} of what a load was about to read lay in a page cache{method}."
    return _measured("met", fraction, MOST_RESIDENT, "fraction", because, detail)


def judge_durable_calls(measurement: Measurement, _limits: ClusterLimits) -> Decision:
    """Every file and folder of every save was fsynced, the calls returned, and the checkpoint was committed."""
    durability = measurement.durability
    if durability is None:
        return _undecided(measurement, "save")
    counts = (
        ("files", durability.files_synced, durability.files),
        ("folders", durability.directories_synced, durability.directories),
        ("commits", durability.commits, durability.saves),
    )
    detail = tuple(f"{format_count(done)} of {format_count(of)} {name}" for name, done, of in counts)
    short = next(((n, d, of) for n, d, of in counts if d != of or of == 0), None)
    if short:
        name, done, of = short
        because = f"Of {format_count(of)} {name} only {format_count(done)} were made durable: " + (
            "a power cut may take acknowledged checkpoints."
        )
        return _measured("failed", float(done), float(of), name, because, detail)
    return Decision(
        outcome="met",
        measured=float(durability.files_synced),
        limit=float(durability.files),
        unit="files",
        because=f"fsync returned for all {format_count(durability.files)} files and "
        f"{format_count(durability.directories)} folders, and {format_count(durability.commits)} checkpoints were "
        "committed by rename.",
        detail=detail,
    )


def judge_straggler(measurement: Measurement, _limits: ClusterLimits) -> Decision:
    """No rank is far behind the others: slowest / median and 99th / 50th percentile of the time for each byte."""
    if not measurement.operations:
        return _undecided(measurement, "save")
    if measurement.processes < 3:
        return Decision(outcome="not run", because=f"{measurement.processes} ranks are too few to tell a straggler.")
    worst = max(measurement.operations, key=lambda o: _skew(o, measurement.rank_bytes)[0])
    skew, tail = _skew(worst, measurement.rank_bytes)
    host = next((r.host for r in measurement.ranks if r.rank == worst.slowest_rank), "")
    numbers = f"slowest / median {skew:.2f} (at most {MOST_SKEW}), p99 / p50 {tail:.2f} (at most {MOST_TAIL})"
    where = f"{worst.kind} {worst.index}, rank {worst.slowest_rank}{' on ' + host if host else ''}"
    failed = skew > MOST_SKEW or tail > MOST_TAIL
    because = f"{numbers}, in {where}." if failed else f"At worst {numbers}, in {where}."
    detail = tuple(
        "{} {}: slowest / median {:.2f}, p99 / p50 {:.2f}".format(o.kind, o.index, *_skew(o, measurement.rank_bytes))
        for o in measurement.operations
    )
    # The value shown is the one that is nearest to its limit, or farthest beyond it.
    by_skew = skew / MOST_SKEW >= tail / MOST_TAIL
    measured, limit = (skew, MOST_SKEW) if by_skew else (tail, MOST_TAIL)
    unit = "slowest / median" if by_skew else "p99 / p50"
    return _measured("failed" if failed else "met", measured, limit, unit, because, detail)


def judge_repeat(measurement: Measurement, _limits: ClusterLimits) -> Decision:
    """The same operation takes the same time again: coefficient of variation of the saves, and of the loads."""
    variations = {k: _variation(measurement.of_kind(k)) for k in _ORDER}
    known = {k: v for k, v in variations.items() if v is not None}
    if len(known) < len(_ORDER):
        if measurement.failure:
            return _undecided(measurement, "load")
        return Decision(outcome="not run", because="One operation of a kind cannot vary; two are needed.")
    worst = max(known, key=known.__getitem__)
    value = known[worst]
    because = (
        f"The coefficient of variation is {format_percent(variations['save'] or 0)} over the saves and "
        f"{format_percent(variations['load'] or 0)} over the loads (at most {format_percent(MOST_VARIATION)})."
    )
    detail = tuple(f"{k}s: " + ", ".join(format_seconds(o.seconds) for o in measurement.of_kind(k)) for k in _ORDER)
    if warm := _much_faster(measurement.of_kind("load")):
        because = f"{warm} {because}"
    return _measured("failed" if value > MOST_VARIATION else "met", value, MOST_VARIATION, "fraction", because, detail)


def _much_faster(loads: Sequence[Operation]) -> str:
    """Say which loads were much faster than the cold reads of the same run; empty when none was."""
    slowest = max(loads, key=lambda o: o.seconds)
    fast = [o for o in loads if o.seconds * _CACHED_RATIO <= slowest.seconds]
    if not fast:
        return ""
    names = ", ".join(str(o.index) for o in fast)
    return (
        f"Loads {names} took a third or less of load {slowest.index}: a cache behind the client may have "
        "held what they read."
    )


def judge_retention(measurement: Measurement, _limits: ClusterLimits) -> Decision:
    """Deleting the oldest checkpoint in the middle of a save makes the save hardly longer."""
    found = measurement.retention
    if found is None:
        return _undecided(measurement, "load")
    ratio = found.save_while_deleting_seconds / found.save_seconds
    deletes = ", ".join(format_seconds(s) for s in found.delete_seconds) or "none"
    because = (
        f"A save with a deletion beside it took {format_seconds(found.save_while_deleting_seconds)}, the median of "
        f"those without {format_seconds(found.save_seconds)}: {ratio:.2f} x (at most {MOST_RETENTION})."
    )
    detail = (f"deletions between saves, each alone: {deletes}", f"the newest {found.kept} checkpoints were kept")
    outcome: Outcome = "failed" if ratio > MOST_RETENTION else "met"
    return _measured(outcome, ratio, MOST_RETENTION, "with / without deletion", because, detail)


def judge_data(measurement: Measurement, _limits: ClusterLimits) -> Decision:
    """Unique data are as fast as constant data: the storage gains nothing by what it stores."""
    found = measurement.data
    if found is None:
        return _undecided(measurement, "load")
    pairs = {
        "save": (found.unique_save_seconds, found.constant_save_seconds),
        "load": (found.unique_load_seconds, found.constant_load_seconds),
    }
    ratios = {kind: statistics.median(u) / statistics.median(c) for kind, (u, c) in pairs.items()}
    worst = max(ratios, key=ratios.__getitem__)
    because = (
        f"Unique data took {ratios['save']:.2f} x the time of constant data to save and {ratios['load']:.2f} x to load "
        f"(at most {MOST_DATA_EFFECT}). The result is that of unique data in any case."
    )
    detail = tuple(
        f"{kind}s: unique {', '.join(map(format_seconds, u))}; constant {', '.join(map(format_seconds, c))}"
        for kind, (u, c) in pairs.items()
    )
    outcome: Outcome = "failed" if ratios[worst] > MOST_DATA_EFFECT else "met"
    return _measured(outcome, ratios[worst], MOST_DATA_EFFECT, "unique / constant", because, detail)


def _judge_time(measurement: Measurement, kind: OperationKind, full_limit: float, reason: str) -> Decision:
    operations = measurement.of_kind(kind)
    failure = measurement.failure
    if failure and _decides(failure, kind):
        return Decision(outcome="failed", because=describe_failure(failure), detail=_failure_detail(failure))
    planned = measurement.operations_planned
    if len(operations) < planned:
        return _undecided(measurement, kind)
    share = measurement.bytes / measurement.full_bytes
    limit = full_limit * share
    slowest = max(operations, key=lambda o: o.seconds)
    needed = measurement.full_bytes / full_limit
    origin = [reason]
    if share < 1:
        origin.append(
            f"the run wrote {share:.4g} of the full size, so the limit is {format_seconds(limit)}: the bandwidth, "
            f"{format_rate(needed)}, is that of the full size"
        )
    seconds = [o.seconds for o in operations]
    detail = (
        f"slowest {kind} {slowest.index}: rank {slowest.slowest_rank}, "
        + ", ".join(f"{name} {format_seconds(value)}" for name, value in slowest.phases.items()),
        f"{kind}s: mean {format_seconds(statistics.fmean(seconds))}, "
        f"median {format_seconds(statistics.median(seconds))}, maximum {format_seconds(max(seconds))}; "
        f"rank 0 by itself at most {format_seconds(max(o.rank0_seconds for o in operations))}",
        f"{format_rate(slowest.bytes_per_second)} where {format_rate(needed)} are needed",
        *origin,
    )
    short = [o for o in operations if o.bytes != measurement.bytes]
    if short:
        because = (
            f"{kind.capitalize()} {short[0].index} brought {format_count(short[0].bytes)} of "
            f"{format_count(measurement.bytes)} bytes: its time is not that of a whole {kind}."
        )
        return Decision(outcome="failed", because=because, limit=limit, unit="s", detail=detail)
    over = [o for o in operations if o.seconds > limit]
    if over:
        because = (
            f"{len(over)} of {planned} {kind}s took longer than {format_seconds(limit)}; the slowest, {kind} "
            f"{slowest.index}, took {format_seconds(slowest.seconds)} ({slowest.seconds / limit:.2f} x the limit), "
            f"most of it in {_longest_phase(slowest)} on rank {slowest.slowest_rank}."
        )
        return _measured("failed", slowest.seconds, limit, "s", because, detail)
    because = f"The slowest of {planned} {kind}s took {format_seconds(slowest.seconds)} of {format_seconds(limit)}."
    return _measured("met", slowest.seconds, limit, "s", because, detail)


def _measured(
    outcome: Outcome, measured: float, limit: float, unit: str, because: str, detail: Sequence[str]
) -> Decision:
    return Decision(outcome=outcome, measured=measured, limit=limit, unit=unit, because=because, detail=tuple(detail))


def _decides(failure: Failure, kind: OperationKind) -> bool:
    """Say whether a failure is the storage's, and in an operation of this kind."""
    return failure.kind in ("error", "killed", "hung") and f" {kind} " in failure.operation


def _undecided(measurement: Measurement, kind: OperationKind) -> Decision:
    """Return "not run" with the reason why not all operations of a kind were measured."""
    if measurement.failure:
        because = f"The run ended before this could be decided: {describe_failure(measurement.failure)}"
    else:
        done = len(measurement.of_kind(kind))
        because = f"Only {done} of {measurement.operations_planned} {kind}s were measured."
    return Decision(outcome="not run", because=because)


def describe_failure(failure: Failure) -> str:
    """Return one sentence: who failed, where, in what, and how."""
    who = "" if failure.rank is None else f"Rank {failure.rank}"
    if who and failure.host:
        who += f" on {failure.host}"
    doing = " ".join(filter(None, [failure.operation, failure.phase]))
    where = f" in {doing}" if doing else ""
    file = f" of {failure.file}" if failure.file else ""
    error = f"{failure.errno}: {failure.message}" if failure.errno else failure.message
    verb = {"error": "failed", "killed": "was killed", "hung": "hung", "launch": "did not start"}.get(
        failure.kind, "was interrupted"
    )
    return f"{who or 'The launch'} {verb}{where}{file}: {error}."


def _failure_detail(failure: Failure) -> tuple[str, ...]:
    return tuple(failure.stack.splitlines())


def _fault(fault: Fault) -> str:
    tensor = f", tensor {fault.tensor}, offset {format_count(fault.offset)}" if fault.tensor else ""
    return (
        f"{fault.kind}: checkpoint {fault.checkpoint}, rank {fault.rank} on {fault.host}, {fault.file}{tensor}, "
        f"{format_count(fault.bytes)} bytes: {fault.detail}"
    )


def _resident(operation: Operation) -> float:
    return (operation.resident_bytes or 0) / operation.mapped_bytes if operation.mapped_bytes else 0.0


def _longest_phase(operation: Operation) -> str:
    return max(operation.phases, key=operation.phases.__getitem__, default="no phase")


def _skew(operation: Operation, rank_bytes: Sequence[int]) -> tuple[float, float]:
    """Return (slowest / median, p99 / p50) of the ranks' seconds for each byte.

    Layouts give ranks different amounts to write; a rank that has more to do is no straggler.
    """
    rates = [s / b for s, b in zip(operation.rank_seconds, rank_bytes, strict=True) if b]
    middle = statistics.median(rates)
    ordered = sorted(rates)
    p99 = ordered[min(len(ordered) - 1, math.ceil(0.99 * len(ordered)) - 1)]
    return max(rates) / middle, p99 / middle


def _variation(operations: Sequence[Operation]) -> float | None:
    if len(operations) < 2:
        return None
    seconds = [o.seconds for o in operations]
    return statistics.stdev(seconds) / statistics.fmean(seconds)

"""Shared decisions on loads, and on saves and loads during user commands: wrong bytes, caches, early ends. Pure."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ckpt.facts.failure import describe_failure, describe_fault
from pytest_ckpt.judging.cold import MAXIMUM_RESIDENT, is_drop_proven, prove_cold
from pytest_ckpt.judging.decision import Decision, ended_before, failed_by, is_decided_in, measured_as, not_decided
from pytest_ckpt.support.units import counted, format_count, format_percent, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ckpt.facts.commands import Failover, OperationTrial, Upgrade
    from pytest_ckpt.facts.failure import Failure
    from pytest_ckpt.facts.measurement import Operation
    from pytest_ckpt.facts.proofs import CacheFacts, Integrity
    from pytest_ckpt.facts.subject import Pattern


_RANKS_OF_A_PERCENTILE = 100


def wrong_bytes(integrity: Integrity | None, detail: Sequence[str]) -> Decision | None:
    """Return "failed" if loaded bytes are wrong, else None."""
    if not integrity or not integrity.fault_count:
        return None
    because = (
        f"{counted(integrity.fault_count, 'faulty place')} in the loaded data; "
        f"first: {describe_fault(integrity.faults[0])}."
    )
    faults = (describe_fault(fault) for fault in integrity.faults)
    return measured_as("wrong bytes", float(integrity.fault_count), 0.0, "faults", because, (*detail, *faults))


def missing_bytes(integrity: Integrity | None, detail: Sequence[str]) -> Decision | None:
    """Return "failed" if not all bytes could be compared, else None."""
    if not integrity or integrity.bytes_checked == integrity.bytes_expected:
        return None
    checked, expected = integrity.bytes_checked, integrity.bytes_expected
    because = f"Only {format_count(checked)} of {counted(expected, 'byte')} could be compared."
    return measured_as("missing bytes", float(checked), float(expected), "bytes", because, detail)


def not_cold(
    which: str, resident: int | None, mapped: int | None, detail: Sequence[str], cache: CacheFacts | None
) -> Decision | None:
    """Return "not run" if a load did not come from the storage, or if this is unknown. Otherwise return None.

    ``which`` names the load in a sentence. Before the load, ``resident`` of the ``mapped`` bytes were in a page cache;
    None if these bytes were not counted. The counts do not matter if the target declares that its clients have no
    cache. The counts are also not needed if timed reads prove that reads after a drop come from the storage.
    """
    if cache and (cache.is_declared_cold or (not cache.probe and is_drop_proven(cache))):
        return None
    if resident is None or not mapped:
        because = "These loads cannot be proven to be cold, so their times do not measure the storage."
        return not_decided("unproven", because, detail)
    if resident / mapped > MAXIMUM_RESIDENT:
        because = (
            f"{format_percent(resident / mapped)} of what {which} was about to read was cached "
            f"(limit {format_percent(MAXIMUM_RESIDENT)}), so its time is not the storage's."
        )
        return not_decided("cached", because, detail)
    return None


def skew_of(operation: Operation, rank_bytes: Sequence[int]) -> tuple[float, float | None]:
    """Return (slowest / median, p99 / p50) of the ranks' seconds per byte.

    For fewer than 100 ranks, p99 / p50 is None. Seconds per byte are used because a layout assigns different amounts of
    data to ranks. A rank with more data then does not appear slow.
    """
    rates = sorted(s / b for s, b in zip(operation.rank_seconds, rank_bytes, strict=True) if b)
    middle = statistics.median(rates)
    p99 = rates[math.ceil(0.99 * len(rates)) - 1] / middle if len(rates) >= _RANKS_OF_A_PERCENTILE else None
    return rates[-1] / middle, p99


def lost(because: str, detail: Sequence[str]) -> Decision:
    """Return "failed" for a checkpoint that is missing, or that contains the bytes of another checkpoint."""
    return Decision(outcome="failed", reason="missing bytes", because=because, detail=tuple(detail))


def if_cold(met: Decision, found: Failover | Upgrade, cache: CacheFacts | None) -> Decision:
    """Return ``met`` with the kind of proof if the loads in ``found`` are proven to be uncached, else "not run".

    ``cache`` has the facts on the subject's own loads.

    - If the target declares that its clients do not cache, the declaration is the proof. If ``cache`` has a proof for
      the own loads, this proof supports the declaration, and the result contains its kind.
    - If the kernel counted cached pages, the count is the proof.
    - Otherwise, timed reads in ``cache`` may prove that a drop of the caches works. The same drop preceded every load
      in ``found``.
    """
    if found.is_declared_cold:
        if cache and (proof := prove_cold(cache)).basis:
            line = (
                "the loads of this requirement rest on the target's declaration that its clients do not cache reads; "
                f"the measured loads support it: {proof.because}"
            )
            return replace(met, basis=proof.basis, detail=(*met.detail, line))
        return replace(met, basis="declared")
    resident = found.resident_fraction
    if resident is None and cache and prove_cold(cache).basis == "timed canary":
        return replace(met, basis="timed canary")
    if resident is None:
        because = (
            "It is not proven that the compared bytes came from the storage: the kernel does not report cached pages."
        )
        return not_decided("unproven", because, met.detail)
    if resident > MAXIMUM_RESIDENT:
        because = (
            f"{format_percent(resident)} of a checkpoint that was to be compared was cached "
            f"(limit {format_percent(MAXIMUM_RESIDENT)}), so the bytes did not come from the storage."
        )
        return not_decided("cached", because, met.detail)
    return replace(met, basis="seen")


def ended_by(failure: Failure | None, pattern: Pattern, detail: Sequence[str]) -> Decision | None:
    """Return the decision for a pattern that ``failure`` ended early; None without a failure."""
    if failure is None:
        return None
    if not is_decided_in(failure, pattern):
        return ended_before(failure)
    failed = failed_by(failure)
    return replace(failed, detail=(*failed.detail, *detail))


def describe_undisturbed(operations: Sequence[OperationTrial]) -> Iterator[str]:
    """Yield lines on the operations before the first injected fault or the first change of the storage."""
    for operation in operations:
        yield (
            f"undisturbed {operation.kind}: {format_seconds(operation.seconds)}, a rank without a sign of life for "
            f"{format_seconds(operation.longest_stall_seconds)} at most"
        )


def describe_end(failure: Failure | None) -> Iterator[str]:
    """Yield a line on the failure that ended the ranks early, if any."""
    if failure:
        yield describe_failure(failure)

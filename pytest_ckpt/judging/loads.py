"""What judges of loads share: wrong bytes, reads from a cache, ranks that are late. Pure."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from pytest_ckpt.judging.cold import MAXIMUM_RESIDENT, is_drop_proven
from pytest_ckpt.judging.decision import Decision, not_decided
from pytest_ckpt.judging.wording import describe_fault
from pytest_ckpt.support.units import counted, format_count, format_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.measurement import Operation
    from pytest_ckpt.facts.proofs import CacheFacts, Integrity

_RANKS_OF_A_PERCENTILE = 100


def wrong_bytes(integrity: Integrity, detail: Sequence[str]) -> Decision | None:
    """Decide where loaded bytes are wrong, or could not all be compared."""
    if integrity.fault_count:
        because = (
            f"{counted(integrity.fault_count, 'faulty place')} in the loaded data; "
            f"first: {describe_fault(integrity.faults[0])}."
        )
        return Decision(
            outcome="failed",
            reason="wrong bytes",
            measured=float(integrity.fault_count),
            limit=0.0,
            unit="faults",
            because=because,
            detail=(*detail, *(describe_fault(fault) for fault in integrity.faults)),
        )
    if integrity.bytes_checked != integrity.bytes_expected:
        because = (
            f"Only {format_count(integrity.bytes_checked)} of {counted(integrity.bytes_expected, 'byte')} could be "
            "compared."
        )
        return Decision(
            outcome="failed",
            reason="missing bytes",
            measured=float(integrity.bytes_checked),
            limit=float(integrity.bytes_expected),
            unit="bytes",
            because=because,
            detail=tuple(detail),
        )
    return None


def not_cold(
    which: str, resident: int | None, mapped: int | None, detail: Sequence[str], cache: CacheFacts | None
) -> Decision | None:
    """Decide where ``which`` load is not known to have come from the storage, or did not.

    Of a target that declares its clients without a ``cache`` nothing is counted; where the kernel does not count,
    timed reads may show that what was dropped before is read from the storage.
    """
    if cache and (cache.is_declared_cold or (not cache.gauge and is_drop_proven(cache))):
        return None
    if resident is None or not mapped:
        because = "That these loads were cold cannot be proven here, so their times say nothing of the storage."
        return not_decided("unproven", because, detail)
    if resident / mapped > MAXIMUM_RESIDENT:
        because = (
            f"{format_percent(resident / mapped)} of what {which} was about to read was cached "
            f"(limit {format_percent(MAXIMUM_RESIDENT)}), so its time is not the storage's."
        )
        return not_decided("cached", because, detail)
    return None


def skew_of(operation: Operation, rank_bytes: Sequence[int]) -> tuple[float, float | None]:
    """Return (slowest / median, p99 / p50) of the ranks' seconds for each byte; no p99 of fewer than 100 ranks.

    Layouts give ranks different amounts to write; a rank that has more to do is no straggler.
    """
    rates = sorted(s / b for s, b in zip(operation.rank_seconds, rank_bytes, strict=True) if b)
    middle = statistics.median(rates)
    p99 = rates[math.ceil(0.99 * len(rates)) - 1] / middle if len(rates) >= _RANKS_OF_A_PERCENTILE else None
    return rates[-1] / middle, p99

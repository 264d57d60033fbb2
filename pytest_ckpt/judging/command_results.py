"""Shared rules for saves and loads during user commands: bytes, caches, how ranks ended. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ckpt.judging.cold import MAXIMUM_RESIDENT, prove_cold
from pytest_ckpt.judging.decision import Decision, ended_before, failed_by, is_decided_in, not_decided
from pytest_ckpt.judging.wording import describe_failure
from pytest_ckpt.support.units import format_percent, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ckpt.facts.commands import Failover, OperationTrial, Upgrade
    from pytest_ckpt.facts.failure import Failure
    from pytest_ckpt.facts.proofs import CacheFacts
    from pytest_ckpt.facts.subject import Pattern


def lost(because: str, detail: Sequence[str]) -> Decision:
    """Fail a checkpoint whose bytes differ from the bytes expected for its number."""
    return Decision(outcome="failed", reason="missing bytes", because=because, detail=tuple(detail))


def if_cold(met: Decision, found: Failover | Upgrade, cache: CacheFacts | None) -> Decision:
    """Return a decision with its basis: bytes of the storage, or bytes that may have come from a client's cache.

    If the kernel shows no cache, timed reads have shown for the subject's own loads whether the drop works: here the
    same drop came before every load.
    """
    if found.is_declared_cold:
        return replace(met, basis="declared")
    resident = found.resident_fraction
    if resident is None and cache and prove_cold(cache).basis == "timed canary":
        return replace(met, basis="timed canary")
    if resident is None:
        because = "That what was compared came from the storage cannot be proven here: caches cannot be seen."
        return not_decided("unproven", because, met.detail)
    if resident > MAXIMUM_RESIDENT:
        because = (
            f"{format_percent(resident)} of a checkpoint that was to be compared was cached "
            f"(limit {format_percent(MAXIMUM_RESIDENT)}), so the bytes are not the storage's."
        )
        return not_decided("cached", because, met.detail)
    return replace(met, basis="seen")


def ended_by(failure: Failure | None, pattern: Pattern, detail: Sequence[str]) -> Decision | None:
    """Decide if the ranks did not finish."""
    if failure is None:
        return None
    if not is_decided_in(failure, pattern):
        return ended_before(failure)
    failed = failed_by(failure)
    return replace(failed, detail=(*failed.detail, *detail))


def describe_undisturbed(operations: Sequence[OperationTrial]) -> Iterator[str]:
    """Yield the results before the first change."""
    for operation in operations:
        yield (
            f"undisturbed {operation.kind}: {format_seconds(operation.seconds)}, a rank without a sign of life for "
            f"{format_seconds(operation.longest_stall_seconds)} at most"
        )


def describe_end(failure: Failure | None) -> Iterator[str]:
    """Yield how the ranks ended if they did not finish."""
    if failure:
        yield describe_failure(failure)

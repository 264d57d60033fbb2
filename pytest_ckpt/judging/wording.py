"""Descriptions of failures, in a sentence for a storage engineer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.support.units import counted, format_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ckpt.facts.failure import BlockedCall, Failure, FailureKind
    from pytest_ckpt.facts.proofs import Fault


_VERBS: Mapping[FailureKind, str] = {
    "error": "failed",
    "killed": "was killed",
    "hung": "hung",
    "too slow": "was far too slow",
    "launch": "did not start",
    "replaced": "met another directory",
}


def describe_failure(failure: Failure) -> str:
    """Return one sentence: the rank that failed, its host, the operation, and the error."""
    if failure.kind == "hook":
        return f"{failure.message.rstrip('.')}."
    who = "" if failure.rank is None else f"Rank {failure.rank}"
    if who and failure.host:
        who += f" on {failure.host}"
    lane = f"({failure.lane})" if failure.lane else ""
    doing = " ".join(filter(None, [str(failure.operation or ""), lane, failure.phase]))
    where = f" in {doing}" if doing else ""
    file = f" of {failure.file}" if failure.file else ""
    error = f"{failure.errno}: {failure.message}" if failure.errno else failure.message
    verb = _VERBS.get(failure.kind, "was interrupted")
    return f"{who or 'The launch'} {verb}{where}{file}: {error}."


def describe_blocked(call: BlockedCall) -> str:
    """Return one sentence: which call did not return, on which host and path, and for how long."""
    return f"The call {call.call} of {call.path} on {call.host} did not return within the deadline: {call.message}."


def describe_fault(fault: Fault) -> str:
    """Return one line: the kind of fault, its place, and the bytes there."""
    tensor = f", tensor {fault.tensor}, offset {format_count(fault.offset)}" if fault.tensor else ""
    return (
        f"{fault.kind}: checkpoint {fault.checkpoint}, rank {fault.rank} on {fault.host}, {fault.file}{tensor}, "
        f"{counted(fault.bytes, 'byte')}: {fault.detail}"
    )

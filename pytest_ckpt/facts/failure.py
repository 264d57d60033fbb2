"""The cause of the early end of a measurement or check, and its description for a storage engineer. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_ckpt.facts.bounds import Count
from pytest_ckpt.facts.subject import OperationRef
from pytest_ckpt.support.units import counted, format_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ckpt.facts.proofs import Fault


FailureKind = Literal["error", "killed", "hung", "too slow", "launch", "interrupted", "hook", "replaced"]

Phase = Literal[
    "",
    "start",
    "import",
    "stage",
    "open",
    "write",
    "read",
    "fsync",
    "close",
    "directory",
    "pause",
    "commit",
    "name of another host",
    "fsync canary",
    "residency probe",
    "fadvise",
    "drop_caches",
    "drop command",
    "start of the reader",
    "read of samples",
    "mkdir",
    "create",
    "stat",
    "list",
    "unlink",
    "rmdir",
]
"""The phase of a rank within an operation, as its engine reports it; empty between two phases."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why a measurement ended early, and the rank, host, operation, phase and file at that time.

    - ``kind``: the kind of failure. Three examples are not obvious. ``too slow``: the operation made progress, but
      would have taken many times its limit. ``hook``: a plugin's hook failed, and ``message`` names the hook.
      ``replaced``: another directory had replaced the run's directory on the target.
    - ``operation``: None if the ranks were between operations.
    - ``lane``: one of several concurrent activities of a rank; empty for the operation itself.
    - ``stack``: the state of the rank's process in the kernel, such as system call and kernel stack.
    """

    kind: FailureKind
    message: str
    rank: Count | None = None
    host: str = ""
    operation: OperationRef | None = None
    phase: Phase = ""
    file: str = ""
    errno: str = ""
    stack: str = ""
    lane: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockedCall:
    """A call of a check that did not return within the deadline.

    ``stack`` is the kernel stack of the check's process.
    """

    call: str
    path: str
    host: str
    message: str
    stack: str = ""


_VERBS: Mapping[FailureKind, str] = {
    "error": "failed",
    "killed": "was killed",
    "hung": "hung",
    "too slow": "was far too slow",
    "launch": "did not start",
    "replaced": "met another directory",
}


def describe_failure(failure: Failure) -> str:
    """Return a sentence with the failed rank, its host, the operation, and the error."""
    if failure.kind == "hook":
        return f"{failure.message.rstrip('.')}."
    rank_text = "" if failure.rank is None else f"Rank {failure.rank}"
    if rank_text and failure.host:
        rank_text += f" on {failure.host}"
    lane = f"({failure.lane})" if failure.lane else ""
    doing = " ".join(filter(None, [str(failure.operation or ""), lane, failure.phase]))
    where = f" in {doing}" if doing else ""
    file = f" of {failure.file}" if failure.file else ""
    error = f"{failure.errno}: {failure.message}" if failure.errno else failure.message
    verb = _VERBS.get(failure.kind, "was interrupted")
    return f"{rank_text or 'The launch'} {verb}{where}{file}: {error}."


def describe_blocked(call: BlockedCall) -> str:
    """Return a sentence with the call that did not return, its path and host, and the time without progress."""
    return f"The call {call.call} of {call.path} on {call.host} did not return within the deadline: {call.message}."


def describe_fault(fault: Fault) -> str:
    """Return a one-line description of a fault in loaded data: kind, location, number of bytes, and detail."""
    tensor = f", tensor {fault.tensor}, offset {format_count(fault.offset)}" if fault.tensor else ""
    return (
        f"{fault.kind}: checkpoint {fault.checkpoint}, rank {fault.rank} on {fault.host}, {fault.file}{tensor}, "
        f"{counted(fault.bytes, 'byte')}: {fault.detail}"
    )

"""The decision that a requirement's function returns, and decisions that all requirements use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_ckpt.facts.failure import Failure, FailureKind, describe_failure
from pytest_ckpt.facts.measurement import Measurement, OperationKind
from pytest_ckpt.facts.proofs import ColdBasis
from pytest_ckpt.facts.subject import Pattern, Stage
from pytest_ckpt.facts.verdict import AcceptanceBound, Outcome, Reason, TimeEstimate
from pytest_ckpt.sizing.ramp import RAMP
from pytest_ckpt.support.processes import SAID_OF_STOPPED
from pytest_ckpt.support.units import counted

# The per-process and per-host limits on open files.
_OF_THE_HOST = frozenset({"EMFILE", "ENFILE"})

# Units of counts whose limit is zero or the complete number, so that an unused share of the limit has no meaning.
_COUNTED = ("faults", "bytes", "files", "directories", "commits")

# Steps of ranks before the timed part, by the kind of operation to which they belong.
_BEFORE: dict[OperationKind, tuple[Stage, ...]] = {"save": ("prepare",), "load": ("drop caches", "residency")}


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The result of a requirement's function, without the requirement's id and severity.

    - ``reason``: a code of `facts.verdict.REASONS`; plugins keep the default.
    - ``basis``: the kind of evidence, if a proof can use several kinds. A gate table may reject a kind.
    - ``bound``, ``estimate``: conclusions about operations that were not measured.
    """

    outcome: Outcome
    because: str
    reason: Reason = "plugin"
    measured: float | None = None
    limit: float | None = None
    unit: str = ""
    detail: tuple[str, ...] = ()
    basis: ColdBasis | None = None
    bound: AcceptanceBound | None = None
    estimate: TimeEstimate | None = None

    @property
    def margin(self) -> float | None:
        """The unused share of the limit, negative if the limit was missed; None if no share can be computed."""
        if self.measured is None or not self.limit or self.unit in _COUNTED:
            return None
        return 1 - self.measured / self.limit


def measured_as(
    reason: Reason, measured: float, limit: float, unit: str, because: str, detail: Sequence[str]
) -> Decision:
    """Return a decision with a measured value and its limit.

    The outcome is "met" if ``reason`` is ``met``, otherwise "failed".
    """
    return Decision(
        outcome="met" if reason == "met" else "failed",
        reason=reason,
        measured=measured,
        limit=limit,
        unit=unit,
        because=because,
        detail=tuple(detail),
    )


def not_decided(reason: Reason, because: str, detail: Sequence[str] = ()) -> Decision:
    """Return the decision "not run" with its reason."""
    return Decision(outcome="not run", reason=reason, because=because, detail=tuple(detail))


def failed_by(failure: Failure) -> Decision:
    """Return the decision that follows from a failure during an operation: "failed" or "not run".

    The decision is "not run" if the storage did not cause the failure. In this case a rank was killed or stopped, or
    the process or its host had no file descriptors left.
    """
    was_stopped = failure.kind == "hung" and any(words in failure.stack for words in SAID_OF_STOPPED)
    if failure.kind == "killed" or was_stopped or failure.errno in _OF_THE_HOST:
        because = f"{describe_failure(failure)} The storage is not judged by this."
        return not_decided("killed", because, failure.stack.splitlines())
    reasons: dict[FailureKind, Reason] = {"hung": "hung", "too slow": "over limit"}
    reason = reasons.get(failure.kind, "error")
    detail = tuple(failure.stack.splitlines())
    return Decision(outcome="failed", reason=reason, because=describe_failure(failure), detail=detail)


def undecided(measurement: Measurement, kind: OperationKind) -> Decision:
    """Return "not run" for a measurement without all planned saves, or without all planned loads (``kind``).

    The decision states why the missing operations were not measured.
    """
    if measurement.failure:
        return ended_before(measurement.failure)
    done = len(measurement.of_kind(kind))
    return not_decided(
        "not measured",
        f"Only {done} of {counted(measurement.operations_planned, f'{kind} was', f'{kind}s were')} measured.",
    )


def ended_before(failure: Failure) -> Decision:
    """Return "not run", because ``failure`` ended the run before the judged operations were measured."""
    return not_decided("run ended", f"The run ended before this was measured: {describe_failure(failure)}")


def is_decided_by(failure: Failure, kind: OperationKind) -> bool:
    """Return whether a failure counts against the storage and occurred in the subject's own saves or loads (``kind``).

    The preparation right before such an operation counts as a part of it. The scratch saves and loads of the ramp,
    which chooses the number of requests in flight, count as own operations.
    """
    at = failure.operation
    if at is None or at.scenario not in ("", RAMP):
        return False
    if at.stage == "operation":
        return at.action == kind and _is_of_storage(failure)
    return at.stage in _BEFORE[kind] and _is_of_storage(failure, off_the_clock=True)


def is_decided_in(failure: Failure, pattern: Pattern) -> bool:
    """Return whether a failure counts against the storage and occurred in the given pattern."""
    at = failure.operation
    if at is None or at.scenario != pattern:
        return False
    return _is_of_storage(failure, off_the_clock=at.stage != "operation" or at.index is None)


def _is_of_storage(failure: Failure, *, off_the_clock: bool = False) -> bool:
    """Whether a failure counts against the storage.

    During an operation, every failed, killed, hung or too slow rank counts. If ``off_the_clock``, the failure occurred
    before or after an operation. Such a failure counts only if a system call failed or did not return.
    """
    if failure.kind not in ("error", "killed", "hung", "too slow"):
        return False
    return not off_the_clock or bool(failure.errno) or failure.kind == "hung"

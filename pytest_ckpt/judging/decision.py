"""A judge's answer, and the answers that every judge may have to give."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.facts.measurement import Measurement, OperationKind
from pytest_ckpt.facts.verdict import Outcome
from pytest_ckpt.judging.wording import describe_failure

# Units of which all or none is demanded, so that no share of a limit can be left.
_COUNTED = ("faults", "bytes", "files", "folders", "commits")

# Where a rank was when it failed: "llama3-8b-full save 3" is the operation, "llama3-8b-full load 3: residency" is
# what comes before its clock.
_INSIDE: dict[OperationKind, str] = {"save": r" save \d+$", "load": r" load \d+$"}
_BEFORE: dict[OperationKind, str] = {"save": r" prepare$", "load": r" drop caches$| load \d+: residency$"}


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


def measured_as(
    outcome: Outcome, measured: float, limit: float, unit: str, because: str, detail: Sequence[str]
) -> Decision:
    """Return a decision with a measured value and its limit."""
    return Decision(outcome=outcome, measured=measured, limit=limit, unit=unit, because=because, detail=tuple(detail))


def undecided(measurement: Measurement, kind: OperationKind) -> Decision:
    """Return "not run" with the reason why not all operations of a kind were measured."""
    if measurement.failure:
        because = f"The run ended before this could be decided: {describe_failure(measurement.failure)}"
    else:
        done = len(measurement.of_kind(kind))
        because = f"Only {done} of {measurement.operations_planned} {kind}s were measured."
    return Decision(outcome="not run", because=because)


def is_decided_by(failure: Failure, kind: OperationKind) -> bool:
    """Say whether a failure is the storage's, and in an operation of this kind."""
    if failure.kind not in ("error", "killed", "hung"):
        return False
    if re.search(_INSIDE[kind], failure.operation):
        return True
    # Before the clock runs, an error counts only where it is the storage's: a system call that failed, or does not end.
    return bool(failure.errno or failure.kind == "hung") and re.search(_BEFORE[kind], failure.operation) is not None

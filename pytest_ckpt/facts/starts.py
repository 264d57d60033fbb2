"""The starts of a run: a run that was interrupted, or that more suites are added to, is continued by another start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_ckpt.facts.bounds import Count, CountFromOne, Text
from pytest_ckpt.facts.failure import Failure, FailureKind

End = Literal["finished", "interrupted", "crashed", "killed"]

# Somebody or something outside the storage ended the measurement. Every other failure is a result.
_INTERRUPTIONS: frozenset[FailureKind] = frozenset(("interrupted", "killed", "launch", "hook"))


def is_interruption(failure: Failure | None) -> bool:
    """Return whether a failure has another cause than the storage, so that a later start measures again."""
    return failure is not None and failure.kind in _INTERRUPTIONS


@dataclass(frozen=True, kw_only=True, slots=True)
class InterruptedWork:
    """A measurement or check that a start did not complete. ``name`` is the subject or the check.

    ``operation`` is the operation that was running, as a person reads it; empty if it is not known. ``operations`` is
    the number of saves and loads that had ended: they still count.
    """

    name: str
    operation: str
    operations: Count
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RepeatedMeasurement:
    """A complete measurement that the next start makes again, because the conditions differ.

    ``differences`` name the conditions with the value before and the value now; ``failed`` are the requirements that
    failed before.
    """

    name: str
    differences: tuple[str, ...]
    failed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """One start of a run. Times are ISO 8601; ``ended`` is None if the start was killed.

    ``measured`` are the subjects and checks that this start completed, ``interrupted_work`` are the others.
    ``replaced`` are complete measurements that the start after this one makes again.
    """

    number: CountFromOne
    id: Text
    started: str
    ended: str | None
    end: End
    command: tuple[str, ...]
    suites: tuple[str, ...]
    hosts: tuple[str, ...]
    measured: tuple[str, ...]
    interrupted_work: tuple[InterruptedWork, ...] = ()
    replaced: tuple[RepeatedMeasurement, ...] = ()

"""The starts of a run. A later start resumes an interrupted run, or adds suites to a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_ckpt.facts.bounds import Count, CountFromOne, Text
from pytest_ckpt.facts.failure import Failure, FailureKind

End = Literal["finished", "interrupted", "crashed", "killed"]

# The cause of the end is outside the storage. Every other failure is a result.
_INTERRUPTIONS: frozenset[FailureKind] = frozenset(("interrupted", "killed", "launch", "hook"))


def is_interruption(failure: Failure | None) -> bool:
    """Return whether a failure has a cause outside the storage. If so, a later start repeats the measurement."""
    return failure is not None and failure.kind in _INTERRUPTIONS


@dataclass(frozen=True, kw_only=True, slots=True)
class InterruptedWork:
    """A measurement or check that a start did not complete. ``name`` is the subject or the name of the check.

    - ``operation``: the operation that was running; empty if unknown.
    - ``operations``: the number of completed saves and loads, which still count.
    """

    name: str
    operation: str
    operations: Count
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RepeatedMeasurement:
    """A complete measurement that the next start repeats, because the conditions have changed.

    - ``differences``: the changed conditions with their previous and new values.
    - ``failed``: the requirements that failed in this measurement.
    """

    name: str
    differences: tuple[str, ...]
    failed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """One start of a run. Times are ISO 8601. ``ended`` is None if the start was killed.

    - ``measured``: the subjects and checks that this start completed.
    - ``interrupted_work``: the subjects and checks that this start began and did not complete.
    - ``replaced``: complete measurements that the next start repeats.
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

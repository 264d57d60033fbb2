"""What rank 0 told of one subject, taken together: a measurement is made of it, and compared with it later."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pytest_ckpt.facts.events import (
    DurabilityCounted,
    Event,
    HostsLooked,
    IntegrityCompared,
    MeasurementBegun,
    MeasurementDone,
    OperationDone,
    PatternFound,
    PatternMeasured,
)
from pytest_ckpt.facts.host_waits import Awaited, LateHost, added_up
from pytest_ckpt.facts.measurement import Operation, Patterns
from pytest_ckpt.facts.proofs import Durability, Integrity
from pytest_ckpt.facts.subject import Subject


@dataclass(kw_only=True, slots=True)
class SubjectEvents:
    """What was told so far; ``end`` is None until everything was measured."""

    subject: Subject
    operations: list[Operation] = field(default_factory=list)
    durability: Durability | None = None
    integrity: Integrity | None = None
    found: dict[str, PatternFound] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    looks: list[tuple[Awaited, tuple[LateHost, ...]]] = field(default_factory=list)
    end: MeasurementDone | None = None

    def take(self, event: Event) -> None:
        """Take in an event; those of no subject change nothing."""
        if isinstance(event, OperationDone):
            self.operations.append(event.operation)
        elif isinstance(event, HostsLooked):
            self.looks.append((event.awaited, event.late))
        elif isinstance(event, DurabilityCounted):
            self.durability = event.durability
        elif isinstance(event, IntegrityCompared):
            self.integrity = event.integrity
        elif isinstance(event, PatternMeasured) and event.found is not None:
            self.found[event.name] = event.found
        elif isinstance(event, PatternMeasured):
            self.not_run[event.name] = event.not_run
        elif isinstance(event, MeasurementDone):
            self.end = event

    @property
    def patterns(self) -> Patterns | None:
        """The patterns, None where none was told of."""
        if not self.found and not self.not_run:
            return None
        return Patterns(**self.found, not_run=self.not_run)  # type: ignore[arg-type]  # each under its own name

    @property
    def facts(self) -> dict[str, Any]:
        """The fields of a measurement that rank 0 tells, with their values."""
        end = self.end
        return {
            "operations": tuple(self.operations),
            "durability": self.durability,
            "integrity": self.integrity,
            "patterns": self.patterns,
            "cache": end and end.cache,
            "ranks": end.ranks if end else (),
            "engine_facts": end.engine_facts if end else {},
            "requests": end.requests if end else (),
            "retention": end and end.retention,
            "data": end and end.data,
            "client_proofs": end and end.client_proofs,
            "host_waits": added_up(self.looks),
        }


def events_by_subject(events: Iterable[Event]) -> dict[Subject, SubjectEvents]:
    """Return what rank 0 told of each subject; of a subject that was measured several times, the last."""
    subjects: dict[Subject, SubjectEvents] = {}
    now: SubjectEvents | None = None
    for event in events:
        if isinstance(event, MeasurementBegun):
            now = subjects[event.subject] = SubjectEvents(subject=event.subject)
        elif isinstance(event, PatternMeasured) and event.subject in subjects:
            # One of them is measured in a launch of its own, when all others are over.
            subjects[event.subject].take(event)
        elif now:
            now.take(event)
    return subjects

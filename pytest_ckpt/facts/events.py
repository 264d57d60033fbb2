"""The reports of a run's processes to its controller while they work: a closed set of events, one writer, one reader.

An event is a JSON object whose ``event`` names its kind. Every rank reports its activity (hello, beat, failed), rank 0
reports results, each on its connection; a check of a target's behaviour names the call that it is about to make.
Without a connection, an event is a line: a mark, then the object. ``events.jsonl`` keeps the reports of rank 0, with
the seconds since the launch began.

`SubjectEvents` collects the reports of rank 0 on one subject: a measurement is made of them, and compared with them
later.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pytest_ckpt.facts.across_hosts import Awaited, DelayedHost, TargetView, TierView, added_up
from pytest_ckpt.facts.client_ceiling import ClientCeiling
from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.commands import Command, CommandRun
from pytest_ckpt.facts.environment import HostFacts
from pytest_ckpt.facts.event_line import CALL, MARK, Call, line_of, plain_of
from pytest_ckpt.facts.failure import FailureKind, Phase
from pytest_ckpt.facts.host_load import HostLoad
from pytest_ckpt.facts.measurement import (
    DataEffect,
    Operation,
    Patterns,
    RankFacts,
    Retention,
)
from pytest_ckpt.facts.proofs import CacheFacts, ClientProofs, Durability, Integrity
from pytest_ckpt.facts.request_depth import RequestDepth
from pytest_ckpt.facts.requests import Requests
from pytest_ckpt.facts.subject import OperationRef, Pattern, StepKind, Subject


@dataclass(frozen=True, kw_only=True, slots=True)
class Hello:
    """A rank has started: which process it is."""

    rank: int
    host: str
    pid: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Beat:
    """The activity of a rank in one of its lanes. ``waiting``: for other ranks, or for work.

    ``progress`` counts the bytes that it has moved and the modules that it has imported.
    """

    rank: int | None
    operation: OperationRef | None
    phase: Phase
    file: str
    waiting: bool
    progress: tuple[int, ...]
    lane: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed:
    """A rank cannot continue: its operation, phase and file at that time, and the error."""

    rank: int | None
    host: str
    operation: OperationRef | None
    phase: Phase
    file: str
    errno: str
    message: str
    lane: str = ""
    kind: FailureKind = "error"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """All ranks have the job."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """All ranks have imported the engine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostsSeen:
    """The hosts of a launch without a measurement; ``views`` if each must find files of others in the target.

    ``tiers`` is each host's view of a local tier, if the run needs one. ``lacks`` names, by host, the libraries of the
    run's engines that are not installed there.
    """

    hosts: tuple[HostFacts, ...]
    views: tuple[TargetView, ...] = ()
    tiers: tuple[TierView, ...] = ()
    lacks: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasurementStarted:
    """The following events belong to this subject."""

    subject: Subject


@dataclass(frozen=True, kw_only=True, slots=True)
class DepthChosen:
    """How many requests a rank has in flight in this subject's measurement."""

    subject: Subject
    depth: RequestDepth


@dataclass(frozen=True, kw_only=True, slots=True)
class CeilingsMeasured:
    """The most that each host can reach without storage, before the first save of this subject."""

    subject: Subject
    ceilings: tuple[ClientCeiling, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class OperationStarted:
    """All ranks are about to begin an operation."""

    operation: OperationRef


@dataclass(frozen=True, kw_only=True, slots=True)
class OperationDone:
    """All ranks have ended an operation of a subject's own."""

    subject: Subject
    operation: Operation


@dataclass(frozen=True, kw_only=True, slots=True)
class StepDone:
    """All ranks have ended a step other than the subject's own saves and loads: its number in its kind, and its time.

    It is not judged: it shows the progress of a run. ``seconds`` would be the moment of its line.
    """

    subject: Subject
    kind: StepKind
    index: int
    step_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class HostsWaited:
    """Before a clock starts, all hosts have looked for another host's files; ``late`` lists the hosts that waited."""

    subject: Subject
    awaited: Awaited
    late: tuple[DelayedHost, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class DurabilityCounted:
    """The durable calls of all saves of a subject."""

    subject: Subject
    durability: Durability


@dataclass(frozen=True, kw_only=True, slots=True)
class IntegrityCompared:
    """The comparison of all loads of a subject so far."""

    subject: Subject
    integrity: Integrity


@dataclass(frozen=True, kw_only=True, slots=True)
class PatternMeasured:
    """The result of a pattern, or with ``found`` None the reason why it was not measured."""

    subject: Subject
    name: Pattern
    found: object = None
    not_run: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandAsked:
    """Rank 0 wants the controller to run a command of the user's now."""

    subject: Subject
    command: Command


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandEnded:
    """The controller has run a command of the user's, with this result."""

    subject: Subject
    run: CommandRun


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasurementDone:
    """Everything of a subject was measured; the facts that only its end shows. ``stages`` are rank 0's seconds."""

    subject: Subject
    cache: CacheFacts
    ranks: tuple[RankFacts, ...]
    engine_facts: dict[str, str] = field(default_factory=dict)
    requests: tuple[Requests, ...] = ()
    retention: Retention | None = None
    data: DataEffect | None = None
    client_proofs: ClientProofs | None = None
    host_loads: tuple[HostLoad, ...] = ()
    stages: dict[str, float] = field(default_factory=dict)


Event = (
    Hello
    | Beat
    | Failed
    | Ready
    | Imported
    | HostsSeen
    | MeasurementStarted
    | DepthChosen
    | CeilingsMeasured
    | OperationStarted
    | OperationDone
    | StepDone
    | HostsWaited
    | DurabilityCounted
    | IntegrityCompared
    | PatternMeasured
    | CommandAsked
    | CommandEnded
    | MeasurementDone
    | Call
)

KINDS: dict[str, type[Event]] = {
    "hello": Hello,
    "beat": Beat,
    "failed": Failed,
    "ready": Ready,
    "imported": Imported,
    "hosts": HostsSeen,
    "measuring": MeasurementStarted,
    "depth": DepthChosen,
    "ceilings": CeilingsMeasured,
    "start": OperationStarted,
    "operation": OperationDone,
    "step": StepDone,
    "looked": HostsWaited,
    "durability": DurabilityCounted,
    "integrity": IntegrityCompared,
    "pattern": PatternMeasured,
    "command": CommandAsked,
    "command ended": CommandEnded,
    "measured": MeasurementDone,
    CALL: Call,
}
_NAMES = {kind: name for name, kind in KINDS.items()}


def event_to_plain(event: Event) -> dict[str, Any]:
    """Return an event as the JSON object of a line."""
    return plain_of(_NAMES[type(event)], event)


def event_from_plain(data: Any) -> Event:
    """Return the event of a JSON object. Raises ValueError for an unknown one."""
    if not isinstance(data, dict) or str(data.get("event")) not in KINDS:
        raise ValueError("it is not an event of a run")
    kind = KINDS[data["event"]]
    try:
        if kind is PatternMeasured:
            found = from_plain(Patterns, {data["name"]: data.get("found")}).found(data["name"])
            return from_plain(PatternMeasured, {**data, "found": None}) if found is None else _pattern(data, found)
        return from_plain(kind, data)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"its event '{data['event']}' cannot be read: {error}") from None


def to_line(event: Event) -> str:
    """Return an event as the line, with its end, that a process writes."""
    return line_of(_NAMES[type(event)], event)


def from_line(line: str) -> tuple[str, Event | None]:
    """Return the text before an event in a line of a process, and the event; an incomplete one is not an event.

    A launcher that ends in a hurry, or a child, writes into the same line.
    """
    before, mark, text = line.partition(MARK)
    if not mark:
        return line, None
    try:
        data, _ = json.JSONDecoder().raw_decode(text)
        return before, event_from_plain(data)
    except ValueError:
        return line, None


@dataclass(kw_only=True, slots=True)
class SubjectEvents:
    """The reports so far; ``end`` is None until everything was measured."""

    subject: Subject
    operations: list[Operation] = field(default_factory=list)
    depth: RequestDepth | None = None
    client_ceilings: tuple[ClientCeiling, ...] = ()
    durability: Durability | None = None
    integrity: Integrity | None = None
    found: dict[str, object] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    looks: list[tuple[Awaited, tuple[DelayedHost, ...]]] = field(default_factory=list)
    end: MeasurementDone | None = None

    def take(self, event: Event) -> None:
        """Take in an event; one without a subject changes no field."""
        if isinstance(event, OperationDone):
            self.operations.append(event.operation)
        elif isinstance(event, DepthChosen):
            self.depth = event.depth
        elif isinstance(event, CeilingsMeasured):
            self.client_ceilings = event.ceilings
        elif isinstance(event, HostsWaited):
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
        """The patterns; None if no pattern was reported."""
        if not self.found and not self.not_run:
            return None
        return Patterns(**self.found, not_run=self.not_run)  # type: ignore[arg-type]  # each under its own name

    @property
    def facts(self) -> dict[str, Any]:
        """The fields of a measurement that rank 0 reports, with their values."""
        end = self.end
        return {
            "operations": tuple(self.operations),
            "depth": self.depth,
            "client_ceilings": self.client_ceilings,
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
            "host_loads": end.host_loads if end else (),
            "host_waits": added_up(self.looks),
        }


def events_by_subject(events: Iterable[Event]) -> dict[Subject, SubjectEvents]:
    """Return the reports of rank 0 on each subject; of a subject that was measured several times, the last."""
    subjects: dict[Subject, SubjectEvents] = {}
    now: SubjectEvents | None = None
    for event in events:
        if isinstance(event, MeasurementStarted):
            now = subjects[event.subject] = SubjectEvents(subject=event.subject)
        elif isinstance(event, PatternMeasured) and event.subject in subjects:
            # One of them is measured in a separate launch, when all others are over.
            subjects[event.subject].take(event)
        elif now:
            now.take(event)
    return subjects


def _pattern(data: dict[str, Any], found: object) -> PatternMeasured:
    return PatternMeasured(subject=Subject.from_text(data["subject"]), name=data["name"], found=found)

"""Events: the messages by which a run's processes report to its controller.

An event is a JSON object whose field ``event`` names its kind (`KINDS`). Every rank sends the events hello, beat and
failed over its connection to report its activity. Rank 0 also reports results. A check of behaviour reports each call
before the check makes the call. A process without a connection prints the event as a line: a mark, then the object.
``events.jsonl`` stores the events of rank 0, with the seconds since the start of the launch.

`SubjectEvents` collects the events of rank 0 on one subject (a checkpoint layout, and how it is saved). These events
are the input of a measurement.
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
    """A rank has started: its number, host and process id."""

    rank: int
    host: str
    pid: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Beat:
    """The activity of a rank in one of its lanes (concurrent activities).

    ``waiting``: the lane waits for other ranks or for work. ``progress`` has two counts: bytes that the lane
    transferred, and modules that the rank's process imported.
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
    """A rank cannot continue because of an error.

    The event contains the rank's operation, phase and file at the time of the error.
    """

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
    """All ranks have received their job."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """All ranks have imported the engine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostsSeen:
    """The hosts of a launch, reported before the first measurement of the launch.

    - ``views``: each host's view of the target, if several hosts share the target.
    - ``tiers``: each host's view of its local tier, if the run needs local tiers.
    - ``lacks``: {host: libraries of the run's engines that are missing on the host}.
    """

    hosts: tuple[HostFacts, ...]
    views: tuple[TargetView, ...] = ()
    tiers: tuple[TierView, ...] = ()
    lacks: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasurementStarted:
    """The measurement of ``subject`` starts. The following events belong to this subject."""

    subject: Subject


@dataclass(frozen=True, kw_only=True, slots=True)
class DepthChosen:
    """The number of requests that each rank keeps in flight during the measurement of ``subject``."""

    subject: Subject
    depth: RequestDepth


@dataclass(frozen=True, kw_only=True, slots=True)
class CeilingsMeasured:
    """The highest rates of each host without storage, measured before the first save of ``subject``."""

    subject: Subject
    ceilings: tuple[ClientCeiling, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class OperationStarted:
    """All ranks are about to begin an operation."""

    operation: OperationRef


@dataclass(frozen=True, kw_only=True, slots=True)
class OperationDone:
    """All ranks have ended one of the subject's own saves or loads (those outside of all patterns)."""

    subject: Subject
    operation: Operation


@dataclass(frozen=True, kw_only=True, slots=True)
class StepDone:
    """All ranks have ended a step of an additional measurement, such as a pattern.

    The event only shows the progress of a run. ``index`` is the number of the step within its kind. ``step_seconds`` is
    the time of the step. The field is not named ``seconds``, because ``events.jsonl`` stores the time of each event
    under this name.
    """

    subject: Subject
    kind: StepKind
    index: int
    step_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class HostsWaited:
    """All hosts have looked for entries (directories, names or data) that another host created.

    The clock of an operation starts after these looks. ``late`` contains the hosts that had to wait for an entry.
    """

    subject: Subject
    awaited: Awaited
    late: tuple[DelayedHost, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class DurabilityCounted:
    """The counts of files, directories and commits that became durable, over all saves of a subject."""

    subject: Subject
    durability: Durability


@dataclass(frozen=True, kw_only=True, slots=True)
class IntegrityCompared:
    """The result of the comparison of loaded bytes with saved bytes, over all loads of a subject so far."""

    subject: Subject
    integrity: Integrity


@dataclass(frozen=True, kw_only=True, slots=True)
class PatternMeasured:
    """The result of a pattern (``found``), or the reason why the pattern was not measured (``not_run``)."""

    subject: Subject
    name: Pattern
    found: object = None
    not_run: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandRequested:
    """Rank 0 asks the controller to run a user command now."""

    subject: Subject
    command: Command


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandEnded:
    """The controller has run a user command. ``run`` is the result."""

    subject: Subject
    run: CommandRun


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasurementDone:
    """The measurement of a subject is complete in this launch. The fields are known only at the end.

    ``stages`` is {activity: seconds of rank 0}.
    """

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
    | CommandRequested
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
    "command": CommandRequested,
    "command ended": CommandEnded,
    "measured": MeasurementDone,
    CALL: Call,
}
_NAMES = {kind: name for name, kind in KINDS.items()}


def event_to_plain(event: Event) -> dict[str, Any]:
    """Return an event as the JSON object of a line."""
    return plain_of(_NAMES[type(event)], event)


def event_from_plain(data: Any) -> Event:
    """Return the event of a JSON object. Raises ValueError for an unknown or unreadable event."""
    if not isinstance(data, dict) or str(data.get("event")) not in KINDS:
        raise ValueError("it is not an event of a run")
    kind = KINDS[data["event"]]
    try:
        if kind is PatternMeasured:
            found = from_plain(Patterns, {data["name"]: data.get("found")}).result_of(data["name"])
            return from_plain(PatternMeasured, {**data, "found": None}) if found is None else _pattern(data, found)
        return from_plain(kind, data)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"its event '{data['event']}' cannot be read: {error}") from None


def to_line(event: Event) -> str:
    """Return the event as a line with its line end."""
    return line_of(_NAMES[type(event)], event)


def from_line(line: str) -> tuple[str, Event | None]:
    """Return (text before the event, event) of a line. If the line contains no complete event, return (the line, None).

    A launcher or a child process may write text into the same line as an event.
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
    """The events on one subject so far. ``end`` is the event `MeasurementDone`; None before this event."""

    subject: Subject
    operations: list[Operation] = field(default_factory=list)
    depth: RequestDepth | None = None
    client_ceilings: tuple[ClientCeiling, ...] = ()
    durability: Durability | None = None
    integrity: Integrity | None = None
    found: dict[str, object] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    host_waits: list[tuple[Awaited, tuple[DelayedHost, ...]]] = field(default_factory=list)
    end: MeasurementDone | None = None

    def record(self, event: Event) -> None:
        """Add an event. An event without values for a measurement is ignored."""
        if isinstance(event, OperationDone):
            self.operations.append(event.operation)
        elif isinstance(event, DepthChosen):
            self.depth = event.depth
        elif isinstance(event, CeilingsMeasured):
            self.client_ceilings = event.ceilings
        elif isinstance(event, HostsWaited):
            self.host_waits.append((event.awaited, event.late))
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
        """The results of all reported patterns; None if no pattern was reported."""
        if not self.found and not self.not_run:
            return None
        return Patterns(**self.found, not_run=self.not_run)  # type: ignore[arg-type]  # each under its own name

    @property
    def facts(self) -> dict[str, Any]:
        """{field of `Measurement`: value} for the fields that rank 0 reports."""
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
            "host_waits": added_up(self.host_waits),
        }


def events_by_subject(events: Iterable[Event]) -> dict[Subject, SubjectEvents]:
    """Return {subject: events on this subject} from the events of rank 0.

    If a subject was measured several times, the result has only the events of the subject's last measurement.
    """
    subjects: dict[Subject, SubjectEvents] = {}
    now: SubjectEvents | None = None
    for event in events:
        if isinstance(event, MeasurementStarted):
            now = subjects[event.subject] = SubjectEvents(subject=event.subject)
        elif isinstance(event, PatternMeasured) and event.subject in subjects:
            # One of the patterns is measured in a separate launch after all others.
            subjects[event.subject].record(event)
        elif now:
            now.record(event)
    return subjects


def _pattern(data: dict[str, Any], found: object) -> PatternMeasured:
    return PatternMeasured(subject=Subject.from_text(data["subject"]), name=data["name"], found=found)

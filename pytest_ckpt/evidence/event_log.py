"""What rank 0 told, line by line, as ``events.jsonl`` keeps it: whether a run can have told it so.

The order of the events is that of the work: ranks are ready, have imported the engine, begin with a subject, start an
operation and end it. Their seconds are of one clock a launch. Of the bytes that were compared, each load adds its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from pytest_ckpt.facts.events import (
    CommandAsked,
    CommandEnded,
    Event,
    Imported,
    IntegrityCompared,
    MeasurementBegun,
    MeasurementDone,
    OperationDone,
    OperationStarted,
    PatternMeasured,
    Ready,
    event_from_plain,
    event_to_plain,
)
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.facts.proofs import Integrity
from pytest_ckpt.facts.subject import OperationRef, OwnPattern, Subject
from pytest_ckpt.support.strict_json import parse

# Moments are written to the microsecond.
_MOMENT_SECONDS = 1e-6


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """One line: the seconds since its launch began, and what was told. ``extra``: it says more than its event."""

    line: int
    seconds: float
    event: Event
    extra: bool


def read_log(lines: Iterable[bytes]) -> Iterator[Told]:
    """Yield the lines of an ``events.jsonl``. Raises ValueError for a line that holds no event."""
    for number, text in enumerate(lines, 1):
        plain = parse(text)
        event = event_from_plain(plain)
        seconds = plain.get("seconds")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise ValueError(f"line {number} does not say when it was told")
        yield Told(
            line=number, seconds=seconds, event=event, extra={"seconds": seconds, **event_to_plain(event)} != plain
        )


def log_faults(
    log: Sequence[Told], measurements: Mapping[Subject, Measurement], run_seconds: float | None
) -> Iterator[str]:
    """Yield a sentence for every line that no run with these measurements can have told where it stands.

    ``run_seconds`` is how long the run went on, None where nobody knows.
    """
    for launch in _launches(log):
        yield from _order(launch)
        yield from _moments(launch, run_seconds)
        yield from _compared(launch, measurements)


def more_than_told(log: Iterable[Told]) -> Iterator[str]:
    """Yield a sentence for every line that holds something beside its event; only for those of this version."""
    for entry in log:
        if entry.extra:
            yield f"line {entry.line} holds more than its event"


def stage_faults(log: Sequence[Told], measurements: Mapping[Subject, Measurement]) -> Iterator[str]:
    """Yield where a measurement's stages are not what rank 0 told, or fit no moment of its launch."""
    for launch in _launches(log):
        subject = next((t.event.subject for t in launch if isinstance(t.event, MeasurementBegun)), None)
        first = measurements.get(subject) if subject else None
        if first and len(launch) > 2:
            ready, imported, after = (entry.seconds for entry in launch[:3])
            begun = first.stages.get("launch", 0.0)
            both = begun + first.stages.get("import", 0.0)
            if not _between(ready, begun, imported) or not _between(imported, both, after):
                yield f"the stages launch and import of {subject} are not of the moments in its lines 1 to 3"
        for entry in launch:
            if isinstance(entry.event, MeasurementDone) and (found := measurements.get(entry.event.subject)):
                for name, seconds in entry.event.stages.items():
                    if found.stages.get(name) != seconds:
                        yield f"the stage '{name}' of {found.subject} took {seconds} s, its measurement says otherwise"


def _between(low: float, value: float, high: float) -> bool:
    return low - _MOMENT_SECONDS <= value <= high + _MOMENT_SECONDS


def _launches(log: Sequence[Told]) -> Iterator[list[Told]]:
    """Yield the lines of each launch; one begins when all ranks are ready, or without them where they never were.

    A launch in which commands change the storage tells of nothing else, so its lines are none of the launch before.
    """
    launch: list[Told] = []
    for entry in log:
        measures = any(isinstance(t.event, MeasurementBegun) for t in launch)
        if launch and (isinstance(entry.event, Ready) or (measures and _is_of_own_launch(entry.event))):
            yield launch
            launch = []
        launch.append(entry)
    if launch:
        yield launch


def _is_of_own_launch(event: Event) -> bool:
    """Whether an event is told by a launch in which commands change the storage."""
    if isinstance(event, PatternMeasured):
        return event.name in get_args(OwnPattern)
    return isinstance(event, CommandAsked | CommandEnded)


def _order(launch: Sequence[Told]) -> Iterator[str]:
    """Yield the lines that cannot stand where they do."""
    begins = (Ready, Imported)
    rest = [entry for entry in launch if not isinstance(entry.event, begins)]
    if rest and all(_is_of_own_launch(entry.event) for entry in rest):
        subjects = {getattr(entry.event, "subject", None) for entry in rest}
        heads = [type(entry.event) for entry in launch[: len(launch) - len(rest)]]
        if len(subjects) > 1 or heads != list(begins[: len(heads)]):
            yield f"line {launch[0].line}: a launch with commands is of one subject, and begins with its ranks"
        return
    now: Subject | None = None
    started: OperationRef | None = None
    for number, entry in enumerate(launch):
        event, at = entry.event, f"line {entry.line}"
        if number < len(begins) and not isinstance(event, begins[number]):
            yield f"{at}: a launch begins with 'ready' and 'imported'"
            return
        if number < len(begins):
            continue
        if isinstance(event, MeasurementBegun):
            if now:
                yield f"{at}: {event.subject} begins before {now} was measured"
            now, started = event.subject, None
            continue
        of = event.operation.subject if isinstance(event, OperationStarted) else getattr(event, "subject", None)
        if now is None or of != now:
            yield f"{at} tells of {of}, and {f'{now} is being measured' if now else 'nothing is being measured'}"
            return
        if isinstance(event, OperationStarted):
            # Saves in a scenario are told when they start, and all together when they are over.
            started = None if event.operation.scenario else event.operation
            if started and started != OperationRef(subject=now, action=started.action, index=started.index):
                yield f"{at}: {started} is no operation of the subject's own"
        elif isinstance(event, OperationDone):
            done = OperationRef(subject=now, action=event.operation.kind, index=event.operation.index)
            # A save that is counted has the number of its checkpoint.
            if started != done:
                yield f"{at}: {done} has ended, and {started or 'nothing'} was started"
            started = None
        elif isinstance(event, MeasurementDone):
            now = None


def _moments(launch: Sequence[Told], run_seconds: float | None) -> Iterator[str]:
    """Yield where a clock went backwards, or on when the run was over."""
    before = 0.0
    for entry in launch:
        if entry.seconds < before:
            yield f"line {entry.line} was told after {entry.seconds} s, and the line before after {before} s"
        before = entry.seconds
    if run_seconds is not None and before > run_seconds + _MOMENT_SECONDS:
        yield f"line {launch[-1].line} was told after {before} s, and the run had {run_seconds:.6f} s"


def _compared(launch: Sequence[Told], measurements: Mapping[Subject, Measurement]) -> Iterator[str]:
    """Yield where what was compared is not what was compared before, and at most one checkpoint more."""
    before: Integrity | None = None
    for entry in launch:
        if isinstance(entry.event, MeasurementBegun):
            before = None
        elif isinstance(entry.event, IntegrityCompared) and (found := measurements.get(entry.event.subject)):
            now = entry.event.integrity
            if wrong := _step(before, now, max(found.load_bytes, default=found.bytes)):
                yield f"line {entry.line}: {wrong}"
            before = now


def _step(before: Integrity | None, now: Integrity, checkpoint_bytes: int) -> str:
    checked = before.bytes_checked if before else 0
    if before and now.bytes_expected != before.bytes_expected:
        return f"{now.bytes_expected:,} bytes were to be compared, and {before.bytes_expected:,} before"
    if not 0 <= now.bytes_checked - checked <= checkpoint_bytes:
        return f"{now.bytes_checked:,} bytes were compared, {checked:,} before, and a load has {checkpoint_bytes:,}"
    if before and (now.fault_count < before.fault_count or now.faults[: len(before.faults)] != before.faults):
        return "faults that were found before are gone"
    return ""


def plain_events(log: Iterable[Told]) -> Iterator[Event]:
    """Yield the events alone."""
    for entry in log:
        yield entry.event

"""Files of a run with several starts. ``--ckpt-resume`` starts an interrupted run again.

When start 2 begins, ``starts/1/`` receives the files of start 1: ``start.json``, the session, the plan, the events
and the report. ``starts/1/interrupted_work/`` receives the incomplete measurements of start 1.
``starts/1/replaced/`` receives the measurements of start 1 whose conditions differ from the conditions of start 2.
``starts/2/added/`` contains the measurements of start 2 that add access patterns to a measurement of start 1. Later
starts follow the same scheme.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_ckpt.evidence.run_files import EVENTS, fitting, read_file, read_measurement, read_measurements
from pytest_ckpt.facts.events import (
    Event,
    MeasurementDone,
    MeasurementStarted,
    OperationDone,
    OperationStarted,
    event_from_plain,
)
from pytest_ckpt.facts.failure import Failure, describe_failure
from pytest_ckpt.facts.measurement import Measurement, Operation, with_patterns_of
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.starts import End, InterruptedWork, Start, is_interruption
from pytest_ckpt.judging.verdicts import AdditionalMeasurement
from pytest_ckpt.sizing.plan import Plan
from pytest_ckpt.support.strict_json import parse, read_lines

START, BROKEN_OFF, REPLACED, ADDED = "start.json", "interrupted_work", "replaced", "added"
_STARTS = "starts"


def directory_of_start(directory: Path, number: int) -> Path:
    """Return the directory of a start within the run directory. Starts are numbered from 1."""
    return directory / _STARTS / str(number)


def event_files(directory: Path) -> list[Path]:
    """Return the event files of all starts, oldest first."""
    return [*(file for place in _places(directory) if (file := place / EVENTS).exists()), directory / EVENTS]


def earlier_starts(directory: Path) -> tuple[Start, ...]:
    """Return the starts before the newest start, oldest first. Raises UsageError for an invalid file."""
    return tuple(fitting(Start, read_file(place / START)) for place in _places(directory) if (place / START).exists())


def _places(directory: Path) -> list[Path]:
    places = (place for place in (directory / _STARTS).glob("*") if place.name.isdecimal())
    return sorted(places, key=lambda place: int(place.name))


def completed(
    directory: Path, plan: Plan, without: Callable[[Failure | None], bool] = lambda _failure: False
) -> list[Measurement]:
    """Return the measurements of a run in the order of its plan, with the access patterns that later starts added.

    A measurement is left out if ``without`` returns true for its failure. Raises UsageError for an invalid file.
    """
    added = _read(directory, ADDED, plan)
    measurements = []
    for measurement in read_measurements(directory, plan):
        whole = measurement
        for other in added.get(str(measurement.subject), ()):
            if not without(other.measurement.failure):
                whole = with_patterns_of(whole, other.measurement)
        if not without(measurement.failure):
            measurements.append(whole)
    return measurements


def additional_measurements(directory: Path, plan: Plan) -> dict[str, tuple[AdditionalMeasurement, ...]]:
    """Return {subject: its additional measurements}.

    An additional measurement was interrupted, or it only adds access patterns to the main measurement. Raises
    UsageError for an invalid file.
    """
    by_kind = [_read(directory, kind, plan) for kind in (BROKEN_OFF, ADDED)]
    subjects = dict.fromkeys(subject for others in by_kind for subject in others)
    return {subject: tuple(o for others in by_kind for o in others.get(subject, ())) for subject in subjects}


def _read(directory: Path, kind: str, plan: Plan) -> dict[str, list[AdditionalMeasurement]]:
    found: dict[str, list[AdditionalMeasurement]] = {}
    for place in _places(directory):
        for planned in plan.checkpoints:
            file = place / kind / f"{planned.subject.slug}.json"
            if file.exists():
                measurement = read_measurement(file, planned)
                # Interrupted work is moved when the next start begins.
                other = AdditionalMeasurement(start=int(place.name), measurement=measurement)
                found.setdefault(str(planned.subject), []).append(other)
    return found


def all_starts(
    directory: Path,
    run: Mapping[str, Any],
    exit_code: int | None,
    measurements: Sequence[Measurement],
    observations: Sequence[Observation],
) -> tuple[Start, ...]:
    """Return all starts of a run, newest last. ``run`` is the section ``run`` of the report.

    ``exit_code`` is None if the run was killed. Raises UsageError for an invalid file.
    """
    earlier = earlier_starts(directory)
    names = _names(measurements, observations) - measured_before(earlier)
    added = directory_of_start(directory, len(earlier) + 1) / ADDED
    names |= {
        f"patterns of {m.subject}"
        for m in measurements
        if (added / f"{m.subject.slug}.json").exists() and not is_interruption(m.failure)
    }
    ends: Mapping[int | None, End] = {2: "interrupted", 3: "crashed"}
    end: End = "finished" if run["finished"] else "killed"
    newest = Start(
        number=len(earlier) + 1,
        id=run["id"],
        started=run["started"],
        ended=run["finished"],
        end=ends.get(exit_code, end),
        command=tuple(run["command"]),
        suites=tuple(run.get("suites") or ()),
        hosts=tuple(run.get("hosts") or ()),
        measured=tuple(sorted(names)),
        interrupted_work=interrupted_work(directory, [m for m in measurements if is_interruption(m.failure)]),
    )
    return (*earlier, newest)


def _names(measurements: Sequence[Measurement], observations: Sequence[Observation]) -> set[str]:
    subjects = {str(m.subject) for m in measurements if not is_interruption(m.failure)}
    return subjects | {f"{o.requirement}.{o.subject}" for o in observations}


def measured_before(starts: Sequence[Start]) -> set[str]:
    """Return the names of the measurements and checks that the given starts completed.

    If a later start replaced a measurement, its name is left out.
    """
    names: set[str] = set()
    for start in starts:
        names |= set(start.measured)
        names -= {replaced.name for replaced in start.replaced}
    return names


def interrupted_work(directory: Path, measurements: Sequence[Measurement]) -> tuple[InterruptedWork, ...]:
    """Return a description of each incomplete measurement in ``measurements``.

    The description contains the operation that was running when the start ended.
    """
    running = running_operations(directory)
    return tuple(
        InterruptedWork(
            name=str(m.subject),
            operation=running.get(str(m.subject), ""),
            operations=len(m.operations),
            why=describe_failure(m.failure) if m.failure else "",
        )
        for m in measurements
    )


def running_operations(directory: Path) -> dict[str, str]:
    """Return {subject: the operation that started last} for each incomplete subject of the newest start."""
    running: dict[str, str] = {}
    for event in newest_events(directory):
        if isinstance(event, MeasurementStarted):
            running[str(event.subject)] = ""
        elif isinstance(event, OperationStarted):
            subject = str(event.operation.subject)
            running[subject] = str(event.operation).removeprefix(subject).strip()
        elif isinstance(event, MeasurementDone):
            running.pop(str(event.subject), None)
    return running


def newest_events(directory: Path) -> Iterator[Event]:
    """Yield the events of the newest start, up to the first incomplete line."""
    with contextlib.suppress(OSError, ValueError):
        for line in read_lines(directory / EVENTS):
            yield event_from_plain(parse(line))


def ends_of(directory: Path, measurement: Measurement) -> tuple[float, ...]:
    """Return the end times of a measurement's operations, in the order of the measurement.

    The unit is seconds since the start of the launch. The result is empty if the events do not contain exactly these
    operations.
    """
    listed: list[tuple[Operation, float]] = []
    wanted = list(measurement.operations)
    try:
        for line in _lines(directory):
            plain = parse(line)
            event = event_from_plain(plain)
            if isinstance(event, MeasurementStarted) and event.subject == measurement.subject:
                if [operation for operation, _ in listed] == wanted:
                    # Later events belong to added patterns.
                    break
                listed = []
            elif isinstance(event, OperationDone) and event.subject == measurement.subject:
                listed.append((event.operation, float(plain["seconds"])))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return ()
    if [operation for operation, _ in listed] != wanted:
        return ()
    return tuple(seconds for _, seconds in listed)


def _lines(directory: Path) -> Iterator[bytes]:
    """Yield the complete lines of the event files of all starts."""
    for file in event_files(directory):
        for line in read_lines(file):
            if line.endswith(b"\n"):
                yield line

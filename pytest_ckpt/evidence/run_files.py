"""Reads the files of a run directory, compares each file with its schema, and rejects contradictory facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pytest_ckpt.facts.codec import Record, from_plain, to_plain
from pytest_ckpt.facts.measurement import Measurement, Operation
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.starts import Start
from pytest_ckpt.facts.written import fault
from pytest_ckpt.grading.document import SCHEMA, Report
from pytest_ckpt.sizing.plan import Plan, PlannedCheckpoint
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.strict_json import parse, read

VERIFY_REMEDY = "pytest-ckpt verify lists the changed files of the directory."
_MAXIMUM_REPORTED = 5
_KINDS = ("save", "load")
# Clocks have a resolution of a nanosecond, and times are summed as floats.
_CLOCK_SECONDS = 1e-6

_RECORDS: Mapping[str, type[Any]] = {
    "measurements/*.json": Measurement,
    "observations/*.json": Observation,
    "starts/*/added/*.json": Measurement,
    "starts/*/interrupted_work/*.json": Measurement,
    "starts/*/start.json": Start,
}

Document = dict[str, Any]
"""A report read from a file and validated against its schema."""
ReadDocument = Mapping[str, Any]
"""A report for read-only use."""

REPORT, SESSION, PLAN, EVENTS = "report.json", "session.json", "plan.json", "events.jsonl"


def read_report(directory: Path) -> Document:
    """Return the report of a run directory. Raises UsageError if the report is missing or invalid."""
    file = directory / REPORT
    report = read_file(file)
    if not isinstance(report, dict) or not str(report.get("schema", "")).startswith("pytest-ckpt/report/"):
        raise UsageError(f"{file} is not a report of pytest-ckpt.", "Name the directory of a run, such as ckpt-report.")
    if report["schema"] != SCHEMA:
        raise UsageError(
            f"{file} follows {report['schema']:.60}, which this version does not know.",
            "Judge it with the version of pytest-ckpt that made the run, or a newer one.",
        )
    if wrong := fault(report, Report):
        raise not_ours(file, "follows no schema of pytest-ckpt", [wrong])
    return report


def read_measurements(directory: Path, plan: Plan) -> list[Measurement]:
    """Return the measurements of a run directory, in the order of its plan. Raises UsageError for an invalid file."""
    files = [(directory / "measurements" / f"{planned.subject.slug}.json", planned) for planned in plan.checkpoints]
    return [read_measurement(file, planned) for file, planned in files if file.exists()]


def read_measurement(file: Path, planned: PlannedCheckpoint) -> Measurement:
    """Return the measurement of a planned checkpoint. Raises UsageError for an invalid file."""
    measurement = _read_record(file, Measurement, "measurement")
    if wrong := _contradictions(measurement, planned):
        raise not_ours(file, "is not a measurement of this run", wrong)
    return measurement


def read_observations(directory: Path) -> list[Observation]:
    """Return the results of a run's checks (observations). Raises UsageError for an invalid file."""
    observations = []
    for file in sorted((directory / "observations").glob("*.json")):
        observation = _read_record(file, Observation, "observation")
        name = f"{observation.requirement}.{observation.subject}"
        if file.stem != name:
            raise not_ours(file, "is of another check", [f"it contains the observation of {name}"])
        if wrong := _observation_contradictions(observation):
            raise not_ours(file, "is not an observation of a run", wrong)
        observations.append(observation)
    return observations


def _read_record(file: Path, kind: type[Record], part: Literal["measurement", "observation"]) -> Record:
    plain = read_file(file)
    try:
        return fitting(kind, plain)
    except (TypeError, ValueError) as error:
        raise not_ours(file, f"is not a {part} of pytest-ckpt", [str(error)]) from None


def fitting(kind: type[Record], plain: Any) -> Record:
    """Return a record from plain JSON types, after a check against the record's schema.

    Raises TypeError for values that the schema does not permit. Raises ValueError if the name of a subject is invalid.
    """
    if wrong := fault(plain, kind):
        raise TypeError(f"{kind.__name__.lower()}: {wrong}")
    return from_plain(kind, plain)


def read_file(file: Path) -> Any:
    """Return the JSON content of a file. Raises UsageError if the file cannot be read or parsed."""
    try:
        return parse(read(file))
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}.",
            "Name the directory of a run, such as ckpt-report, or of results of DLIO.",
        ) from None
    except ValueError as error:
        raise UsageError(f"{file} is not JSON: {error}.", "Name the directory of a run that ended.") from None


def not_ours(file: Path, what: str, wrong: list[str]) -> UsageError:
    """Return the error for a file with content that no run writes.

    ``what`` describes the error, ``wrong`` lists its details.
    """
    more = f"; and {len(wrong) - _MAXIMUM_REPORTED} more" if len(wrong) > _MAXIMUM_REPORTED else ""
    return UsageError(f"{file} {what}: {'; '.join(wrong[:_MAXIMUM_REPORTED])}{more}.", VERIFY_REMEDY)


def odd_records(directory: Path) -> Iterator[str]:
    """Yield the names of files whose content no run writes.

    Such a file is invalid, or its content would change if the file were read as a record and written again. Raises
    UsageError for a file that cannot be read.
    """
    for pattern, kind in _RECORDS.items():
        for file in sorted(directory.glob(pattern)):
            plain = read_file(file)
            try:
                is_odd = to_plain(from_plain(kind, plain)) != plain
            except (TypeError, ValueError, AttributeError):
                is_odd = True
            if is_odd:
                yield file.relative_to(directory).as_posix()


def _contradictions(measurement: Measurement, planned: PlannedCheckpoint) -> list[str]:
    """Return the contradictions within a measurement, and between the measurement and its plan."""
    shards = planned.layout
    expected = {
        "subject": planned.subject,
        "model": shards.model.name,
        "mode": shards.mode,
        "engine": planned.engine.name,
        "processes": shards.processes,
        "scale": shards.scale,
        "bytes": shards.bytes,
        "full_bytes": shards.full_bytes,
        "operations_planned": planned.operations,
        "rank_bytes": shards.rank_bytes,
        "basis": "all ranks",
        "save_bytes": planned.save_bytes,
        "load_bytes": planned.load_bytes,
        "drains": planned.drains,
    }
    contradictions = [
        f"its {name} is {short(getattr(measurement, name))}, the plan's is {short(value)}"
        for name, value in expected.items()
        if getattr(measurement, name) != value
    ]
    if contradictions:
        return contradictions
    for kind in _KINDS:
        numbers = [o.index for o in measurement.operations if o.kind == kind]
        if numbers != list(range(1, len(numbers) + 1)) or len(numbers) > planned.operations:
            contradictions.append(f"its {kind}s are numbered {short(numbers)}, and {planned.operations} were planned")
    contradictions += [
        f"{o.kind} {o.index}: {text}" for o in measurement.operations for text in _of_operation(o, measurement)
    ]
    integrity, durability = measurement.integrity, measurement.durability
    whole = planned.loaded_bytes
    if integrity and integrity.fault_count < len(integrity.faults):
        contradictions.append(f"it names {len(integrity.faults)} faults and counts {integrity.fault_count}")
    if integrity and integrity.bytes_expected != whole:
        contradictions.append(f"{integrity.bytes_expected:,} bytes were to be compared, and its loads are of {whole:,}")
    saves = sum(o.kind == "save" for o in measurement.operations)
    if durability and (durability.saves, durability.files) != (saves, planned.files_of_saves(saves)):
        contradictions.append(
            f"durable calls are recorded for {durability.files:,} files in {durability.saves} saves, and there were "
            f"{planned.files_of_saves(saves):,} in {saves}"
        )
    return contradictions


def _of_operation(operation: Operation, measurement: Measurement) -> Iterator[str]:
    seconds, ranks = operation.seconds, operation.rank_seconds
    if operation.basis != "all ranks" or len(ranks) != measurement.processes:
        yield f"times of {len(ranks)} of {measurement.processes} ranks ({operation.basis})"
        return
    if max(ranks) > seconds + _CLOCK_SECONDS:
        yield f"it took {seconds:.9g} s, and rank {ranks.index(max(ranks))} took {max(ranks):.9g} s"
    slowest, first = operation.slowest_rank, operation.rank0_seconds
    if slowest is None or slowest >= len(ranks) or ranks[slowest] != max(ranks):
        yield f"rank {slowest} is named as the slowest, and rank {ranks.index(max(ranks))} was"
    if first != ranks[0]:
        yield f"rank 0 took {first} s in one place and {ranks[0]} s in another"
    beyond = [name for name, part in operation.phases.items() if part > seconds + _CLOCK_SECONDS]
    if beyond:
        yield f"its phase {beyond[0]} is longer than the whole"
    if (operation.stalled_seconds or 0.0) > seconds:
        yield f"it took {seconds:.9g} s, and its reads waited for {operation.stalled_seconds:.9g} s"
    blocked = max(operation.returned_seconds or 0.0, operation.staged_seconds or 0.0)
    if (operation.copying_seconds or 0.0) > blocked + _CLOCK_SECONDS:
        yield f"the job waited {blocked:.9g} s, and {operation.copying_seconds:.9g} s of that for a copy of its state"
    if (operation.starved_seconds or 0.0) > seconds:
        yield f"it took {seconds:.9g} s, and a rank waited for a CPU for {operation.starved_seconds:.9g} s"
    if operation.resident_bytes and operation.resident_bytes > (operation.mapped_bytes or 0):
        yield f"{operation.resident_bytes:,} of {operation.mapped_bytes or 0:,} bytes were in a cache"


def _observation_contradictions(observation: Observation) -> list[str]:
    contradictions = []
    if (observation.anomaly_count == 0) != (not observation.anomalies) or (
        observation.anomaly_count < len(observation.anomalies)
    ):
        contradictions.append(f"it names {len(observation.anomalies)} anomalies and counts {observation.anomaly_count}")
    if observation.measured is not None and observation.measured < 0:
        contradictions.append(f"it measured {observation.measured:g} {observation.unit}")
    return contradictions


def short(value: Any) -> str:
    """Return a value as text, truncated to 60 characters."""
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."

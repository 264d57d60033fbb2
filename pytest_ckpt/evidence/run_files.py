"""What a run folder's files hold, read strictly and checked against their schema."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pytest_ckpt.evidence.cross_check import contradictions, observation_contradictions
from pytest_ckpt.evidence.schemas import faults
from pytest_ckpt.facts.codec import Record, from_plain, misfits
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.grading.document import SCHEMA
from pytest_ckpt.sizing.plan import Plan, PlannedCheckpoint
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.strict_json import parse, read

VERIFY_REMEDY = "pytest-ckpt verify says what in the folder is not as its run left it."
_MAXIMUM_TOLD = 5

Document = dict[str, Any]
"""A report as a file holds it, checked against its schema."""
ReadDocument = Mapping[str, Any]
"""The same, for who only reads it."""

REPORT = "report.json"
COMBINED = "combined"
"""What a report of several runs holds, and that of one run does not."""


def read_report(folder: Path) -> Document:
    """Return the report of a run folder. Raises UsageError when there is no report, or one that no run writes."""
    file = folder / REPORT
    report = read_file(file)
    if not isinstance(report, dict) or not str(report.get("schema", "")).startswith("pytest-ckpt/report/"):
        raise UsageError(f"{file} is no report of pytest-ckpt.", "Name the folder of a run, such as ckpt-report.")
    if report["schema"] != SCHEMA:
        raise UsageError(
            f"{file} follows {report['schema']:.60}, which this version does not know.",
            "Judge it with the version of pytest-ckpt that made the run, or a newer one.",
        )
    if COMBINED in report:
        raise UsageError(
            f"{folder} holds a certificate of several runs, and no run.",
            "Name the folders of its runs, or check it with them: pytest-ckpt verify FOLDER RUN1 RUN2 …",
        )
    if wrong := faults(report, "report"):
        raise not_ours(file, "follows no schema of pytest-ckpt", wrong)
    return report


def read_measurements(folder: Path, plan: Plan) -> list[Measurement]:
    """Return the measurements of a run folder, in the order of its plan. Raises UsageError for what is none."""
    files = [(folder / "measurements" / f"{planned.subject.slug}.json", planned) for planned in plan.checkpoints]
    return [_read_measurement(file, planned) for file, planned in files if file.exists()]


def _read_measurement(file: Path, planned: PlannedCheckpoint) -> Measurement:
    measurement = _read_record(file, Measurement, "measurement")
    if wrong := contradictions(measurement, planned):
        raise not_ours(file, "is no measurement of this run", wrong)
    return measurement


def read_observations(folder: Path) -> list[Observation]:
    """Return what the checks of a run saw. Raises UsageError."""
    found = []
    for file in sorted((folder / "observations").glob("*.json")):
        observation = _read_record(file, Observation, "observation")
        name = f"{observation.requirement}.{observation.subject}"
        if file.stem != name:
            raise not_ours(file, "is of another check", [f"it holds what {name} saw"])
        if wrong := observation_contradictions(observation):
            raise not_ours(file, "is no observation of a run", wrong)
        found.append(observation)
    return found


def _read_record(file: Path, kind: type[Record], part: Literal["measurement", "observation"]) -> Record:
    plain = read_file(file)
    if wrong := faults(plain, "report", part):
        raise not_ours(file, f"is no {part} of pytest-ckpt", wrong)
    try:
        record = from_plain(kind, plain)
    except (TypeError, ValueError, AttributeError) as error:
        raise not_ours(file, f"is no {part} of pytest-ckpt", [str(error)]) from None
    if wrong := list(misfits(record)):
        raise not_ours(file, f"is no {part} of pytest-ckpt", wrong)
    return record


def fitting(kind: type[Record], plain: Any) -> Record:
    """Return a record of the report. Raises TypeError for values of other types than a run writes."""
    record = from_plain(kind, plain)
    if wrong := next(misfits(record), ""):
        raise TypeError(f"{kind.__name__.lower()}: {wrong}")
    return record


def read_file(file: Path) -> Any:
    """Return the JSON of a file of the folder. Raises UsageError."""
    try:
        return parse(read(file))
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}.",
            "Name the folder of a run, such as ckpt-report, or of results of DLIO.",
        ) from None
    except ValueError as error:
        raise UsageError(f"{file} is not JSON: {error}.", "Name the folder of a run that ended.") from None


def not_ours(file: Path, what: str, wrong: list[str]) -> UsageError:
    """Return the error for a file that no run of ours wrote in this way."""
    more = f"; and {len(wrong) - _MAXIMUM_TOLD} more" if len(wrong) > _MAXIMUM_TOLD else ""
    return UsageError(f"{file} {what}: {'; '.join(wrong[:_MAXIMUM_TOLD])}{more}.", VERIFY_REMEDY)

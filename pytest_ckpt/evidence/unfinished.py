"""Unfinished runs: the run was opened but not closed. The run is in progress, or its controller was killed.

The directory contains the inputs (``session.json``, ``plan.json``) and all complete measurements.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_ckpt.evidence.manifest import ATTESTATION, MANIFEST
from pytest_ckpt.evidence.run_files import REPORT, SESSION
from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.settings import Settings
from pytest_ckpt.facts.targets import AreaRef, removal_of
from pytest_ckpt.facts.verdict import Verdict
from pytest_ckpt.grading.catalogue import known_subjects
from pytest_ckpt.grading.grading import ALL_MET, EXIT_INCOMPLETE
from pytest_ckpt.judging.gates import Gates
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.judging.verdicts import not_run
from pytest_ckpt.sizing.plan import Plan

NO_REPORT = "No report was written: the controller of the run was ended, or the run is still in progress."

_SEALED = (REPORT, MANIFEST, ATTESTATION)


def is_unfinished(directory: Path) -> bool:
    """Whether a directory contains a run that was opened but not closed."""
    return (directory / SESSION).is_file() and not any((directory / name).exists() for name in _SEALED)


def report_before_measurements(session: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report of a run before its first measurement, from ``session.json`` and ``plan.json``.

    Raises LookupError or TypeError for invalid files.
    """
    areas = [from_plain(AreaRef, area) for area in (session["area"], session["small"], session.get("local")) if area]
    return {
        "run": {
            "id": session["run_id"],
            "version": session["environment"]["versions"]["pytest-ckpt"],
            "started": session["started"],
            "finished": None,
            "seconds": None,
            "command": session["command"],
            "directory": "",
            "seed": session["seed"],
            "suites": session.get("suites") or [],
            "hosts": session.get("hosts") or [],
        },
        "checkpoints": plan["checkpoints"],
        "settings": session["settings"],
        "gate_table": session["gate_table"],
        "waivers": session["waivers"],
        "catalogue": session["extras"],
        "catalogue_names": session["catalogue_names"],
        "environment": session["environment"],
        "system": session["system"],
        "stages": {},
        "left_behind": [
            f"{area.location}; when the run's processes are gone, remove it{_clean_up_command(area)}" for area in areas
        ],
    }


def _clean_up_command(area: AreaRef) -> str:
    command = removal_of(area.scheme, area.location, area.access)
    return f": {command}" if command else ""


def decidable(
    plan: Plan,
    settings: Settings,
    gates: Gates,
    catalogue: Mapping[str, Requirement],
    *,
    measured: Collection[str],
    observed: Collection[tuple[str, str]],
) -> Iterator[Verdict]:
    """Yield a "not run" verdict for each requirement and subject for which the directory has facts.

    The caller replaces these verdicts by decisions. Requirements of plugins are left out, because plugins are not
    available. ``measured`` contains the subjects with measurements. ``observed`` contains a pair (requirement, subject)
    for each observation.
    """
    for id_, subjects in known_subjects(plan, settings, gates, catalogue).items():
        for subject in subjects:
            if not catalogue[id_].plugin and (subject in measured or (id_, subject) in observed):
                yield not_run(catalogue[id_], subject, "no facts", "", gates)


def as_incomplete(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report of an unfinished run. Its grade is "incomplete", even if all requirements are met."""
    reasons = [reason for reason in document["grade_reasons"] if reason != ALL_MET]
    return {
        **document,
        "grade": "incomplete",
        "exit_code": EXIT_INCOMPLETE,
        "grade_reasons": [NO_REPORT, *reasons],
    }

"""Which run each part of a combined report is of: records of the report, its plan and its measurements."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_ckpt.evidence.conditions import Difference
from pytest_ckpt.evidence.judged_run import JudgedRun
from pytest_ckpt.facts.measurement import Measurement, Patterns
from pytest_ckpt.facts.settings import Origin
from pytest_ckpt.facts.verdict import Grade
from pytest_ckpt.judging.combination import UNASKED, Choice, Superseded
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.sizing.plan import Plan, PlannedCheckpoint


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPart:
    """One of the runs: ``grade`` and ``exit_code`` are those that it has alone, ``results`` how many stand.

    ``manifest_sha256`` is the digest of its manifest, and so of all its files. ``settings`` are its own.
    """

    label: str
    id: str
    started: str
    finished: str
    seconds: float | None
    command: tuple[str, ...]
    grade: Grade
    exit_code: int
    results: int
    hosts: tuple[str, ...]
    manifest_sha256: str
    settings: tuple[Origin, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """Which run the verdict on a requirement and subject is of."""

    id: str
    subject: str
    run: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredPart:
    """Which run a part of a subject's measurement is of: ``operations`` or the name of a pattern."""

    subject: str
    part: str
    run: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Combined:
    """How a report was made of several runs. ``limits`` are options that were given when it was, by name."""

    version: str
    runs: tuple[RunPart, ...]
    limits: dict[str, str]
    results: tuple[Result, ...]
    measured: tuple[MeasuredPart, ...]
    superseded: tuple[Superseded, ...]
    differences: tuple[Difference, ...]
    notices: tuple[str, ...]


def measured_parts(
    runs: Mapping[str, JudgedRun], choice: Choice, catalogue: Mapping[str, Requirement]
) -> list[MeasuredPart]:
    """Return which run each part of a measurement is shown of: where its verdicts are from, else the newest."""
    parts: dict[tuple[str, str], str] = {}
    for label, run in runs.items():
        for m in run.measurements:
            parts[str(m.subject), "operations"] = label
            for name in _patterns(m):
                parts[str(m.subject), name] = label
    order = list(runs)
    for subject in {subject for subject, _ in parts}:
        judged = [
            result.run
            for result in choice.results
            if result.verdict.subject == subject and catalogue[result.verdict.id].suite == "performance"
            if result.verdict.reason not in UNASKED and _has(runs[result.run], subject)
        ]
        if judged:
            parts[subject, "operations"] = max(judged, key=order.index)
    return [MeasuredPart(subject=subject, part=part, run=label) for (subject, part), label in parts.items()]


def _has(run: JudgedRun, subject: str) -> bool:
    return any(str(m.subject) == subject for m in run.measurements)


def _patterns(measurement: Measurement) -> list[str]:
    found = measurement.patterns
    names = [f.name for f in dataclasses.fields(Patterns) if f.name != "not_run"]
    return [name for name in names if found and (getattr(found, name) is not None or name in found.not_run)]


def combined_plan(runs: Mapping[str, JudgedRun], measured: Sequence[MeasuredPart]) -> Plan:
    """Return every checkpoint that a run planned, as the run has it whose saves and loads stand, else the newest."""
    shown = {m.subject: m.run for m in measured if m.part == "operations"}
    planned: dict[str, PlannedCheckpoint] = {}
    for label, run in runs.items():
        for checkpoint in run.plan.checkpoints:
            subject = str(checkpoint.subject)
            if shown.get(subject, label) == label:
                planned[subject] = checkpoint
    limits = next(iter(runs.values())).plan.limits
    return Plan(limits=limits, checkpoints=tuple(sorted(planned.values(), key=lambda c: c.layout.model.parameters)))


def combined_measurements(
    runs: Mapping[str, JudgedRun], measured: Sequence[MeasuredPart], plan: Plan
) -> list[Measurement]:
    """Return each subject's measurement, with the patterns that other runs measured of it."""
    of = {label: {str(m.subject): m for m in run.measurements} for label, run in runs.items()}
    found = []
    for planned in plan.checkpoints:
        parts = {m.part: m.run for m in measured if m.subject == str(planned.subject)}
        if not parts:
            continue
        subject, own = str(planned.subject), parts.pop("operations")
        one = of[own][subject]
        others = {name: of[label][subject].patterns for name, label in parts.items() if label != own}
        if others:
            patterns = one.patterns or Patterns()
            shown = {name: getattr(other, name) for name, other in others.items()}
            whys = {n: other.not_run[n] for n, other in others.items() if other and n in other.not_run}
            kept = {name: why for name, why in patterns.not_run.items() if name not in others}
            one = dataclasses.replace(one, patterns=dataclasses.replace(patterns, **shown, not_run=kept | whys))
        found.append(one)
    return found

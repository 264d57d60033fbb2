"""The catalogue of requirements, and the requirements, checks and subjects of a complete run. Pure.

A subject of a requirement is a planned checkpoint, or a check of the target's behaviour. The gate table of a run states
which requirements a certificate requires.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.bounds import RequirementId
from pytest_ckpt.facts.checks import CHECKS
from pytest_ckpt.facts.settings import SUITES
from pytest_ckpt.facts.strategies import STRATEGIES
from pytest_ckpt.facts.targets import Capability
from pytest_ckpt.facts.verdict import Reason, Severity
from pytest_ckpt.judging.behaviour import missing_need
from pytest_ckpt.judging.gates import GateDefault
from pytest_ckpt.judging.requirement import Requirement, requirements_of
from pytest_ckpt.suites import (
    test_conformance,
    test_conformance_of_objects,
    test_contention,
    test_endurance,
    test_failover,
    test_maintenance,
    test_metadata,
    test_performance,
    test_scaling,
    test_serving,
    test_strategies,
    test_strategies_of_deltas,
    test_strategies_of_tiers,
)

if TYPE_CHECKING:
    from pytest_ckpt.facts.checks import Check
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.facts.subject import Subject
    from pytest_ckpt.judging.gates import Gates
    from pytest_ckpt.sizing.plan import Plan, PlannedCheckpoint


_SUITES = (
    test_performance,
    test_strategies,
    test_strategies_of_deltas,
    test_strategies_of_tiers,
    test_contention,
    test_endurance,
    test_serving,
    test_scaling,
    test_metadata,
    test_failover,
    test_maintenance,
    test_conformance,
    test_conformance_of_objects,
)

REQUIREMENTS: Mapping[str, Requirement] = {
    name: row for suite in _SUITES for name, row in requirements_of(suite).items()
}
"""Every built-in requirement by id, in the order of reports."""


def extended(extras: Iterable[Requirement]) -> Mapping[str, Requirement]:
    """Return {id: requirement} for the built-in requirements and ``extras``, the requirements of plugins.

    If a plugin's requirement has the id of a built-in requirement, the plugin's requirement is left out.
    """
    return {**REQUIREMENTS, **{r.id: r for r in extras if r.id not in REQUIREMENTS}}


def offered(catalogue: Mapping[str, Requirement], capabilities: Collection[Capability]) -> Mapping[str, Requirement]:
    """Return the requirements that apply to a target with these ``capabilities``."""
    return {r.id: r for r in catalogue.values() if r.needs.issubset(capabilities)}


def catalogue_of_names(catalogue: Mapping[str, Requirement], names: Collection[str]) -> Mapping[str, Requirement]:
    """Return the requirements of an earlier run: built-in requirements in ``names``, and all requirements of plugins.

    ``names`` are the ``catalogue_names`` in the report of the run.
    """
    return {r.id: r for r in catalogue.values() if r.plugin or r.id in names}


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogueRow:
    """A requirement as a row in the catalogue of a report."""

    id: RequirementId
    title: str
    severity: Severity
    text: str
    source: str
    suite: str
    plugin: str
    next_step: str
    also_known_as: tuple[str, ...] = ()


def row(requirement: Requirement) -> CatalogueRow:
    """Return a requirement as a row in the catalogue of a report."""
    return CatalogueRow(**{f.name: getattr(requirement, f.name) for f in fields(CatalogueRow)})


def recorded(rows: Iterable[Mapping[str, Any]]) -> tuple[Requirement, ...]:
    """Return the plugins' requirements in ``rows``, the catalogue of a report.

    These requirements have no functions and cannot judge a measurement.
    """
    return tuple(
        Requirement(
            id=r["id"],
            title=r["title"],
            severity=r["severity"],
            source=r.get("source") or "",
            plugin=r["plugin"],
            text=r["text"],
            next_step=r.get("next_step") or "",
        )
        for r in rows
        if r.get("plugin") and r["id"] not in REQUIREMENTS
    )


def known_names(catalogue: Mapping[str, Requirement] = REQUIREMENTS) -> dict[str, GateDefault]:
    """Return {name: default gate kind and limit} for all names that gate tables may use.

    A name is the id of a requirement, or ``id.subject`` for a check.
    """
    names = {r.id: GateDefault(gate=r.severity, limit=r.maximum, suite=r.suite) for r in catalogue.values()}
    return names | {
        c.name: GateDefault(gate=REQUIREMENTS[c.requirement].severity, limit=c.limit, needs=c.needs) for c in CHECKS
    }


CATALOGUE_NAMES = tuple(known_names())
"""Every requirement and check of this version.

A report lists them, so that later versions know the requirements that existed at the time of the run.
"""


NO_TEST = "Its test did not run: it was deselected, or the session ended before it."


def chosen_suites(
    settings: Settings, gates: Gates, catalogue: Mapping[str, Requirement] = REQUIREMENTS
) -> tuple[str, ...]:
    """Return the chosen suites of a run, without suites that have no requirement for the target.

    If the user chose ``auto``, the result has the suites that the gate table requires, and suites that other options
    need.
    """
    if settings.suites != ("auto",):
        there = {r.suite for r in catalogue.values()}
        return tuple(suite for suite in settings.suites if suite in there)
    requirements = requirements_of_run(settings, gates, catalogue)
    wanted = {r.suite for r in requirements if gates_something(r, settings, gates)}
    # The gate table does not list these suites, but the user chose them.
    wanted |= {"strategies"} if settings.preemption_notice_seconds else set()
    wanted |= {"serving"} if settings.serving_limit_seconds else set()
    wanted |= {"scaling"} if any(settings.vendor_max_rates) else set()
    return tuple(suite for suite in SUITES if suite in wanted)


def requirements_of_run(
    settings: Settings, gates: Gates, catalogue: Mapping[str, Requirement] = REQUIREMENTS
) -> list[Requirement]:
    """Return the requirements that a run judges.

    The gate table does not switch off these requirements, and the run measures them. A requirement "where given" is
    included even if the run lacks its prerequisite, such as a fault command. The verdict of such a requirement states
    the missing prerequisite and does not affect the grade.
    """
    return [
        r
        for r in catalogue.values()
        if _is_on(r, gates)
        and (r.is_requested(settings) or (r.not_given and gates.kind(r.id, "", "") == "where given"))
    ]


def checks_of_run(requirement: Requirement, settings: Settings, gates: Gates) -> list[Check]:
    """Return the checks of a requirement that are part of a run."""
    return [
        c
        for c in CHECKS
        if c.requirement == requirement.id
        and (kind := gates.kind(c.requirement, c.subject, requirement.severity)) != "off"
        and (not kind.endswith("where given") or is_given(c, settings))
    ]


def is_given(check: Check, settings: Settings) -> bool:
    """Whether the options of a run provide the inputs that a check needs."""
    return {
        "": True,
        "second client": bool(settings.second_mount) or settings.has_several_hosts,
        "power cut": bool(settings.power_cut),
        "small directory": bool(settings.small_volume),
    }[check.needs]


def _is_on(requirement: Requirement, gates: Gates) -> bool:
    if requirement.suite != "conformance":
        return gates.kind(requirement.id, "", requirement.severity) != "off"
    checks = (c for c in CHECKS if c.requirement == requirement.id)
    return any(gates.kind(c.requirement, c.subject, requirement.severity) != "off" for c in checks)


def gates_something(requirement: Requirement, settings: Settings, gates: Gates) -> bool:
    """Return whether a certificate of the run depends on a requirement."""
    if requirement.suite != "conformance":
        kind = gates.kind(requirement.id, "", requirement.severity)
        return kind == "required" or (kind == "where given" and requirement.is_requested(settings))
    checks = checks_of_run(requirement, settings, gates)
    return any(gates.kind(c.requirement, c.subject, requirement.severity) != "advisory" for c in checks)


def subjects_of(
    requirement: Requirement, plan: Plan, settings: Settings, gates: Gates
) -> list[tuple[str, Reason, str]]:
    """Return (subject, reason, sentence) for each subject of a requirement.

    If the run has no verdict on the requirement for a subject, the verdict is "not run" with this reason and sentence.
    """
    checkpoints = checkpoints_of_requirement(requirement, plan)
    if not requirement.is_requested(settings):
        return [(str(c.subject), "not given", requirement.not_given) for c in checkpoints]
    if requirement.suite != "conformance":
        return [
            (str(c.subject), "not planned", c.not_run) if c.not_run else (str(c.subject), "no test", NO_TEST)
            for c in checkpoints
        ]
    return [
        (c.subject, "no test", NO_TEST) if is_given(c, settings) else (c.subject, "not given", missing_need(c))
        for c in checks_of_run(requirement, settings, gates)
    ]


def checkpoints_of_requirement(requirement: Requirement, plan: Plan) -> list[PlannedCheckpoint]:
    """Return the planned checkpoints with a strategy to which the requirement applies."""
    return [c for c in plan.checkpoints if requirement.of_strategy(c.strategy)]


def compared_with(plan: Plan, settings: Settings, subjects: Collection[Subject]) -> set[Subject]:
    """Return the subjects with the blocking strategy "sync" that a run needs for a comparison with other strategies.

    Only the suite "strategies" makes such comparisons. ``subjects`` are the judged subjects with any strategy. A
    subject is in the result if a judged subject with another strategy has the same layout and engine. The subjects in
    the result may also be judged themselves.
    """
    if not settings.includes_strategies:
        return set()
    judged = {(s.layout, s.engine) for s in subjects if s.strategy != STRATEGIES[0].name}
    return {
        c.subject
        for c in plan.runnable
        if c.strategy.name == STRATEGIES[0].name and (c.subject.layout, c.subject.engine) in judged
    }


def known_subjects(
    plan: Plan, settings: Settings, gates: Gates, catalogue: Mapping[str, Requirement] = REQUIREMENTS
) -> dict[str, list[str]]:
    """Return {requirement id: names of its subjects} for every requirement of a run."""
    requirements = requirements_of_run(settings, gates, catalogue)
    return {r.id: [subject for subject, _, _ in subjects_of(r, plan, settings, gates)] for r in requirements}

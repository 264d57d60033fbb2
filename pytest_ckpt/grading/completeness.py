"""Definition of a complete run: its suites, requirements, checks and subjects. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.facts.checks import CHECKS
from pytest_ckpt.facts.settings import SUITES
from pytest_ckpt.facts.strategies import STRATEGIES
from pytest_ckpt.facts.verdict import Reason
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.judging.behaviour import missing_need
from pytest_ckpt.judging.requirement import Requirement

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pytest_ckpt.facts.checks import Check
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.facts.subject import Subject
    from pytest_ckpt.judging.gates import Gates
    from pytest_ckpt.sizing.plan import Plan, PlannedCheckpoint


NO_TEST = "Its test did not run: it was deselected, or the session ended before it."


def chosen_suites(
    settings: Settings, gates: Gates, catalogue: Mapping[str, Requirement] = REQUIREMENTS
) -> tuple[str, ...]:
    """Return the suites of a run: the chosen ones, or those with a required row in the gate table.

    A suite without a requirement that applies to the target is not part of the run.
    """
    if settings.suites != ("auto",):
        there = {r.suite for r in catalogue.values()}
        return tuple(suite for suite in settings.suites if suite in there)
    asked = asked_requirements(settings, gates, catalogue)
    wanted = {r.suite for r in asked if gates_something(r, settings, gates)}
    # The gate table does not list these, but the user chose them.
    wanted |= {"strategies"} if settings.preemption_notice_seconds else set()
    wanted |= {"serving"} if settings.serving_limit_seconds else set()
    wanted |= {"scaling"} if any(settings.vendor_max_rates) else set()
    return tuple(suite for suite in SUITES if suite in wanted)


def asked_requirements(
    settings: Settings, gates: Gates, catalogue: Mapping[str, Requirement] = REQUIREMENTS
) -> list[Requirement]:
    """Return the requirements that a run with these settings judges, without those that the gate table switches off.

    A row "where given" is part of the run even if its means are not given: its verdict then states this, and does not
    decide.
    """
    return [
        r
        for r in catalogue.values()
        if _is_on(r, gates) and (r.is_asked(settings) or (r.not_given and gates.kind(r.id, "", "") == "where given"))
    ]


def asked_checks(requirement: Requirement, settings: Settings, gates: Gates) -> list[Check]:
    """Return the checks of a requirement on the target's behaviour that are part of a run."""
    return [
        c
        for c in CHECKS
        if c.requirement == requirement.id
        and (kind := gates.kind(c.requirement, c.subject, requirement.severity)) != "off"
        and (not kind.endswith("where given") or is_given(c, settings))
    ]


def is_given(check: Check, settings: Settings) -> bool:
    """Whether a run provides a check's needs."""
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
    """Return whether a certificate needs a requirement."""
    if requirement.suite != "conformance":
        kind = gates.kind(requirement.id, "", requirement.severity)
        return kind == "required" or (kind == "where given" and requirement.is_asked(settings))
    checks = asked_checks(requirement, settings, gates)
    return any(gates.kind(c.requirement, c.subject, requirement.severity) != "advisory" for c in checks)


def subjects_of(
    requirement: Requirement, plan: Plan, settings: Settings, gates: Gates
) -> list[tuple[str, Reason, str]]:
    """Return (subject, reason, sentence) of everything that a requirement is judged on: why it has no verdict yet."""
    checkpoints = asked_checkpoints(requirement, plan)
    if not requirement.is_asked(settings):
        return [(str(c.subject), "not given", requirement.not_given) for c in checkpoints]
    if requirement.suite != "conformance":
        return [
            (str(c.subject), "not planned", c.not_run) if c.not_run else (str(c.subject), "no test", NO_TEST)
            for c in checkpoints
        ]
    return [
        (c.subject, "no test", NO_TEST) if is_given(c, settings) else (c.subject, "not given", missing_need(c))
        for c in asked_checks(requirement, settings, gates)
    ]


def asked_checkpoints(requirement: Requirement, plan: Plan) -> list[PlannedCheckpoint]:
    """Return the checkpoints of a plan to which a requirement on saves and loads applies."""
    return [c for c in plan.checkpoints if requirement.of_strategy(c.strategy)]


def compared_with(plan: Plan, settings: Settings, subjects: Collection[Subject]) -> set[Subject]:
    """Return the plain saves that are measured for comparison with the saves of the suite of strategies.

    ``subjects`` are the judged ones. A reader compares the cost of a strategy with a plain blocking save.
    """
    if not settings.asks_strategies:
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
    """Return every requirement of a run with its subjects."""
    asked = asked_requirements(settings, gates, catalogue)
    return {r.id: [subject for subject, _, _ in subjects_of(r, plan, settings, gates)] for r in asked}

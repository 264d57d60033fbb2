"""The catalogue of requirements: it defines a complete run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from pytest_ckpt.facts.bounds import RequirementId
from pytest_ckpt.facts.checks import CHECKS
from pytest_ckpt.facts.targets import Capability
from pytest_ckpt.facts.verdict import Severity
from pytest_ckpt.judging.gates import GateDefault
from pytest_ckpt.judging.requirement import Requirement, requirements_of
from pytest_ckpt.suites import (
    test_conformance,
    test_conformance_of_objects,
    test_contention,
    test_endurance,
    test_failover,
    test_maintenance,
    test_performance,
    test_scaling,
    test_serving,
    test_strategies,
    test_strategies_of_deltas,
    test_strategies_of_tiers,
)

_SUITES = (
    test_performance,
    test_strategies,
    test_strategies_of_deltas,
    test_strategies_of_tiers,
    test_contention,
    test_endurance,
    test_serving,
    test_scaling,
    test_failover,
    test_maintenance,
    test_conformance,
    test_conformance_of_objects,
)

REQUIREMENTS: Mapping[str, Requirement] = {
    name: row for suite in _SUITES for name, row in requirements_of(suite).items()
}
"""Every built-in requirement, in the order of the reports."""


def extended(extras: Iterable[Requirement]) -> Mapping[str, Requirement]:
    """Return the catalogue of a run with the requirements of plugins, which cannot replace built-in ones."""
    return {**REQUIREMENTS, **{r.id: r for r in extras if r.id not in REQUIREMENTS}}


def offered(catalogue: Mapping[str, Requirement], capabilities: Collection[Capability]) -> Mapping[str, Requirement]:
    """Return the requirements that apply to a target; one that does not apply is neither failed nor "not run"."""
    return {r.id: r for r in catalogue.values() if r.needs.issubset(capabilities)}


def known_to(catalogue: Mapping[str, Requirement], names: Collection[str]) -> Mapping[str, Requirement]:
    """Return the requirements that existed when a run was made, and its plugins' requirements.

    ``names`` are the ``catalogue_names`` of its report.
    """
    return {r.id: r for r in catalogue.values() if r.plugin or r.id in names}


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogueRow:
    """A requirement as the catalogue of a report shows it."""

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
    """Return a requirement as the catalogue of a report shows it."""
    return CatalogueRow(**{f.name: getattr(requirement, f.name) for f in fields(CatalogueRow)})


def recorded(rows: Iterable[Mapping[str, Any]]) -> tuple[Requirement, ...]:
    """Return the requirements of plugins that the catalogue of a report shows; they have no function here."""
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
    """Return the names for gate tables: every requirement, and every check as ``id.subject``, with its defaults."""
    names = {r.id: GateDefault(gate=r.severity, limit=r.maximum, suite=r.suite) for r in catalogue.values()}
    return names | {
        c.name: GateDefault(gate=REQUIREMENTS[c.requirement].severity, limit=c.limit, needs=c.needs) for c in CHECKS
    }


CATALOGUE_NAMES = tuple(known_names())
"""Every requirement and check of this version; a report lists them, so that later versions know its run's catalogue."""

"""The catalogue of requirements: it defines a complete run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from pytest_ckpt.facts.checks import CHECKS
from pytest_ckpt.facts.targets import Capability
from pytest_ckpt.facts.verdict import Severity
from pytest_ckpt.judging import proof, speed, variability
from pytest_ckpt.judging.behaviour import BEHAVIOURS
from pytest_ckpt.judging.behaviour_of_objects import BEHAVIOURS_OF_OBJECTS
from pytest_ckpt.judging.catalogue_of_patterns import PATTERNS
from pytest_ckpt.judging.catalogue_of_strategies import STRATEGY_ROWS
from pytest_ckpt.judging.gates import Known
from pytest_ckpt.judging.requirement import Requirement

REQUIREMENTS: Mapping[str, Requirement] = {
    r.id: r
    for r in (
        Requirement(
            id="SAVE",
            title="Every save meets the limit",
            severity="required",
            judge=speed.judge_save,
            units=("s",),
            figure="the slowest save",
            limit="the save limit of the cluster ({save} for 16,000 accelerators)",
            source="derived from the cluster: overhead x interval; MLPerf Storage rules: the slowest process",
            of_strategy=lambda strategy: strategy.blocks,
        ),
        Requirement(
            id="LOAD",
            title="Every uncached load meets the limit",
            severity="required",
            judge=speed.judge_load,
            units=("s",),
            figure="the slowest load",
            limit="the load limit of the cluster ({load} for 16,000 accelerators)",
            source="derived from the cluster: restore budget x mean time to failure",
        ),
        Requirement(
            id="INTEGRITY",
            title="Every loaded byte is correct",
            severity="required",
            judge=proof.judge_integrity,
            units=("faults", "bytes"),
            figure="faults found; bytes compared, where some were not",
            limit="no fault, every byte",
            source="zero tolerance",
        ),
        Requirement(
            id="COLD",
            title="Loads come from the storage",
            severity="required",
            judge=proof.judge_cold,
            units=("fraction",),
            figure="the largest share that was resident before a load",
            limit=f"{proof.MAXIMUM_RESIDENT:g}",
            source="MLPerf Storage rules ask for dropped caches; at most 1 % resident is our bound",
        ),
        Requirement(
            id="DURABLE-CALLS",
            title="Saves are durable before they count",
            severity="required",
            judge=proof.judge_durable_calls,
            units=("files", "folders", "commits"),
            figure="fsynced files; what was left out, where something was",
            limit="all",
            source="fsync on every file and folder, then commit; IO500 rule 6",
        ),
        Requirement(
            id="STRAGGLER",
            title="No straggling rank",
            severity="advisory",
            maximum=variability.MAXIMUM_SKEW,
            judge=variability.judge_straggler,
            units=("slowest / median", "p99 / p50"),
            figure="the ranks' times for a byte, in the most uneven operation",
            limit=f"{{maximum:g}}; the 99th percentile of 100 ranks and more {variability.MAXIMUM_TAIL:g}",
            source="our proposal: slowest / median at most 1.5; from 100 ranks on p99 / p50 at most 1.3",
        ),
        Requirement(
            id="REPEAT",
            title="Repeated operations take the same time",
            severity="advisory",
            maximum=variability.MAXIMUM_VARIATION,
            judge=variability.judge_repeat,
            units=("fraction",),
            figure="the larger coefficient of variation",
            limit="{maximum:g}",
            source="our proposal: coefficient of variation at most 10 %",
        ),
        Requirement(
            id="RETENTION",
            title="Deleting does not slow a save",
            severity="advisory",
            maximum=variability.MAXIMUM_RETENTION,
            judge=variability.judge_retention,
            units=("with / without deletion",),
            figure="the time of a save with a deletion beside it",
            limit="{maximum:g}",
            source="our proposal: at most 10 % longer",
            asked_by=lambda settings: settings.retain > 0,
        ),
        Requirement(
            id="DATA",
            title="Content does not change the time",
            severity="advisory",
            maximum=variability.MAXIMUM_DATA_EFFECT,
            judge=variability.judge_data,
            units=("unique / constant",),
            figure="the larger ratio of median times",
            limit="{maximum:g}",
            source="IO500 rule 7; our proposal: within 5 %",
            asked_by=lambda settings: settings.data_pairs > 0,
            of_strategy=lambda strategy: not strategy.compresses,
        ),
        *STRATEGY_ROWS,
        *PATTERNS,
        *(
            Requirement(
                id=b.id,
                title=b.title,
                severity=b.severity,
                source=b.source,
                suite="conformance",
                needs=b.needs,
            )
            for b in (*BEHAVIOURS, *BEHAVIOURS_OF_OBJECTS)
        ),
    )
}


def extended(extras: Iterable[Requirement]) -> Mapping[str, Requirement]:
    """Return the catalogue of a run with the requirements of plugins; none can take the place of one of ours."""
    return {**REQUIREMENTS, **{r.id: r for r in extras if r.id not in REQUIREMENTS}}


def offered(catalogue: Mapping[str, Requirement], capabilities: Collection[Capability]) -> Mapping[str, Requirement]:
    """Return what can be asked of a target: what it cannot do is neither failed nor "not run" there."""
    return {r.id: r for r in catalogue.values() if r.needs.issubset(capabilities)}


def known_to(catalogue: Mapping[str, Requirement], names: Collection[str]) -> Mapping[str, Requirement]:
    """Return the requirements that existed when a run was made, and those of its plugins.

    ``names`` are the ``catalogue_names`` of its report.
    """
    return {r.id: r for r in catalogue.values() if r.plugin or r.id in names}


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogueRow:
    """A requirement as the catalogue of a report shows it."""

    id: str
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
    """Return the requirements of plugins that the catalogue of a report shows; they have no judge here."""
    return tuple(
        Requirement(
            id=r["id"],
            title=r["title"],
            severity=r["severity"],
            source=r.get("source") or "",
            plugin=r["plugin"],
            words=r["text"],
        )
        for r in rows
        if r.get("plugin") and r["id"] not in REQUIREMENTS
    )


def known_names(catalogue: Mapping[str, Requirement] = REQUIREMENTS) -> dict[str, Known]:
    """Return what a gate table may name: every requirement, and every check as ``id.subject``, with its defaults."""
    names = {r.id: Known(gate=r.severity, limit=r.maximum, suite=r.suite) for r in catalogue.values()}
    return names | {
        c.name: Known(gate=REQUIREMENTS[c.requirement].severity, limit=c.limit, needs=c.needs) for c in CHECKS
    }


CATALOGUE_NAMES = tuple(known_names())
"""Every requirement and check of this version; a report lists them, so that later versions know what its run knew."""

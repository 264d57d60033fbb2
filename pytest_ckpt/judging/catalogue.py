"""The catalogue of requirements: it defines a complete run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from pytest_ckpt.analysis import steadiness
from pytest_ckpt.facts.checks import CHECKS
from pytest_ckpt.facts.targets import Capability
from pytest_ckpt.facts.verdict import Severity
from pytest_ckpt.judging import (
    endurance,
    failover,
    interference,
    proof,
    restore_patterns,
    speed,
    variability,
)
from pytest_ckpt.judging.behaviour import BEHAVIOURS
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
            limit=f"{proof.MOST_RESIDENT:g}",
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
            most=variability.MOST_SKEW,
            judge=variability.judge_straggler,
            units=("slowest / median", "p99 / p50"),
            figure="the ranks' times for a byte, in the most uneven operation",
            limit=f"{{most:g}}; the 99th percentile of 100 ranks and more {variability.MOST_TAIL:g}",
            source="our proposal: slowest / median at most 1.5; from 100 ranks on p99 / p50 at most 1.3",
        ),
        Requirement(
            id="REPEAT",
            title="Repeated operations take the same time",
            severity="advisory",
            most=variability.MOST_VARIATION,
            judge=variability.judge_repeat,
            units=("fraction",),
            figure="the larger coefficient of variation",
            limit="{most:g}",
            source="our proposal: coefficient of variation at most 10 %",
        ),
        Requirement(
            id="RETENTION",
            title="Deleting does not slow a save",
            severity="advisory",
            most=variability.MOST_RETENTION,
            judge=variability.judge_retention,
            units=("with / without deletion",),
            figure="the time of a save with a deletion beside it",
            limit="{most:g}",
            source="our proposal: at most 10 % longer",
            is_asked=lambda settings: settings.retain > 0,
        ),
        Requirement(
            id="DATA",
            title="Content does not change the time",
            severity="advisory",
            most=variability.MOST_DATA_EFFECT,
            judge=variability.judge_data,
            units=("unique / constant",),
            figure="the larger ratio of median times",
            limit="{most:g}",
            source="IO500 rule 7; our proposal: within 5 %",
            is_asked=lambda settings: settings.data_pairs > 0,
        ),
        Requirement(
            id="STORM",
            title="All replicas restore at once",
            severity="required",
            most=restore_patterns.MOST_STORM,
            judge=restore_patterns.judge_storm,
            units=("s", "slowest / median"),
            figure="the slowest load; the ranks' times for a byte, where these were uneven",
            limit=f"{{most:g}} x the load limit; {restore_patterns.MOST_STORM_SKEW:g} for the slowest rank",
            source="our proposal: 1.5 x the load limit, slowest / median at most 2",
            suite="contention",
        ),
        Requirement(
            id="SHIFTED",
            title="Any rank restores any other's files",
            severity="required",
            judge=restore_patterns.judge_shifted,
            units=("s",),
            figure="the slowest load",
            limit="the load limit of the cluster",
            source="as LOAD: restore budget x mean time to failure",
            suite="contention",
        ),
        Requirement(
            id="RESHAPED",
            title="Fewer or more ranks restore the checkpoint",
            severity="required",
            judge=restore_patterns.judge_reshaped,
            units=("s",),
            figure="the slowest load",
            limit="the load limit of the cluster",
            source="as LOAD: restore budget x mean time to failure",
            suite="contention",
        ),
        Requirement(
            id="NEIGHBOUR",
            title="A second job does not slow a save",
            severity="required",
            most=interference.MOST_NEIGHBOUR,
            judge=interference.judge_neighbour,
            units=("beside / alone",),
            figure="the median time of a save",
            limit="{most:g}",
            source="our proposal: at most 25 % longer",
            suite="contention",
        ),
        Requirement(
            id="MIXED",
            title="Saves and data loading coexist",
            severity="required",
            most=interference.MOST_READ_DELAY,
            judge=interference.judge_mixed,
            units=("during saves / alone", "s"),
            figure="the 99th percentile of reading a sample; the slowest save, where that was late",
            limit=f"{{most:g}}; {interference.MOST_MIXED_SAVE:g} x the save limit",
            source="our proposal: the loader's p99 at most 2 x, a save at most 1.25 x the save limit",
            suite="contention",
        ),
        Requirement(
            id="ENDURE",
            title="Saves stay fast for hours",
            severity="required",
            most=endurance.MOST_LOSS,
            judge=endurance.judge_endure,
            units=("fraction",),
            figure="how much of the first quarter's rate the last quarter lost",
            limit="{most:g}",
            source="our proposal: the rate of the last quarter at least 90 % of that of the first",
            suite="endurance",
            is_asked=lambda settings: settings.asks_endurance,
        ),
        Requirement(
            id="STEADY",
            title="Saves reach a steady state",
            severity="required",
            judge=endurance.judge_steady,
            units=("rounds",),
            figure="the save that completed the first steady window of five",
            limit=f"{steadiness.MOST_ROUNDS}",
            source="SNIA Performance Test Specification: of five rounds, range at most 20 %, slope at most 10 %",
            suite="endurance",
            is_asked=lambda settings: settings.asks_endurance,
        ),
        Requirement(
            id="NEARFULL",
            title="A nearly full volume stays fast",
            severity="required",
            judge=endurance.judge_near_full,
            units=("fraction",),
            figure="how much of the rate was lost",
            limit=", ".join(f"{loss:g} at {level:.0%}" for level, loss in endurance.MOST_NEAR_FULL_LOSS.items()),
            source="our proposal: at 80 % full at least 90 %, at 90 % at least 80 % of the rate on the empty volume",
            suite="endurance",
            is_asked=lambda settings: settings.asks_endurance,
            needs=frozenset(("volume",)),
        ),
        Requirement(
            id="FAILOVER",
            title="A broken component costs no byte and little time",
            severity="required",
            most=failover.MOST_STALL_SECONDS,
            judge=failover.judge_failover,
            units=("s", "faults", "bytes"),
            figure="the longest stall of a rank; the save after it, where that was late; faults, where there are",
            limit=f"{{most:g}}; {failover.MOST_NEXT_SAVE:g} x the save limit for the save after it; no fault",
            source="our proposal: a stall of at most 60 s, the next save within 1.5 x the save limit; NVIDIA HSS16",
            suite="failover",
            is_asked=lambda settings: settings.asks_failover,
            not_given="No command was given that breaks a component (--ckpt-break, --ckpt-mend).",
        ),
        *(
            Requirement(
                id=b.id,
                title=b.title,
                severity=b.severity,
                source=b.source,
                suite="conformance",
                needs=frozenset(("paths",)),
            )
            for b in BEHAVIOURS
        ),
    )
}


def extended(extras: Iterable[Requirement]) -> Mapping[str, Requirement]:
    """Return the catalogue of a run with the requirements of plugins; none can take the place of one of ours."""
    return {**REQUIREMENTS, **{r.id: r for r in extras if r.id not in REQUIREMENTS}}


def offered(catalogue: Mapping[str, Requirement], capabilities: Collection[Capability]) -> Mapping[str, Requirement]:
    """Return what can be asked of a target: what it cannot do is neither failed nor "not run" there."""
    return {r.id: r for r in catalogue.values() if r.needs.issubset(capabilities)}


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
    names = {r.id: Known(gate=r.severity, limit=r.most, suite=r.suite) for r in catalogue.values()}
    return names | {
        c.name: Known(gate=REQUIREMENTS[c.requirement].severity, limit=c.limit, needs=c.needs) for c in CHECKS
    }

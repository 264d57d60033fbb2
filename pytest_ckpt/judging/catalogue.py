"""The table of requirements: it, and not the test runner, knows what a complete run is."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_ckpt.facts.checks import CHECKS
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.settings import Settings
from pytest_ckpt.facts.verdict import Severity, Verdict
from pytest_ckpt.judging import (
    endurance,
    interference,
    proof,
    restore_patterns,
    speed,
    variability,
)
from pytest_ckpt.judging.behaviour import BEHAVIOURS, judge_observation
from pytest_ckpt.judging.decision import Decision
from pytest_ckpt.judging.gates import Gates
from pytest_ckpt.judging.wording import describe_failure
from pytest_ckpt.sizing.limits import ClusterLimits
from pytest_ckpt.support import resources

# What a requirement of speed judges; with a limit of its own as the keyword ``most``, where a table may set it.
Judge = Callable[..., Decision]


@dataclass(frozen=True, kw_only=True, slots=True)
class Requirement:
    """One requirement. ``source`` says where its limit comes from; its text is the docstring of its test.

    ``judge`` takes (measurement, limits); those on a target's behaviour have none and are judged by observations.
    ``most`` is a limit that a table of gates may set. ``is_asked`` says whether a run with these settings measures what
    it needs; others are no part of the run. ``plugin`` names the plugin that asks for it, and ``words`` is then its
    text; ours have neither.
    """

    id: str
    title: str
    severity: Severity
    source: str
    judge: Judge | None = None
    suite: str = "performance"
    most: float | None = None
    is_asked: Callable[[Settings], bool] = lambda _settings: True
    plugin: str = ""
    words: str = ""

    @property
    def text(self) -> str:
        """The requirement as the certificate prints it, for the buyer."""
        return self.words or _texts()[self.id]


REQUIREMENTS: Mapping[str, Requirement] = {
    r.id: r
    for r in (
        Requirement(
            id="SAVE",
            title="Every save meets the budget",
            severity="required",
            judge=speed.judge_save,
            source="derived from the cluster: overhead x interval; MLPerf Storage rules: the slowest process",
        ),
        Requirement(
            id="LOAD",
            title="Every cold restore meets the budget",
            severity="required",
            judge=speed.judge_load,
            source="derived from the cluster: restore budget x mean time to failure",
        ),
        Requirement(
            id="INTEGRITY",
            title="Every byte comes back",
            severity="required",
            judge=proof.judge_integrity,
            source="zero tolerance",
        ),
        Requirement(
            id="COLD",
            title="Loads come from the storage",
            severity="required",
            judge=proof.judge_cold,
            source="MLPerf Storage rules ask for dropped caches; at most 1 % resident is our bound",
        ),
        Requirement(
            id="DURABLE-CALLS",
            title="Saves are made durable before they count",
            severity="required",
            judge=proof.judge_durable_calls,
            source="fsync on every file and folder, then commit; IO500 rule 6",
        ),
        Requirement(
            id="STRAGGLER",
            title="No rank holds up the others",
            severity="advisory",
            most=variability.MOST_SKEW,
            judge=variability.judge_straggler,
            source="our proposal: slowest / median at most 1.5; from 100 ranks on p99 / p50 at most 1.3",
        ),
        Requirement(
            id="REPEAT",
            title="The same again takes the same time",
            severity="advisory",
            most=variability.MOST_VARIATION,
            judge=variability.judge_repeat,
            source="our proposal: coefficient of variation at most 10 %",
        ),
        Requirement(
            id="RETENTION",
            title="Deleting does not slow a save",
            severity="advisory",
            most=variability.MOST_RETENTION,
            judge=variability.judge_retention,
            source="our proposal: at most 10 % longer",
            is_asked=lambda settings: settings.retain > 0,
        ),
        Requirement(
            id="DATA",
            title="Nothing is gained by content",
            severity="advisory",
            most=variability.MOST_DATA_EFFECT,
            judge=variability.judge_data,
            source="IO500 rule 7; our proposal: within 5 %",
            is_asked=lambda settings: settings.data_pairs > 0,
        ),
        Requirement(
            id="STORM",
            title="All replicas restore at once",
            severity="required",
            most=restore_patterns.MOST_STORM,
            judge=restore_patterns.judge_storm,
            source="our proposal: 1.5 x the load limit, slowest / median at most 2",
            suite="contention",
        ),
        Requirement(
            id="SHIFTED",
            title="Any rank restores any other's files",
            severity="required",
            judge=restore_patterns.judge_shifted,
            source="as LOAD: restore budget x mean time to failure",
            suite="contention",
        ),
        Requirement(
            id="RESHAPED",
            title="Fewer and more ranks restore the checkpoint",
            severity="required",
            judge=restore_patterns.judge_reshaped,
            source="as LOAD: restore budget x mean time to failure",
            suite="contention",
        ),
        Requirement(
            id="NEIGHBOUR",
            title="A second job does not hold up a save",
            severity="required",
            most=interference.MOST_NEIGHBOUR,
            judge=interference.judge_neighbour,
            source="our proposal: at most 25 % longer",
            suite="contention",
        ),
        Requirement(
            id="MIXED",
            title="Saves and data loading bear each other",
            severity="required",
            most=interference.MOST_READ_DELAY,
            judge=interference.judge_mixed,
            source="our proposal: the loader's p99 at most 2 x, a save at most 1.25 x the save limit",
            suite="contention",
        ),
        Requirement(
            id="ENDURE",
            title="Hours later saves are as fast",
            severity="required",
            most=endurance.MOST_LOSS,
            judge=endurance.judge_endure,
            source="our proposal: the rate of the last quarter at least 90 % of that of the first",
            suite="endurance",
            is_asked=lambda settings: settings.asks_endurance,
        ),
        Requirement(
            id="STEADY",
            title="Saves reach a steady state",
            severity="required",
            judge=endurance.judge_steady,
            source="SNIA Performance Test Specification: of five rounds, range at most 20 %, slope at most 10 %",
            suite="endurance",
            is_asked=lambda settings: settings.asks_endurance,
        ),
        Requirement(
            id="NEARFULL",
            title="A volume that is nearly full is nearly as fast",
            severity="required",
            judge=endurance.judge_near_full,
            source="our proposal: at 80 % full at least 90 %, at 90 % at least 80 % of the rate on the empty volume",
            suite="endurance",
            is_asked=lambda settings: settings.asks_endurance,
        ),
        *(
            Requirement(id=b.id, title=b.title, severity=b.severity, source=b.source, suite="conformance")
            for b in BEHAVIOURS
        ),
    )
}


def extended(extras: Iterable[Requirement]) -> Mapping[str, Requirement]:
    """Return the catalogue of a run with the requirements of plugins; none can take the place of one of ours."""
    return {**REQUIREMENTS, **{r.id: r for r in extras if r.id not in REQUIREMENTS}}


def row(requirement: Requirement) -> dict[str, Any]:
    """Return a requirement as the catalogue of a report shows it."""
    names = ("id", "title", "severity", "text", "source", "suite", "plugin")
    return {name: getattr(requirement, name) for name in names}


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


def known_names(catalogue: Mapping[str, Requirement] = REQUIREMENTS) -> dict[str, tuple[str, float | None]]:
    """Return what a table of gates may name: every requirement, and every check as ``id.subject``, with its defaults.

    The values are (how it gates, its limit).
    """
    names: dict[str, tuple[str, float | None]] = {r.id: (r.severity, r.most) for r in catalogue.values()}
    return names | {c.name: (REQUIREMENTS[c.requirement].severity, c.limit) for c in CHECKS}


def severity_of(requirement: Requirement, subject: str, gates: Gates) -> Severity:
    """Return how a requirement counts for a subject in a run that is judged by these gates."""
    kind = gates.kind(requirement.id, subject, requirement.severity)
    return "required" if kind in ("required", "where given") else "advisory"


def decide(requirement: Requirement, measurement: Measurement, limits: ClusterLimits, gates: Gates) -> Verdict:
    """Judge one requirement of speed on one measurement."""
    assert requirement.judge is not None
    subject = str(measurement.subject)
    bounds = {} if requirement.most is None else {"most": gates.limit(requirement.id, subject, requirement.most)}
    decision = requirement.judge(measurement, limits, **bounds)
    failure = measurement.failure
    if failure and failure.kind == "hook" and decision.outcome == "met":
        # Nobody knows what the hook did or left undone; what failed all the same has failed.
        decision = Decision(outcome="not run", because=f"It was met, but {describe_failure(failure)}")
    return _verdict(requirement, subject, decision, gates)


def decide_observed(requirement: Requirement, observation: Observation, gates: Gates) -> Verdict:
    """Judge one requirement on a target's behaviour on what one check saw."""
    subject = observation.subject
    default = next((c.limit for c in CHECKS if (c.requirement, c.subject) == (requirement.id, subject)), None)
    decision = judge_observation(observation, gates.limit(requirement.id, subject, default))
    return _verdict(requirement, subject, decision, gates)


def not_run(requirement: Requirement, subject: str, because: str, gates: Gates) -> Verdict:
    """Return the verdict of a requirement that could not be judged."""
    return _verdict(requirement, subject, Decision(outcome="not run", because=because), gates)


def _verdict(requirement: Requirement, subject: str, decision: Decision, gates: Gates) -> Verdict:
    return Verdict(
        id=requirement.id,
        subject=subject,
        severity=severity_of(requirement, subject, gates),
        outcome=decision.outcome,
        measured=decision.measured,
        limit=decision.limit,
        unit=decision.unit,
        margin=decision.margin,
        because=decision.because,
        detail="\n".join(decision.detail),
    )


@functools.cache
def _texts() -> dict[str, str]:
    """Read the docstrings of the tests that carry ``@pytest.mark.requirement(id)``, without importing them."""
    texts = {}
    for path in sorted(resources.folder("suites").glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                for mark in node.decorator_list:
                    if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.requirement":
                        texts[ast.literal_eval(mark.args[0])] = inspect.cleandoc(ast.get_docstring(node) or "")
    return texts

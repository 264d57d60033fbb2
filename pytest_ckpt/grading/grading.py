"""Derives the grade, the exit code and the reasons of a run from its verdicts. Pure.

A rehearsal is a run that cannot be certified because of its settings or clients, for example a reduced scale.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.facts.failure import describe_failure
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.facts.verdict import Grade, Reason, Verdict
from pytest_ckpt.grading.catalogue import REQUIREMENTS, chosen_suites, requirements_of_run, subjects_of
from pytest_ckpt.grading.obstacles import shortfalls
from pytest_ckpt.grading.scope import ScaleShortfall, missing_model
from pytest_ckpt.judging.clients import Clients, client_reasons, unmet_demands, unsafe_mounts
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.judging.verdicts import not_run
from pytest_ckpt.judging.waivers import expired, waive
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.judging.gates import Gates
    from pytest_ckpt.judging.waivers import Waiver
    from pytest_ckpt.sizing.plan import Plan

EXIT_MET, EXIT_FAILED, EXIT_CRASHED, EXIT_INCOMPLETE = 0, 1, 3, 8
NOTHING_REQUIRED = "No required requirement was judged: the run cannot be certified."
CRASHED = "An error of pytest-ckpt or of pytest ended the run (exit code 3): crash.txt or the terminal shows it."
ALL_MET = (
    "Every requirement that the gate table demands was met, with complete checkpoints, at least 10 saves and 10 loads."
)
# The reasons of verdicts whose measurement ran and decides nothing.
_RAN: frozenset[Reason] = frozenset({"client too slow", "host busy", "perhaps late"})
_SLOW_CLIENTS = (
    "The clients were too slow for a requirement above: the run shows neither that the storage is too slow for it nor "
    "that the storage is fast enough."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """All verdicts of a run, ordered by subject, and the resulting grade, reasons and exit code."""

    verdicts: tuple[Verdict, ...]
    grade: Grade
    reasons: tuple[str, ...]
    exit_code: int


def judge_run(
    plan: Plan,
    settings: Settings,
    gates: Gates,
    verdicts: Iterable[Verdict],
    measurements: Sequence[Measurement] = (),
    waivers: Sequence[Waiver] = (),
    day: str = "",
    catalogue: Mapping[str, Requirement] = REQUIREMENTS,
    clients: Clients | None = None,
) -> Judgement:
    """Return the judgement of a run. A requirement without a test has the verdict "not run".

    A run is certified if every required requirement was met at full scale and every test ran. A run at reduced scale is
    at best a rehearsal.

    - ``verdicts``: the verdicts of the tests that ran.
    - ``waivers``: accepted failures. A waiver counts if it has not ended before ``day``, the day of the run.
    - ``catalogue``: all requirements of the run, including the requirements of plugins.
    - ``clients``: facts of the hosts. If a host does not meet a demand of the gate table, or a fact is unknown, the run
      is not certified.
    """
    known = {(v.id, v.subject): v for v in verdicts}
    chosen = chosen_suites(settings, gates, catalogue)
    complete = []
    for requirement in requirements_of_run(settings, gates, catalogue):
        for subject, reason, because in subjects_of(requirement, plan, settings, gates):
            verdict = known.get((requirement.id, subject))
            if verdict is None and requirement.suite not in chosen and requirement.is_requested(settings):
                unselected = f"{requirement.suite.capitalize()} suite not selected (--ckpt-suite)."
                verdict = not_run(requirement, subject, "not selected", unselected, gates)
            complete.append(verdict or not_run(requirement, subject, reason, because, gates))
    complete = in_order(waive(complete, waivers, day), plan)
    rehearsals = rehearsal_reasons(plan, settings, gates, measurements, clients or {})
    model_shortfall = missing_model(plan, gates)
    return conclude(
        complete, gates, measurements, rehearsals, expired(waivers, day), model_shortfall, catalogue, clients
    )


def in_order(verdicts: Iterable[Verdict], plan: Plan) -> list[Verdict]:
    """Return verdicts in the order of the plan's checkpoints. Verdicts on the target's behaviour come last."""
    order = {str(c.subject): number for number, c in enumerate(plan.checkpoints)}
    return sorted(verdicts, key=lambda v: order.get(v.subject, len(order)))


def rehearsal_reasons(
    plan: Plan, settings: Settings, gates: Gates, measurements: Sequence[Measurement], clients: Clients
) -> tuple[str, ...]:
    """Return the reasons why a run is at best a rehearsal, one sentence each."""
    return (
        *(s.reason for s in shortfalls(plan, settings, gates)),
        *_reread_reasons(settings, measurements),
        *_basis_reasons(measurements),
        *client_reasons(measurements),
        *unsafe_mounts(clients),
    )


def conclude(
    verdicts: Sequence[Verdict],
    gates: Gates,
    measurements: Iterable[Measurement],
    rehearsals: Sequence[str],
    ended_waivers: Sequence[str],
    model_shortfall: ScaleShortfall | None,
    catalogue: Mapping[str, Requirement],
    clients: Clients | None = None,
) -> Judgement:
    """Return the grade, the exit code and the reasons that follow from all verdicts of a run.

    - ``rehearsals``: why the run is at best a rehearsal.
    - ``ended_waivers``: sentences about expired waivers.
    - ``model_shortfall``: why the checkpoints are smaller than the gate table requires; None if they are large enough.
    """
    failed = [v for v in verdicts if v.outcome == "failed" and v.severity == "required"]
    missing = [v for v in verdicts if v.outcome == "not run" and (v.severity == "required" or v.reason == "no test")]
    # A waiver of a deselected test does not make a run complete, whatever the severity.
    waived = [v for v in verdicts if v.outcome == "waived" and (v.severity == "required" or v.reason == "no test")]
    reasons = [f"{v.id} failed for {v.subject}: {v.because}" for v in failed]
    reasons += [f"{v.id} was waived for {v.subject}: {v.because}" for v in waived]
    unmet = unmet_demands(gates.clients, clients or {})
    reasons += unmet
    reasons += _missing_reasons(missing, catalogue)
    if any(v.reason == "client too slow" for v in missing):
        reasons.append(_SLOW_CLIENTS)
    # An incomplete measurement cannot be certified, whatever it shows.
    unfinished = [
        f"The measurement of {m.subject} did not end well: {describe_failure(m.failure)}"
        for m in measurements
        if m.failure and not any(v.subject == str(m.subject) for v in failed + missing)
    ]
    reasons += unfinished
    nothing = not any(v.outcome != "not run" and v.severity == "required" for v in verdicts)
    if nothing and not missing:
        reasons.append(NOTHING_REQUIRED)
    reasons += rehearsals
    reasons += ended_waivers
    reasons += [f"Relaxed by the gate table '{gates.name}': {sentence}" for sentence in gates.relaxed]
    # A rehearsal is not certified, so it may use any models.
    if model_shortfall and not rehearsals:
        reasons.append(f"{model_shortfall.text} Remedy: {model_shortfall.remedy}.")
    is_incomplete = bool(missing or unfinished or nothing or (model_shortfall and not rehearsals))
    grade: Grade
    if rehearsals:
        grade = "rehearsal"
    elif failed or waived or unmet:
        grade = "not certified"
    elif is_incomplete:
        grade = "incomplete"
    else:
        grade = "certified"
        reasons.append(ALL_MET)
    exit_code = EXIT_FAILED if failed or unmet else EXIT_INCOMPLETE if is_incomplete else EXIT_MET
    return Judgement(verdicts=tuple(verdicts), grade=grade, reasons=tuple(reasons), exit_code=exit_code)


def _missing_reasons(missing: Sequence[Verdict], catalogue: Mapping[str, Requirement]) -> list[str]:
    """Return a sentence for each cause of missing results. The sentence names the requirements without a result."""
    causes: dict[tuple[str, str], list[str]] = {}
    for verdict in missing:
        verb = "gave no result" if verdict.reason in _RAN else "did not run"
        if catalogue[verdict.id].suite == "conformance":
            causes.setdefault((verb, verdict.because), []).append(f"{verdict.id} {verdict.subject}")
        else:
            causes.setdefault((f"{verb} for {verdict.subject}", verdict.because), []).append(verdict.id)
    return [f"{', '.join(ids)} {verb}: {because}" for (verb, because), ids in causes.items()]


def _reread_reasons(settings: Settings, measurements: Sequence[Measurement]) -> list[str]:
    """Return at most one reason against a certificate: a load read a checkpoint again, possibly from a page cache."""
    if not 0 < settings.keep_last < settings.operations:
        return []
    return [
        f"Part of what load {o.index} of {m.subject} read again was in a page cache (--ckpt-keep-last)."
        for m in measurements
        for o in m.of_kind("load")
        if o.resident_bytes != 0 and not (m.cache and m.cache.is_declared_cold)
    ][:1]


def _basis_reasons(measurements: Sequence[Measurement]) -> list[str]:
    """Return reasons against a certificate if ranks did not record their own times."""
    reasons = []
    for m in measurements:
        inferred = [o for o in m.operations if o.basis == "inferred from rank 0"]
        unknown = [o for o in m.operations if o.basis == "rank 0 only"]
        if inferred:
            reasons.append(
                f"The slowest process in {len(inferred)} of {counted(len(m.operations), 'operation')} of {m.subject} "
                "was inferred from rank 0's times, not recorded."
            )
        if unknown:
            reasons.append(
                f"Of {len(unknown)} of {counted(len(m.operations), 'operation')} of {m.subject} the slowest process is "
                "not known, only rank 0's own time."
            )
    return reasons


def of_crashed_run(judgement: Judgement) -> Judgement:
    """Return the judgement of a run in which pytest-ckpt or pytest itself failed.

    The grade "certified" becomes "incomplete".
    """
    if judgement.grade != "certified":
        return judgement
    reasons = (*(r for r in judgement.reasons if r != ALL_MET), CRASHED)
    return dataclasses.replace(judgement, grade="incomplete", reasons=reasons, exit_code=EXIT_INCOMPLETE)


def without_plugins(judgement: Judgement, unjudged: Mapping[str, str]) -> Judgement:
    """Return the judgement of a run that was judged again without its plugins.

    ``unjudged`` is {requirement: missing plugin}. If one of these requirements was required and met, the run no longer
    passes. The grade "certified" then becomes "incomplete".
    """
    kept = {v.id for v in judgement.verdicts if v.id in unjudged and v.severity == "required" and v.outcome == "met"}
    if not kept:
        return judgement
    reasons = tuple(r for r in judgement.reasons if judgement.grade != "certified" or r != ALL_MET)
    reasons += tuple(f"{id_} was not re-judged: plugin {unjudged[id_]} is needed." for id_ in sorted(kept))
    return dataclasses.replace(
        judgement,
        grade="incomplete" if judgement.grade == "certified" else judgement.grade,
        reasons=reasons,
        exit_code=judgement.exit_code or EXIT_INCOMPLETE,
    )

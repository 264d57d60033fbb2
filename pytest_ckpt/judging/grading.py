"""Grades a run: completeness, grade, exit code, clusters that the storage serves. Pure."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.checks import CHECKS
from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.environment import PluginFacts
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.options import with_role
from pytest_ckpt.facts.settings import ACCEPTANCE, SUITES
from pytest_ckpt.facts.verdict import Grade, Reason, Verdict
from pytest_ckpt.judging.behaviour import missing_need
from pytest_ckpt.judging.catalogue import REQUIREMENTS, row
from pytest_ckpt.judging.engines import engine_sentences, memory_sentences
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.judging.verdicts import not_run
from pytest_ckpt.judging.waivers import expired, waive
from pytest_ckpt.judging.wording import describe_failure
from pytest_ckpt.sizing.limits import largest_cluster_for_load, largest_cluster_for_save
from pytest_ckpt.sizing.reliability import daly_interval_seconds, effective_training_time_ratio, young_interval_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_ckpt.facts.checks import Check
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.judging.gates import Gates
    from pytest_ckpt.judging.waivers import Waiver
    from pytest_ckpt.sizing.plan import Plan
from pytest_ckpt.support.units import format_percent

SCHEMA = "pytest-ckpt/report/2"

EXIT_MET, EXIT_FAILED, EXIT_INCOMPLETE = 0, 1, 8
ALL_MET = "Every required requirement was met, at full scale, and nothing was left out."
NO_TEST = "Its test did not run: it was deselected, or the session ended before it."


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """All verdicts of a complete run, in the order of the plan and the catalogue, and what follows from them."""

    verdicts: tuple[Verdict, ...]
    grade: Grade
    reasons: tuple[str, ...]
    exit_code: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterSize:
    """The largest cluster, in accelerators, whose limits a subject met; None where nothing was measured."""

    subject: str
    save: int | None
    load: int | None
    overall: int | None
    projected: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A way to choose the interval between checkpoints, and the effective training time ratio that it gives."""

    name: str
    interval_seconds: float
    effective_training_time_ratio: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRow:
    """What the measured times of a subject, at full size, mean for training."""

    subject: str
    save_seconds: float
    load_seconds: float
    projected: bool
    intervals: tuple[Interval, ...]


def judge_run(
    plan: Plan,
    settings: Settings,
    gates: Gates,
    verdicts: Iterable[Verdict],
    measurements: Sequence[Measurement] = (),
    waivers: Sequence[Waiver] = (),
    day: str = "",
    catalogue: Mapping[str, Requirement] = REQUIREMENTS,
) -> Judgement:
    """Complete the verdicts by what did not run and give the grade.

    ``verdicts`` are those of the tests that ran. Certified needs every required requirement met at full
    scale and every test run; a run at reduced scale can only ever be a rehearsal. ``waivers`` count where they have not
    ended before the run's ``day``. ``catalogue`` is the run's, with the requirements of plugins.
    """
    known = {(v.id, v.subject): v for v in verdicts}
    chosen = chosen_suites(settings, gates, catalogue)
    complete = []
    for requirement in asked_requirements(settings, gates, catalogue):
        for subject, reason, because in _subjects(requirement, plan, settings, gates):
            verdict = known.get((requirement.id, subject))
            if verdict is None and requirement.suite not in chosen:
                unselected = f"{requirement.suite.capitalize()} suite not selected (--ckpt-suite)."
                verdict = not_run(requirement, subject, "not selected", unselected, gates)
            complete.append(verdict or not_run(requirement, subject, reason, because, gates))
    complete = waive(complete, waivers, day)
    order = {str(c.subject): number for number, c in enumerate(plan.checkpoints)}
    # Subject by subject; what is asked of the target as a whole stands last.
    complete.sort(key=lambda v: order.get(v.subject, len(order)))
    failed = [v for v in complete if v.outcome == "failed" and v.severity == "required"]
    missing = [v for v in complete if v.outcome == "not run" and (v.severity == "required" or v.reason == "no test")]
    waived = [v for v in complete if v.outcome == "waived" and v.severity == "required"]
    rehearsals = _rehearsal_reasons(plan, settings, gates) + _reread_reasons(settings, measurements)
    rehearsals += _basis_reasons(measurements)
    reasons = [f"{v.id} failed for {v.subject}: {v.because}" for v in failed]
    reasons += [f"{v.id} was waived for {v.subject}: {v.because}" for v in waived]
    reasons += _missing_reasons(missing, catalogue)
    # A measurement that did not come to its end is no basis for a certificate, whatever could be judged of it.
    unfinished = [
        f"The measurement of {m.subject} did not end well: {describe_failure(m.failure)}"
        for m in measurements
        if m.failure and not any(v.subject == str(m.subject) for v in failed + missing)
    ]
    reasons += unfinished
    reasons += rehearsals
    reasons += expired(waivers, day)
    reasons += [f"Relaxed by the gates '{gates.name}': {sentence}" for sentence in gates.relaxed]
    grade: Grade
    if rehearsals:
        grade = "rehearsal"
    elif failed or waived:
        grade = "not certified"
    elif missing or unfinished:
        grade = "incomplete"
    else:
        grade = "certified"
        reasons.append(ALL_MET)
    exit_code = EXIT_FAILED if failed else EXIT_INCOMPLETE if missing or unfinished else EXIT_MET
    return Judgement(verdicts=tuple(complete), grade=grade, reasons=tuple(reasons), exit_code=exit_code)


def chosen_suites(
    settings: Settings, gates: Gates, catalogue: Mapping[str, Requirement] = REQUIREMENTS
) -> tuple[str, ...]:
    """Return the suites of a run: those that were named, or those in which the gates require something.

    A suite of which nothing can be asked of the target is none of the run's.
    """
    if settings.suites != ("auto",):
        there = {r.suite for r in catalogue.values()}
        return tuple(suite for suite in settings.suites if suite in there)
    asked = asked_requirements(settings, gates, catalogue)
    wanted = {r.suite for r in asked if _gates_something(r, settings, gates)}
    return tuple(suite for suite in SUITES if suite in wanted)


def asked_requirements(
    settings: Settings, gates: Gates, catalogue: Mapping[str, Requirement] = REQUIREMENTS
) -> list[Requirement]:
    """Return what a run with these settings is to judge; what the gates switch off is no part of it."""
    return [r for r in catalogue.values() if r.is_asked(settings) and _is_on(r, gates)]


def asked_checks(requirement: Requirement, settings: Settings, gates: Gates) -> list[Check]:
    """Return the checks of a requirement on the target's behaviour that are part of a run."""
    return [
        c
        for c in CHECKS
        if c.requirement == requirement.id
        and (kind := gates.kind(c.requirement, c.subject, requirement.severity)) != "off"
        and (kind != "where given" or is_given(c, settings))
    ]


def is_given(check: Check, settings: Settings) -> bool:
    """Whether a run has what a check needs."""
    return {
        "": True,
        "second client": bool(settings.second_mount) or len({h.name for h in settings.hosts}) > 1,
        "power cut": bool(settings.power_cut),
        "small folder": bool(settings.full_target),
    }[check.needs]


def _is_on(requirement: Requirement, gates: Gates) -> bool:
    if requirement.suite != "conformance":
        return gates.kind(requirement.id, "", requirement.severity) != "off"
    checks = (c for c in CHECKS if c.requirement == requirement.id)
    return any(gates.kind(c.requirement, c.subject, requirement.severity) != "off" for c in checks)


def _gates_something(requirement: Requirement, settings: Settings, gates: Gates) -> bool:
    if requirement.suite != "conformance":
        return gates.kind(requirement.id, "", requirement.severity) == "required"
    checks = asked_checks(requirement, settings, gates)
    return any(gates.kind(c.requirement, c.subject, requirement.severity) != "advisory" for c in checks)


def _subjects(requirement: Requirement, plan: Plan, settings: Settings, gates: Gates) -> list[tuple[str, Reason, str]]:
    """Return (subject, reason, sentence) of everything that a requirement is judged on: why it has no verdict yet."""
    if requirement.suite != "conformance":
        return [
            (str(c.subject), "not planned", c.not_run) if c.not_run else (str(c.subject), "no test", NO_TEST)
            for c in plan.checkpoints
        ]
    return [
        (c.subject, "no test", NO_TEST) if is_given(c, settings) else (c.subject, "not given", missing_need(c))
        for c in asked_checks(requirement, settings, gates)
    ]


def known_subjects(
    plan: Plan, settings: Settings, gates: Gates, catalogue: Mapping[str, Requirement] = REQUIREMENTS
) -> dict[str, list[str]]:
    """Return every requirement of a run with what it is judged on."""
    asked = asked_requirements(settings, gates, catalogue)
    return {r.id: [subject for subject, _, _ in _subjects(r, plan, settings, gates)] for r in asked}


def possible_grade(
    plan: Plan, settings: Settings, gates: Gates, catalogue: Mapping[str, Requirement] = REQUIREMENTS
) -> str:
    """Say before a run which grade it can reach at best."""
    if reasons := _rehearsal_reasons(plan, settings, gates):
        return f"rehearsal ({reasons[0]})"
    if stopped := [c for c in plan.checkpoints if c.not_run]:
        return f"incomplete ({stopped[0].not_run})"
    for requirement in asked_requirements(settings, gates, catalogue):
        if not _gates_something(requirement, settings, gates):
            continue
        if requirement.suite not in chosen_suites(settings, gates, catalogue):
            return f"incomplete ({requirement.suite} suite not selected: --ckpt-suite)"
        for check in asked_checks(requirement, settings, gates):
            if not is_given(check, settings) and gates.kind(check.requirement, check.subject, "required") == "required":
                return f"incomplete ({check.name}: {missing_need(check)})"
    return "certified"


def _missing_reasons(missing: Sequence[Verdict], catalogue: Mapping[str, Requirement]) -> list[str]:
    """Name what did not run, one sentence a cause."""
    causes: dict[tuple[str, str], list[str]] = {}
    for verdict in missing:
        if catalogue[verdict.id].suite == "conformance":
            causes.setdefault(("", verdict.because), []).append(f"{verdict.id} {verdict.subject}")
        else:
            causes.setdefault((f" for {verdict.subject}", verdict.because), []).append(verdict.id)
    return [f"{', '.join(ids)} did not run{subject}: {because}" for (subject, because), ids in causes.items()]


def _rehearsal_reasons(plan: Plan, settings: Settings, gates: Gates) -> list[str]:
    reasons = []
    if not gates.certifies:
        reasons.append(f"The gates '{gates.name}' are weaker than a certificate needs.")
    if settings.scale < ACCEPTANCE.scale:
        reasons.append(f"The run was at {settings.scale:.4g} of the full size; limits were judged by bandwidth.")
    if settings.operations < ACCEPTANCE.operations:
        reasons.append(
            f"The run had {settings.operations} saves and loads; acceptance needs {ACCEPTANCE.operations} of each."
        )
    if settings.effort < 1 and "conformance" in chosen_suites(settings, gates):
        reasons.append(f"Behaviour checks ran {format_percent(settings.effort)} of their trials.")
    if settings.compressible:
        reasons.append(f"{settings.compressible:.3g} of the content was zeros, which checkpoints do not hold.")
    if settings.retain == 1:
        reasons.append("One checkpoint was kept and loaded repeatedly (--ckpt-retain); acceptance needs 2.")
    return reasons + [f"{c.rehearsal}." for c in plan.checkpoints if c.rehearsal]


def _reread_reasons(settings: Settings, measurements: Sequence[Measurement]) -> list[str]:
    """Where checkpoints are loaded more than once, nothing of them may have been in a cache."""
    if not 0 < settings.retain < settings.operations:
        return []
    return [
        f"Part of what load {o.index} of {m.subject} read again was in a page cache (--ckpt-retain)."
        for m in measurements
        for o in m.of_kind("load")
        if o.resident_bytes != 0 and not (m.cache and m.cache.is_declared_cold)
    ][:1]


def _basis_reasons(measurements: Sequence[Measurement]) -> list[str]:
    """A time that no rank recorded certifies nothing, however right it is."""
    reasons = []
    for m in measurements:
        inferred = [o for o in m.operations if o.basis == "inferred from rank 0"]
        unknown = [o for o in m.operations if o.basis == "rank 0 only"]
        if inferred:
            reasons.append(
                f"The slowest process in {len(inferred)} of {len(m.operations)} operations of {m.subject} was inferred "
                "from rank 0's times, not recorded."
            )
        if unknown:
            reasons.append(
                f"Of {len(unknown)} of {len(m.operations)} operations of {m.subject} the slowest process is not known, "
                "only rank 0's own time."
            )
    return reasons


def without_plugins(judgement: Judgement, unjudged: Mapping[str, str]) -> Judgement:
    """Return a judgement that certifies nothing by verdicts of plugins that were not judged again.

    ``unjudged`` goes from the requirements to the plugins that would be needed.
    """
    kept = {v.id for v in judgement.verdicts if v.id in unjudged and v.severity == "required" and v.outcome == "met"}
    if not kept:
        return judgement
    reasons = tuple(r for r in judgement.reasons if judgement.grade != "certified" or r != ALL_MET)
    reasons += tuple(f"{id_} was not judged again here: plugin {unjudged[id_]} is needed." for id_ in sorted(kept))
    return dataclasses.replace(
        judgement,
        grade="incomplete" if judgement.grade == "certified" else judgement.grade,
        reasons=reasons,
        exit_code=judgement.exit_code or EXIT_INCOMPLETE,
    )


def cluster_sizes(plan: Plan, measurements: Sequence[Measurement]) -> list[ClusterSize]:
    """Return the largest cluster that each measurement would serve; projected where it was not at full size."""
    rows = []
    for m in measurements:
        save, load = _full_size_seconds(m, "save"), _full_size_seconds(m, "load")
        by_save = largest_cluster_for_save(save, plan.limits) if save else None
        by_load = largest_cluster_for_load(load, plan.limits) if load else None
        overall = min(by_save, by_load) if by_save is not None and by_load is not None else None
        rows.append(
            ClusterSize(
                subject=str(m.subject),
                save=by_save,
                load=by_load,
                overall=overall,
                projected=m.bytes != m.full_bytes,
            )
        )
    return rows


def training_rows(plan: Plan, measurements: Sequence[Measurement]) -> list[TrainingRow]:
    """Return what the measured times mean for training: the intervals of the rule, of Young and of Daly.

    Each comes with the effective training time ratio that it gives (restart of the job itself counted as zero).
    """
    rows = []
    for m in measurements:
        save, load = _full_size_seconds(m, "save"), _full_size_seconds(m, "load")
        if not save or not load:
            continue
        mttf = plan.limits.mttf_seconds
        intervals = {
            "rule": plan.limits.interval_seconds,
            "Young": young_interval_seconds(save, mttf),
            "Daly": daly_interval_seconds(save, mttf),
        }
        rows.append(
            TrainingRow(
                subject=str(m.subject),
                save_seconds=save,
                load_seconds=load,
                projected=m.bytes != m.full_bytes,
                intervals=tuple(
                    Interval(
                        name=name,
                        interval_seconds=seconds,
                        effective_training_time_ratio=effective_training_time_ratio(
                            save_seconds=save, load_seconds=load, interval_seconds=seconds, mttf_seconds=mttf
                        ),
                    )
                    for name, seconds in intervals.items()
                ),
            )
        )
    return rows


def disclosures(settings: Settings, gates: Gates) -> list[str]:
    """Name every setting that is not the default of an acceptance run, where it came from, and what gates relax."""
    disclosed = {option.flag for option in with_role("disclosed")}
    return [
        f"{o.option} {o.value} (default {o.default or 'none'}; from {o.source})"
        for o in settings.origins
        if o.value != o.default and o.option in disclosed
    ] + [f"relaxed by the gates '{gates.name}': {sentence}" for sentence in gates.relaxed]


def plugin_sentences(plugins: Iterable[PluginFacts]) -> list[str]:
    """Name every plugin that took part, its version and its hooks."""
    return [
        f"plugin {p.label} takes part with {', '.join(hook.removeprefix('pytest_ckpt_') for hook in p.hooks)}"
        for p in plugins
    ]


def make_document(
    *,
    run: Mapping[str, Any],
    plan: Plan,
    settings: Settings,
    gates: Gates,
    waivers: Sequence[Waiver],
    judgement: Judgement,
    exit_code: int,
    measurements: Sequence[Measurement],
    observations: Sequence[Observation],
    environment: Mapping[str, Any],
    stages: Mapping[str, float],
    left_behind: Sequence[str],
    system: Mapping[str, Any] | None = None,
    catalogue: Mapping[str, Requirement] = REQUIREMENTS,
) -> dict[str, Any]:
    """Return the report as ``report.json`` holds it, in plain types; ``system`` is what its vendor says of it."""
    plain_plan = plan.to_plain()
    sizes = cluster_sizes(plan, measurements)
    plugins = [from_plain(PluginFacts, plugin) for plugin in environment.get("plugins") or ()]
    document = {
        "schema": SCHEMA,
        "run": run,
        "grade": judgement.grade,
        "grade_reasons": judgement.reasons,
        "exit_code": exit_code,
        "cluster": plain_plan["cluster"],
        "checkpoints": plain_plan["checkpoints"],
        "requirements": judgement.verdicts,
        "catalogue": [row(r) for r in asked_requirements(settings, gates, catalogue)],
        "gates": gates,
        "waivers": waivers,
        "measurements": measurements,
        "observations": observations,
        "certified_cluster": sizes,
        "training": training_rows(plan, measurements),
        "system": system,
        "environment": environment,
        "settings": settings.origins,
        "disclosures": [
            *disclosures(settings, gates),
            *plugin_sentences(plugins),
            *engine_sentences(settings),
            *memory_sentences(plan, measurements),
        ],
        "sections": [],
        "stages": stages,
        "left_behind": left_behind,
    }
    plain: dict[str, Any] = to_plain(document)
    return plain


def _full_size_seconds(measurement: Measurement, kind: str) -> float | None:
    """Return the slowest operation's seconds at full size: as measured, or projected at the same bandwidth."""
    operations = [o for o in measurement.operations if o.kind == kind]
    if len(operations) < measurement.operations_planned or not operations:
        return None
    return max(o.seconds for o in operations) * measurement.full_bytes / measurement.bytes

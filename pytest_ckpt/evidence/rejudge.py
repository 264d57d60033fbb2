"""Re-judges the saved results of a run from its folder: no target, no MPI, no torch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_ckpt.config.engines import known_engines
from pytest_ckpt.config.gate_files import load_gates
from pytest_ckpt.config.models import kept_models
from pytest_ckpt.config.options import resolve
from pytest_ckpt.evidence import upgrade
from pytest_ckpt.evidence.cross_check import PLAN, SESSION
from pytest_ckpt.evidence.manifest import MANIFEST, compare
from pytest_ckpt.evidence.run_files import (
    REPORT,
    VERIFY_REMEDY,
    fitting,
    not_ours,
    read_file,
    read_measurements,
    read_observations,
    read_run,
)
from pytest_ckpt.evidence.unfinished import as_incomplete, begun_report, decidable, is_unfinished
from pytest_ckpt.facts.engines import recorded_engine
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.options import with_role
from pytest_ckpt.facts.settings import Origin, Settings
from pytest_ckpt.facts.targets import TargetFacts
from pytest_ckpt.facts.verdict import Verdict
from pytest_ckpt.judging.catalogue import extended, known_to, offered, recorded
from pytest_ckpt.judging.clients import clients_of
from pytest_ckpt.judging.completeness import chosen_suites
from pytest_ckpt.judging.document import make_document
from pytest_ckpt.judging.gates import Gates
from pytest_ckpt.judging.grading import EXIT_INCOMPLETE, judge_run, without_plugins
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.judging.verdicts import decide, decide_observed, not_run, severity_of
from pytest_ckpt.judging.waivers import Waiver
from pytest_ckpt.sizing.plan import Plan, plan_run
from pytest_ckpt.support.errors import UsageError

NO_FACTS = "In this folder there is no measurement of it."

_JUDGED = (REPORT, "measurements/", "observations/")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Facts:
    """What the folder of a run holds beside its report."""

    kind: str
    plan: Plan
    gates: Gates
    measurements: Mapping[str, Measurement]
    observations: Mapping[tuple[str, str], Observation]


def judge_folder(
    folder: Path,
    command_line: Mapping[str, str | None],
    *,
    as_recorded: bool = False,
    run: tuple[dict[str, Any], upgrade.Schema] | None = None,
) -> dict[str, Any]:
    """Return the report of a run folder, judged again; ``command_line`` holds the limits that were given.

    With the limits of the run the verdicts are those of the run. Plugins are not there to judge again: with the limits
    of the run their verdicts are kept and said to be, with others they are "not run", and neither certifies.
    ``as_recorded`` keeps them word for word, for whoever compares. ``run`` is what `read_run` returns, where the report
    was read already. A run whose controller was killed is judged from what there is, and is "incomplete". Raises
    UsageError when the folder holds no run, and when a file in it is none that a run leaves.
    """
    unfinished = is_unfinished(folder)
    found, schema = (read_file(folder / SESSION), upgrade.NOW) if unfinished else run or read_run(folder)
    try:
        report = begun_report(found, read_file(folder / PLAN)) if unfinished else found
        document = _judge(folder, report, schema, command_line, as_recorded=as_recorded)
        return as_incomplete(document) if unfinished else document
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # Facts that have the right form and yet are none: a median over nothing, a division by zero, a part that lacks.
        raise UsageError(
            f"{folder} cannot be judged: it holds what no run leaves ({type(error).__name__}: {error}).", VERIFY_REMEDY
        ) from None


def judge_sealed_folder(folder: Path, command_line: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the report of a run folder, judged again; what was changed since its run is named, and cannot pass.

    Only files that are judged are looked at. Raises UsageError as `judge_folder` does.
    """
    document = judge_folder(folder, command_line)
    if is_unfinished(folder) or not (changed := changes_of_facts(folder)):
        return document
    document["grade_reasons"].append(f"The folder is not as its run left it: {', '.join(changed)}. {VERIFY_REMEDY}")
    if document["grade"] == "certified":
        document["grade"] = "incomplete"
    # Whoever changed it may have changed it for the better.
    document["exit_code"] = document["exit_code"] or EXIT_INCOMPLETE
    return document


def changes_of_facts(folder: Path) -> list[str]:
    """Return what is not as the manifest lists it of report, measurements and observations."""
    try:
        found = compare(folder)
    except OSError as error:
        return [f"{MANIFEST} cannot be read: {error.strerror}"]
    changes = (("changed", found.changed), ("added", found.added), ("removed", found.removed))
    facts = [f"{word} {name}" for word, names in changes for name in names if name.startswith(_JUDGED)]
    return [*facts, *(f"ill-formed {line}" for line in found.ill_formed)]


def _judge(
    folder: Path,
    report: Mapping[str, Any],
    schema: upgrade.Schema,
    command_line: Mapping[str, str | None],
    *,
    as_recorded: bool,
) -> dict[str, Any]:
    extras = recorded(report.get("catalogue") or ())
    settings = _settings(report, command_line)
    if as_recorded:
        settings = dataclasses.replace(settings, origins=tuple(_origin(s) for s in report["settings"]))
    target = fitting(TargetFacts, report["environment"]["target"])
    catalogue = known_to(offered(extended(extras), target.capabilities), schema.number)
    said = command_line.get("ckpt_gates")
    gates = load_gates(said, target.gate_kind, catalogue) if said else fitting(Gates, report["gates"])
    settings = dataclasses.replace(settings, suites=chosen_suites(settings, gates, catalogue))
    plan = plan_run(settings, target, gates.table)
    measurements = read_measurements(folder, plan, schema)
    if "page cache" in target.capabilities and any(m.cache and m.cache.is_declared_cold for m in measurements):
        raise not_ours(folder, "holds what no run writes", ["its target has a page cache, and loads were not counted"])
    observations = read_observations(folder, schema)
    facts = _Facts(
        kind=target.kind,
        plan=plan,
        gates=gates,
        measurements={str(m.subject): m for m in measurements},
        observations={(o.requirement, o.subject): o for o in observations},
    )
    chosen = chosen_suites(settings, gates, catalogue)
    if "requirements" in report:
        has_same_limits = _has_same_limits(report, plan)
        places = [fitting(Verdict, v) for v in report["requirements"]]
    else:
        has_same_limits = True
        places = [
            *decidable(
                plan, settings, gates, catalogue, measured=facts.measurements.keys(), observed=facts.observations.keys()
            )
        ]
    verdicts = []
    for found in places:
        # A test that did not run then does not run now.
        if found.reason == "no test" or found.id not in catalogue:
            continue
        requirement = catalogue[found.id]
        if found.outcome == "not run" and requirement.suite not in chosen:
            continue
        if requirement.plugin and found.subject in facts.measurements:
            kept = found if as_recorded else _kept(found, requirement.plugin, has_same_limits=has_same_limits)
            verdicts.append(dataclasses.replace(kept, severity=severity_of(requirement, found.subject, gates)))
        else:
            verdicts.append(_decide(requirement, found, facts))
    waivers = tuple(fitting(Waiver, w) for w in report.get("waivers", []))
    judgement = judge_run(
        plan,
        settings,
        gates,
        verdicts,
        measurements,
        waivers,
        report["run"]["started"],
        catalogue,
        clients_of(report["environment"]),
    )
    if not as_recorded:
        judgement = without_plugins(judgement, {r.id: r.plugin for r in extras})
    document = make_document(
        # The certificate in that folder is another judgement's.
        run={**report["run"], "folder": ""},
        plan=plan,
        settings=settings,
        gates=gates,
        waivers=waivers,
        judgement=judgement,
        exit_code=judgement.exit_code,
        measurements=measurements,
        observations=observations,
        environment=report["environment"],
        stages=report["stages"],
        left_behind=report["left_behind"],
        system=report.get("system"),
        catalogue=catalogue,
    )
    if report.get("sections") and not as_recorded:
        document["disclosures"].append("what plugins wrote about the run's own verdicts is not repeated here")
    return document


def _origin(setting: Mapping[str, Any]) -> Origin:
    """Return where a value came from; an older report may not say what the default was."""
    return fitting(Origin, {"default": "", **setting})


def _kept(verdict: Verdict, plugin: str, *, has_same_limits: bool) -> Verdict:
    """Return the recorded verdict of a plugin, with a word on it; by other limits it would be another one."""
    needed = f"Not re-judged: plugin {plugin} is needed."
    if has_same_limits:
        return dataclasses.replace(verdict, because=f"{needed} In the run: {verdict.because}")
    was = f"By the limits of the run it was {verdict.outcome}: {verdict.because}"
    return dataclasses.replace(
        verdict, outcome="not run", because=f"{needed} {was}", measured=None, limit=None, margin=None, detail=""
    )


def _has_same_limits(report: Mapping[str, Any], plan: Plan) -> bool:
    now = {name: value for name, value in plan.limits.to_plain().items() if isinstance(value, int | float)}
    then = report["cluster"]
    return all(math.isclose(value, then.get(name, math.nan), rel_tol=1e-9) for name, value in now.items())


def _decide(requirement: Requirement, found: Verdict, facts: _Facts) -> Verdict:
    """Judge one requirement again, on what it was judged on."""
    subject, gates = found.subject, facts.gates
    if measurement := facts.measurements.get(subject):
        return decide(requirement, measurement, facts.plan.limits, gates)
    if observation := facts.observations.get((found.id, subject)):
        return decide_observed(requirement, observation, gates, facts.kind)
    if found.outcome == "not run":
        return dataclasses.replace(found, severity=severity_of(requirement, subject, gates))
    # What a report says alone is no fact.
    return not_run(requirement, subject, "no facts", NO_FACTS, gates)


def _settings(report: Mapping[str, Any], command_line: Mapping[str, str | None]) -> Settings:
    flags = {option.flag: option.ini_name for option in with_role("plan")}
    said = {flags[s["option"]]: s["value"] for s in report["settings"] if s["option"] in flags and s["value"]}
    hosts = report["environment"]["hosts"]
    if len(hosts) > 1:
        said["ckpt_hosts"] = ",".join(f"{host['host']}:{max(1, len(host['ranks']))}" for host in hosts)
    ranks = sum(len(host["ranks"]) for host in hosts)
    if ranks and "ckpt_processes" not in said:
        said["ckpt_processes"] = str(ranks)
    recorded = [recorded_engine(c["engine"]) for c in report["checkpoints"] if c.get("engine")]
    return resolve(
        command_line,
        said,
        ini_source="the run",
        engines=known_engines(recorded),
        kept=kept_models(report["checkpoints"]),
    )

"""Decide again about a run that is over, from the files of its folder alone: no target, no MPI, no torch."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_ckpt.certificate import NO_TEST, chosen_suites, judge_run, make_document, without_plugins
from pytest_ckpt.errors import UsageError
from pytest_ckpt.gate_tables import load_gates
from pytest_ckpt.options import OPTIONS, resolve
from pytest_ckpt.records import Measurement, Observation, Verdict, from_plain
from pytest_ckpt.requirements.catalogue import decide, decide_observed, extended, recorded, severity_of
from pytest_ckpt.requirements.gates import Gates
from pytest_ckpt.requirements.waivers import Waiver
from pytest_ckpt.settings import Settings
from pytest_ckpt.sizing.plan import Plan, plan_run

# What decides which subjects were run and how; the rest of a run's options told where and with what.
_RECORDED = (
    "cluster", "overhead", "restore_budget", "checkpoints_per_failure", "failures", "model", "mode", "processes",
    "engine", "profile", "scale", "operations", "retain", "data_pairs", "compressible",
    "duration", "near_full",
    "suite", "second_mount", "power_cut", "full_target",
)  # fmt: skip


def judge_folder(folder: Path, command_line: Mapping[str, str | None], *, as_recorded: bool = False) -> dict[str, Any]:
    """Return the report of a run folder, judged again; ``command_line`` holds the limits that were given.

    With the limits of the run the verdicts are those of the run. Plugins are not there to judge again: with the limits
    of the run their verdicts are kept and said to be, with others they are "not run", and neither certifies.
    ``as_recorded`` keeps them word for word, for whoever compares. Raises UsageError when the folder holds no run.
    """
    report = _read(folder / "report.json")
    extras = recorded(report.get("catalogue") or ())
    catalogue = extended(extras)
    settings = _settings(report, command_line)
    target = report["environment"]["target"]
    said = command_line.get("ckpt_gates")
    gates = (
        load_gates(said, target["file_system"], is_local=target["local"], catalogue=catalogue)
        if said
        else from_plain(Gates, report["gates"])
    )
    settings = dataclasses.replace(settings, suites=chosen_suites(settings, gates, catalogue))
    plan = plan_run(settings, file_system=target["file_system"], is_local=target["local"])
    measurements = [
        from_plain(Measurement, _read(file))
        for planned in plan.checkpoints
        if (file := folder / "measurements" / f"{planned.subject}.json").exists()
    ]
    by_subject = {m.subject: m for m in measurements}
    observations = [from_plain(Observation, _read(file)) for file in sorted((folder / "observations").glob("*.json"))]
    by_check = {(o.requirement, o.subject): o for o in observations}
    chosen = chosen_suites(settings, gates, catalogue)
    has_same_limits = _has_same_limits(report, plan)
    book = []
    for found in (from_plain(Verdict, v) for v in report["requirements"]):
        # A test that did not run then does not run now.
        if found.because.endswith(NO_TEST) or found.id not in catalogue:
            continue
        requirement, subject = catalogue[found.id], found.subject
        if found.outcome == "not run" and requirement.suite not in chosen:
            continue
        if requirement.plugin:
            kept = found if as_recorded else _kept(found, requirement.plugin, has_same_limits=has_same_limits)
            book.append(dataclasses.replace(kept, severity=severity_of(requirement, subject, gates)))
        elif measurement := by_subject.get(subject):
            book.append(decide(requirement, measurement, plan.limits, gates))
        elif observation := by_check.get((found.id, subject)):
            book.append(decide_observed(requirement, observation, gates))
        else:
            book.append(dataclasses.replace(found, severity=severity_of(requirement, subject, gates)))
    waivers = tuple(from_plain(Waiver, w) for w in report.get("waivers", []))
    judgement = judge_run(plan, settings, gates, book, measurements, waivers, report["run"]["started"], catalogue)
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
    if report.get("sections"):
        document["disclosures"].append("what plugins wrote about the run's own verdicts is not repeated here")
    return document


def _kept(verdict: Verdict, plugin: str, *, has_same_limits: bool) -> Verdict:
    """Return the recorded verdict of a plugin, with a word on it; by other limits it would be another one."""
    needed = f"Not judged again here: plugin {plugin} is needed."
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


def _settings(report: Mapping[str, Any], command_line: Mapping[str, str | None]) -> Settings:
    flags = {option.flag: option.ini_name for option in OPTIONS if option.key in _RECORDED}
    said = {flags[s["option"]]: s["value"] for s in report["settings"] if s["option"] in flags and s["value"]}
    hosts = report["environment"]["hosts"]
    if len(hosts) > 1:
        said["ckpt_hosts"] = ",".join(f"{host['host']}:{max(1, len(host['ranks']))}" for host in hosts)
    ranks = sum(len(host["ranks"]) for host in hosts)
    if ranks and "ckpt_processes" not in said:
        said["ckpt_processes"] = str(ranks)
    return resolve(command_line, said, ini_source="the run")


def read_report(folder: Path) -> dict[str, Any]:
    """Return the report of a run folder. Raises UsageError when there is none."""
    report = _read(folder / "report.json")
    if not isinstance(report, dict) or not str(report.get("schema", "")).startswith("pytest-ckpt/report/"):
        raise UsageError(
            f"{folder / 'report.json'} is no report of pytest-ckpt.", "Name the folder of a run, such as ckpt-report."
        )
    return report


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}.",
            "Name the folder of a run, such as ckpt-report, or of results of DLIO.",
        ) from None
    except ValueError as error:
        raise UsageError(f"{file} is not JSON: {error}.", "Name the folder of a run that ended.") from None

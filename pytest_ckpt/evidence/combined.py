"""One report from the folders of several runs: performance today, conformance yesterday, the failed model again.

Each run is judged by itself, as `judge` does it alone; then the newest result of each requirement and subject stands.
Nothing is measured twice, and what an older run had is told where a newer one took its place.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_ckpt import __version__
from pytest_ckpt.evidence.combined_parts import (
    Combined,
    MeasuredPart,
    Result,
    RunPart,
    combined_measurements,
    combined_plan,
    measured_parts,
)
from pytest_ckpt.evidence.conditions import check_alike, differences_of, labels, moment, overlaps
from pytest_ckpt.evidence.judged_run import JudgedRun, judged_run
from pytest_ckpt.evidence.manifest import MANIFEST, file_digest
from pytest_ckpt.evidence.rejudge import SECTIONS_LEFT_OUT, changes_of_facts, odd_facts_named, without_trust
from pytest_ckpt.evidence.run_files import COMBINED, VERIFY_REMEDY, Document, ReadDocument, read_report
from pytest_ckpt.evidence.unfinished import is_unfinished
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.facts.settings import ACCEPTANCE
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.grading.document import make_document
from pytest_ckpt.grading.frameworks import framework_overheads
from pytest_ckpt.grading.grading import Judgement, conclude, in_order, rehearsal_reasons, without_plugins
from pytest_ckpt.grading.scope import unheld_model
from pytest_ckpt.judging.clients import clients_of
from pytest_ckpt.judging.combination import Choice, RunResults, choose
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.judging.waivers import expired
from pytest_ckpt.sizing.plan import Plan
from pytest_ckpt.support.errors import UsageError

MAXIMUM_RUNS = 50


def combine_folders(folders: Sequence[Path], command_line: Mapping[str, str | None]) -> Document:
    """Return one report of several runs, judged again; ``command_line`` holds the limits that were given.

    A folder that is not as its run left it is named, and nothing is certified by it. Raises UsageError for folders
    that hold no run that ended, and for runs that cannot stand on one certificate.
    """
    if len(folders) > MAXIMUM_RUNS:
        raise UsageError(f"{len(folders)} folders were named.", f"Combine at most {MAXIMUM_RUNS} runs.")
    found = [(folder, _judged(folder, command_line)) for folder in folders]
    runs = labels([run for _, run in found])
    check_alike(runs, command_line)
    places = {label: next(folder for folder, other in found if other is run) for label, run in runs.items()}
    document = _document(runs, places, {name: value for name, value in command_line.items() if value is not None})
    reasons = [
        f"The folder of {label} is not as its run left it: {', '.join(changed)}. {VERIFY_REMEDY}"
        for label, folder in places.items()
        if (changed := changes_of_facts(folder))
    ]
    return without_trust(document, reasons) if reasons else document


def _judged(folder: Path, command_line: Mapping[str, str | None]) -> JudgedRun:
    if is_unfinished(folder):
        raise UsageError(
            f"{folder} holds a run that wrote no report.", "Leave it out: only runs that came to their end combine."
        )
    report = read_report(folder)
    with odd_facts_named(folder):
        run = judged_run(folder, report, command_line, as_recorded=False)
        if moment(report["run"]["finished"]) < moment(report["run"]["started"]):
            raise ValueError("the run ended before it began")
        return run


def _document(runs: Mapping[str, JudgedRun], places: Mapping[str, Path], limits: Mapping[str, str]) -> Document:
    catalogue = {id_: r for run in runs.values() for id_, r in run.catalogue.items()}
    # In the order of the catalogue; plugins' own come last.
    catalogue = {id_: catalogue[id_] for id_ in dict.fromkeys([*REQUIREMENTS, *catalogue]) if id_ in catalogue}
    choice = choose([_results(label, run) for label, run in runs.items()], catalogue)
    measured = measured_parts(runs, choice, catalogue)
    plan = combined_plan(runs, measured)
    judgement = _judgement(runs, choice, measured, plan, catalogue)
    newest = list(runs.values())[-1]
    measurements = combined_measurements(runs, measured, plan)
    observed = {
        (result.verdict.id, result.verdict.subject): result.run
        for result in choice.results
        if catalogue[result.verdict.id].suite == "conformance"
    }
    documents = {label: run.document(foresees=False) for label, run in runs.items()}
    document = make_document(
        run=_run(runs),
        plan=plan,
        settings=newest.settings,
        gates=newest.gates,
        waivers=tuple({waiver: None for run in runs.values() for waiver in run.waivers}),
        judgement=judgement,
        exit_code=judgement.exit_code,
        measurements=measurements,
        observations=[
            o
            for label, run in runs.items()
            for o in run.observations
            if observed.get((o.requirement, o.subject)) == label
        ],
        environment=_environment(runs),
        stages=_sums([run.report["stages"] for run in runs.values()]),
        left_behind=list(dict.fromkeys(place for run in runs.values() for place in run.report["left_behind"])),
        system=next((s for run in reversed(list(runs.values())) if (s := run.report.get("system"))), None),
        catalogue=catalogue,
        catalogue_names=tuple(dict.fromkeys(name for run in runs.values() for name in run.catalogue_names)),
    )
    rows = {row["id"]: row for of_run in documents.values() for row in of_run["catalogue"]}
    document["catalogue"] = [rows[id_] for id_ in catalogue if id_ in rows]
    document["framework_overhead"] = to_plain(_overheads(runs, measured))
    document["disclosures"] = _disclosures(runs, documents)
    document[COMBINED] = to_plain(
        Combined(
            version=__version__,
            runs=tuple(_part(label, run, places[label], choice) for label, run in runs.items()),
            limits=dict(limits),
            results=tuple(Result(id=c.verdict.id, subject=c.verdict.subject, run=c.run) for c in choice.results),
            measured=tuple(measured),
            superseded=choice.superseded,
            differences=differences_of(runs),
            notices=tuple(overlaps(runs)),
        )
    )
    return document


def _results(label: str, run: JudgedRun) -> RunResults:
    return RunResults(
        label=label,
        verdicts={(v.id, v.subject): v for v in run.judgement.verdicts},
        measurements={str(m.subject): m for m in run.measurements},
        suites=run.settings.suites,
        limits=run.plan.limits,
        gates=run.gates,
    )


def _judgement(
    runs: Mapping[str, JudgedRun],
    choice: Choice,
    measured: Sequence[MeasuredPart],
    plan: Plan,
    catalogue: Mapping[str, Requirement],
) -> Judgement:
    """Return grade and exit code of the results that stand. What makes a run a rehearsal does so for what it lent."""
    newest = list(runs.values())[-1]
    verdicts = in_order([result.verdict for result in choice.results], plan)
    lent: list[Measurement] = []
    rehearsals: dict[str, list[str]] = {}
    for label, run in runs.items():
        used = {m.subject for m in measured if m.run == label}
        behaves = any(
            c.run == label and catalogue[c.verdict.id].suite == "conformance" and c.verdict.outcome != "not run"
            for c in choice.results
        )
        measurements = [m for m in run.measurements if str(m.subject) in used]
        lent += measurements
        rehearsals[label] = list(_rehearsals(run, measurements, behaves=behaves))
    ended = {label: expired(run.waivers, run.report["run"]["started"]) for label, run in runs.items()}
    unheld = unheld_model(plan, newest.settings, newest.gates)
    clients = {
        f"{host} of {label}": facts
        for label, run in runs.items()
        for host, facts in clients_of(run.report["environment"]).items()
    }
    judgement = conclude(
        verdicts, newest.gates, lent, _said_by(rehearsals), _said_by(ended), unheld, catalogue, clients
    )
    return without_plugins(judgement, {r.id: r.plugin for run in runs.values() for r in run.extras})


def _rehearsals(run: JudgedRun, measurements: Sequence[Measurement], *, behaves: bool) -> tuple[str, ...]:
    """Return why what a run lends can only be a rehearsal: nothing counts of what it did beside."""
    settings = run.settings if behaves else dataclasses.replace(run.settings, effort=1.0)
    subjects = {m.subject for m in measurements}
    plan = Plan(limits=run.plan.limits, checkpoints=tuple(c for c in run.plan.checkpoints if c.subject in subjects))
    if not measurements:
        settings = dataclasses.replace(
            settings, scale=ACCEPTANCE.scale, operations=ACCEPTANCE.operations, retain=0, compressible=0.0
        )
    return rehearsal_reasons(plan, settings, run.gates, measurements, clients_of(run.report["environment"]))


def _run(runs: Mapping[str, JudgedRun]) -> Document:
    facts = [run.report["run"] for run in runs.values()]
    ids = [str(run["id"]) for run in facts]
    digest = hashlib.sha256("\n".join(ids).encode("utf-8", errors="surrogatepass")).hexdigest()
    seconds = [run.get("seconds") for run in facts]
    return {
        "id": f"combined-{digest[:16]}",
        "version": facts[-1]["version"],
        "started": min((run["started"] for run in facts), key=moment),
        "finished": max((run["finished"] for run in facts), key=moment),
        "seconds": None if None in seconds else sum(seconds),
        "command": ["pytest-ckpt", "judge", *ids],
        "folder": "",
        "seed": None,
    }


def _environment(runs: Mapping[str, JudgedRun]) -> Document:
    """Return the environment of the newest run, with the hosts of all of them."""
    newest = list(runs.values())[-1].report["environment"]
    hosts = {host["host"]: host for run in runs.values() for host in run.report["environment"].get("hosts") or []}
    return {**newest, "hosts": list(hosts.values())}


def _sums(tables: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(t.get(name, 0.0) for t in tables) for name in dict.fromkeys(n for t in tables for n in t)}


def _overheads(runs: Mapping[str, JudgedRun], measured: Sequence[MeasuredPart]) -> list[Any]:
    """Return what libraries cost, each beside what the same run measured."""
    shown = {(m.subject, m.run) for m in measured if m.part == "operations"}
    return [
        row
        for label, run in runs.items()
        for row in framework_overheads([m for m in run.measurements if (str(m.subject), label) in shown])
    ]


def _disclosures(runs: Mapping[str, JudgedRun], documents: Mapping[str, ReadDocument]) -> list[str]:
    """Return what each run discloses; what plugins wrote is of their own runs."""
    return _said_by(
        {
            label: [*document["disclosures"], *([SECTIONS_LEFT_OUT] if runs[label].report.get("sections") else [])]
            for label, document in documents.items()
        }
    )


def _said_by(stated: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the sentences of runs: once where all say the same, else behind the names of those that do."""
    by: dict[str, list[str]] = {}
    for label, sentences in stated.items():
        for sentence in sentences:
            by.setdefault(sentence, []).append(label)
    return [s if len(runs) == len(stated) else f"{', '.join(runs).capitalize()}: {s}" for s, runs in by.items()]


def _part(label: str, run: JudgedRun, folder: Path, choice: Choice) -> RunPart:
    facts = run.report["run"]
    return RunPart(
        label=label,
        id=str(facts["id"]),
        started=facts["started"],
        finished=facts["finished"],
        seconds=facts.get("seconds"),
        command=tuple(facts["command"]),
        grade=run.judgement.grade,
        exit_code=run.judgement.exit_code,
        results=sum(result.run == label for result in choice.results),
        hosts=tuple(str(host["host"]) for host in run.report["environment"].get("hosts") or []),
        manifest_sha256=_manifest_digest(folder),
        settings=run.settings.origins,
    )


def _manifest_digest(folder: Path) -> str:
    try:
        return file_digest(folder / MANIFEST)
    except OSError:
        return ""

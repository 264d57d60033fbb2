"""Judges published results of DLIO or mlpstorage from their files. No target, MPI or torch is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_ckpt import __version__
from pytest_ckpt.config.gate_files import built_in, load_gates
from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.targets import MOUNTED, TargetFacts
from pytest_ckpt.grading.catalogue import checks_of_run, requirements_of_run
from pytest_ckpt.grading.document import create_document
from pytest_ckpt.grading.grading import EXIT_FAILED, EXIT_INCOMPLETE, judge_run
from pytest_ckpt.judging.gates import Gates
from pytest_ckpt.judging.verdicts import not_run
from pytest_ckpt.published.directory import Message, find_runs, read_run
from pytest_ckpt.published.results import Result, combine_runs
from pytest_ckpt.published.rules import EDITIONS, EditionName, rule_results
from pytest_ckpt.published.runs import KINDS, Run, examine
from pytest_ckpt.published.verdicts import NOT_TESTED, bases_text, judge_result, network_text, recorded_time
from pytest_ckpt.sizing.plan import plan_run
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.units import counted

SCHEMA = "pytest-ckpt/published/1"
NEVER_CERTIFIED = (
    "A published result is not certified: it shows neither that saves are durable, nor that loads are cold, nor that "
    "bytes are right."
)

_MAXIMUM_REPORTED = 20
_MAXIMUM_OPERATIONS = 4_000

RULES_SCHEMA = "pytest-ckpt/rules/1"


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultTree:
    """The results below a directory, and messages about files that belong to no result.

    ``sizing_count`` is the number of directories of commands that do not measure, such as ``datasize``. ``run_count``
    is the number of all other run directories. ``training_count`` is the number of runs of other benchmarks, which
    ``run_count`` includes.
    """

    results: tuple[Result, ...]
    messages: tuple[Message, ...]
    run_count: int
    training_count: int
    sizing_count: int = 0


def find_results(directory: Path, command_line: Mapping[str, str | None]) -> tuple[list[Path], list[Message]]:
    """Return (run directories, messages): the runs at and below a directory, and a message for each skipped directory.

    If there is a run directory, ``command_line`` is also validated. Raises UsageError if no limits can be derived from
    it.
    """
    overlooked: list[Message] = []
    places = find_runs(directory, overlooked.append)
    if places:
        plan_run(resolve(command_line, {}), None)
    return places, overlooked


def read_results(
    directory: Path,
    places: Sequence[Path],
    progress: Callable[[int, int, int], None] = lambda _done, _of, _files: None,
    overlooked: Iterable[Message] = (),
) -> ResultTree:
    """Return the results of the runs in the directories ``places``.

    ``progress`` is called with (runs read, all runs, files read). ``overlooked`` are earlier messages to include.
    """
    runs: list[tuple[Run, list[Message]]] = []
    loose = list(overlooked)
    files = training = sizing = 0

    def on_file() -> None:
        nonlocal files
        files += 1
        if files % 256 == 0:
            progress(done, len(places), files)

    done = 0
    for done, place in enumerate(places):
        progress(done, len(places), files)
        try:
            read = read_run(place, on_file)
        except OSError as error:
            loose.append(Message(path=str(place), text=f"it cannot be read: {error.strerror}."))
            continue
        training += read.is_training
        sizing += read.is_sizing
        if read.is_training or read.is_sizing:
            continue
        run, messages = examine(read)
        if run is None:
            loose += messages
        else:
            runs.append((run, messages))
    progress(len(places), len(places), files)
    return ResultTree(
        results=tuple(combine_runs(runs, directory)),
        messages=tuple(loose),
        run_count=len(places) - sizing,
        training_count=training,
        sizing_count=sizing,
    )


def judge_results(directory: Path, found: ResultTree, command_line: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the report of a single result, or the table of several results, as a document.

    ``command_line`` contains the options for the limits. Raises UsageError if there is no result to judge.
    """
    refuse_nothing(directory, found)
    reports = [judge_one(result, directory, command_line) for result in found.results]
    messages = [plain_message(m, directory) for m in found.messages]
    if len(reports) == 1:
        reports[0]["published"]["messages"] += messages
        return reports[0]
    rows = [_row(report) for report in reports]
    failed = any(report["exit_code"] == EXIT_FAILED for report in reports)
    return {
        "schema": SCHEMA,
        "version": __version__,
        "tree": str(directory),
        "cluster": reports[0]["cluster"],
        "results": rows,
        "messages": [m for report in reports for m in report["published"]["messages"]] + messages,
        "runs": found.run_count,
        "passed_over": found.training_count,
        "exit_code": EXIT_FAILED if failed else EXIT_INCOMPLETE,
    }


def refuse_nothing(directory: Path, found: ResultTree) -> None:
    """Raise UsageError if there is no result to judge."""
    if not found.results:
        listed = [f"  {m.path}: {m.text}" for m in found.messages[:_MAXIMUM_REPORTED]]
        if found.training_count:
            others = counted(found.training_count, "run of another benchmark", "runs of other benchmarks")
            listed.append(f"  Passed over: {others}, such as training.")
        if found.sizing_count:
            listed.append(f"  Passed over: {counted(found.sizing_count, 'invocation')} of datasize or datagen.")
        raise UsageError(
            f"{directory} contains no result that can be judged." + "".join(f"\n{line}" for line in listed),
            "Name a directory with <rank>_per_epoch_stats.json of a checkpointing run, or a tree of such directories.",
        )


def judge_one(result: Result, directory: Path, command_line: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the report of one result: the fields of a run's report, and the published values.

    Paths in the report are relative to ``directory``.
    """
    shards, measurement = result.layout, result.measurement
    operations = min(n for kind in KINDS if (n := len(measurement.of_kind(kind))))
    fields = {
        "ckpt_model": shards.model.name,
        "ckpt_engine": measurement.subject.engine,
        "ckpt_mode": shards.mode,
        "ckpt_ranks": str(shards.processes),
        # Combined runs may have more operations than the option permits for a single run.
        "ckpt_operations": str(min(operations, _MAXIMUM_OPERATIONS)),
    }
    settings = resolve(command_line, fields, ini_source="the published result")
    plan = plan_run(settings, None)
    gates = _gates(settings.gate_table)
    verdicts = []
    for requirement in requirements_of_run(settings, gates):
        if requirement.suite == "performance":
            verdicts.append(judge_result(result, requirement, plan.limits, gates))
        else:
            checks = checks_of_run(requirement, settings, gates)
            verdicts += [not_run(requirement, check.subject, "not recorded", NOT_TESTED, gates) for check in checks]
    judgement = judge_run(plan, settings, gates, verdicts, [measurement])
    if judgement.grade == "certified":
        # A gate table that requires no proof does not make a proof unnecessary.
        judgement = replace(judgement, grade="incomplete", reasons=(NEVER_CERTIFIED,), exit_code=EXIT_INCOMPLETE)
    directories = (run.files.facts.checkpoint_folder for run in result.runs)
    document = create_document(
        foresees=False,
        run={
            "id": f"{result.system} {shards.name}",
            "version": __version__,
            "started": result.runs[0].started or "1970-01-01T00:00:00",
            "finished": result.runs[-1].ended or None,
            "command": [],
            "directory": "",
        },
        plan=plan,
        settings=settings,
        gates=replace(gates, certifies=False),
        waivers=(),
        judgement=judgement,
        exit_code=judgement.exit_code,
        measurements=[measurement],
        observations=[],
        environment={
            "hosts": [{"host": name, "ranks": []} for name in measurement.hosts],
            "target": TargetFacts(
                location=next(filter(None, directories), ""),
                kind="",
                gate_kind="",
                is_local=None,
                capacity=None,
                capabilities=MOUNTED,
            ),
            "versions": {},
            "launcher": "",
        },
        stages={},
        left_behind=[],
    )
    document["published"] = {
        "tool": next((d for run in result.runs if (d := run.files.facts.disclosed.exported_by)), "DLIO"),
        "system": result.system,
        "runs": [inside(run.directory, directory) for run in result.runs],
        "figures": [
            {
                **to_plain(result.figures[kind]),
                "basis": bases_text(result, kind) if result.figures[kind].bases else "",
                "outcome": (time := recorded_time(result, kind, verdicts)).outcome,
                "known_operations": time.known,
                "outcome_text": time.text,
            }
            for kind in KINDS
        ],
        "signs": list(result.signs),
        "network": {**to_plain(result.network), "description": network_text(result)} if result.network else None,
        "messages": [plain_message(m, directory) for m in result.messages],
    }
    return document


def _gates(word: str) -> Gates:
    """Return the gate table (the requirements for a certificate) that the option's value ``word`` names.

    The table for ``auto`` requires only speed and the proofs of speed, because published files contain no other facts.
    """
    if word != "auto":
        return load_gates(word, "")
    return replace(
        built_in("speed-only"),
        name="published result",
        text="Speed and its proofs: a published result does not show the behaviour of the storage.",
        # Every missing file is listed separately.
        certifies=True,
    )


def _row(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row that represents one report in the table of several results."""
    (measurement,), published = report["measurements"], report["published"]
    outcomes = {v["id"]: v["outcome"] for v in report["requirements"]}
    return {
        "system": published["system"],
        "subject": measurement["subject"],
        "model": measurement["model"],
        "mode": measurement["mode"],
        "processes": measurement["processes"],
        "basis": measurement["basis"],
        "runs": published["runs"],
        "figures": published["figures"],
        "signs": published["signs"],
        "network": published["network"],
        "outcomes": outcomes,
        "verdict": verdict_text({f["kind"]: (f["outcome"], f["outcome_text"]) for f in published["figures"]}),
        "grade": report["grade"],
        "grade_reasons": report["grade_reasons"],
        "sufficient_up_to_accelerators": report["sufficient_up_to_accelerators"][0],
        "exit_code": report["exit_code"],
    }


def verdict_text(outcomes: Mapping[str, tuple[str, str]]) -> str:
    """Return a short text on the speed of saves and loads. ``outcomes`` is {kind: (outcome, outcome as text)}."""
    if late := [kind for kind, (outcome, _) in outcomes.items() if outcome == "failed"]:
        return f"{' and '.join(late)} too slow"
    found = {outcome for outcome, _ in outcomes.values()}
    if found == {"met"}:
        return "both in time"
    if found == {"met as far as recorded"}:
        return f"met as far as recorded: {', '.join(text.rpartition(': ')[2] for _, text in outcomes.values())}"
    return ", ".join(f"{kind} {'in time' if o == 'met' else text}" for kind, (o, text) in outcomes.items())


def inside(path: Path, directory: Path) -> str:
    """Return ``path`` relative to ``directory``. A path outside the directory is returned unchanged."""
    return str(path.relative_to(directory)) if path.is_relative_to(directory) else str(path)


def plain_message(message: Message, directory: Path) -> dict[str, str]:
    """Return a message as a dictionary for a document."""
    return {"path": inside(Path(message.path), directory), "text": message.text}


def judge_rules(directory: Path, found: ResultTree, edition: EditionName) -> dict[str, Any]:
    """Return a document with the outcome of each submission rule for each result.

    A warning does not affect the exit code. Raises UsageError if there is no result to judge.
    """
    refuse_nothing(directory, found)
    judged = [(result, rule_results(result, edition)) for result in found.results]
    outcomes = {rule.outcome for _, rules in judged for rule in rules}
    exit_code = EXIT_FAILED if "broken" in outcomes else EXIT_INCOMPLETE if "not told" in outcomes else 0
    return {
        "schema": RULES_SCHEMA,
        "version": __version__,
        "edition": edition,
        "source": EDITIONS[edition],
        "tree": str(directory),
        "results": [
            {
                "system": result.system,
                "subject": str(result.measurement.subject),
                "division": result.runs[0].files.place.division,
                "runs": [inside(run.directory, directory) for run in result.runs],
                "rules": [to_plain(rule) for rule in rules],
            }
            for result, rules in judged
        ],
        "messages": [plain_message(m, directory) for r in found.results for m in r.messages]
        + [plain_message(m, directory) for m in found.messages],
        "runs": found.run_count,
        "passed_over": found.training_count,
        "exit_code": exit_code,
    }

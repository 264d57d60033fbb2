"""Runs continued with ``--ckpt-resume``: after a kill at any moment, after Ctrl-C, and with more suites."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_ckpt.evidence.manifest import write_manifest
from pytest_ckpt.evidence.starts import running_operations
from pytest_ckpt.evidence.verification import verify_directory
from tests.support.end_to_end import (
    DIRECTORY,
    MEASURED,
    TINY,
    Run,
    Runner,
    Sabotage,
    Started,
    processes_of,
    read_events,
    temporary_runner,
)
from tests.support.forging import edit
from tests.support.jsonschema_validation import violations
from tests.support.machine import eventually
from tests.support.run_progress import is_certifying, is_in_a_check, operates

RESUME = "--ckpt-resume"
SUITES = "--ckpt-suite=performance,conformance"
# With two checks, one start can end in the first and the next can continue with the second.
CHOSEN = ("-k", "SAVE[ or LOAD or INTEGRITY or COMMIT[")


def _verdicts(run: Run) -> dict[tuple[str, str], str]:
    """Return {(requirement, subject): outcome} of four requirements that do not depend on the speed of the machine."""
    return {
        (v["id"], v["subject"]): v["outcome"]
        for v in run.document["requirements"]
        if v["id"] in ("SAVE", "LOAD", "INTEGRITY", "COMMIT")
    }


def _kill(started: Started) -> None:
    """Kill the controller, and wait until all its ranks have ended."""
    id_ = started.run_id
    started.process.kill()
    started.process.wait()
    eventually(lambda: not processes_of(id_), "the ranks have ended")


def _follows_the_files(run: Run) -> None:
    """Check that the report matches its schema, and that ``verify`` finds no change."""
    assert violations(run.document, "report") == []
    assert [(c.name, c.details) for c in verify_directory(run.report, None) if c.outcome == "broken"] == []


def _starts(run: Run) -> list[dict[str, Any]]:
    return run.document["starts"]


@pytest.fixture(scope="module")
def uninterrupted(create_home: Callable[[str], Path]) -> Iterator[Run]:
    with temporary_runner(create_home("uninterrupted")) as runner:
        yield runner.run(*TINY, SUITES, *CHOSEN)


def test_a_run_that_was_killed_in_a_save_is_continued_and_the_operation_is_named(runner: Runner) -> None:
    sabotage = Sabotage(runner.home, "hold", rank=1)
    started = runner.start(*TINY, environment=sabotage.environment)
    sabotage.wait_until_blocked(started)
    started.until(lambda: "save 2" in running_operations(started.report).values(), "its start is recorded")
    _kill(started)
    run = runner.run(*TINY, RESUME)
    assert run.code == 0, run.text
    assert set(run.outcomes().values()) == {"met"}
    first, second = _starts(run)
    assert (first["end"], second["end"], second["measured"]) == ("killed", "finished", [MEASURED])
    (broken,) = first["interrupted_work"]
    assert (broken["name"], broken["operation"], broken["operations"]) == (MEASURED, "save 2", 1)
    sentence = f"Start 1 did not complete {MEASURED}: it ended in save 2, after 1 save or load."
    assert sentence in run.text.replace("\n  ", " ")
    page = (run.report / "certificate.html").read_text()
    assert page.index("Starts of this run") < page.index("<table")
    assert sentence in page
    # The files of the killed start were removed as well.
    assert run.left_on_target == []
    _follows_the_files(run)


MOMENTS: dict[str, Callable[[Started], object]] = {
    "before anything is measured": lambda started: (started.report / "plan.json").exists(),
    "in a load": operates("load"),
    "in a check": is_in_a_check,
    "between checks": lambda started: list((started.report / "observations").glob("*.json")),
    "between saves and checks": lambda started: list((started.report / "measurements").glob("*.json")),
    "while the report is written": lambda started: (started.report / "report.json").exists(),
    "while the files are judged": is_certifying,
    "while the report is sealed": lambda started: (started.report / "certificate.html").exists(),
}


@pytest.mark.thorough
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_that_was_killed_at_any_moment_ends_as_one_that_was_not(
    runner: Runner, moment: str, uninterrupted: Run
) -> None:
    started = runner.start(*TINY, SUITES, *CHOSEN)
    eventually(lambda: MOMENTS[moment](started) or started.process.poll() is not None, moment)
    if started.process.poll() is None:
        _kill(started)
    run = runner.run(*TINY, SUITES, *CHOSEN, RESUME)
    if run.code == 4:
        # The run had ended before the kill.
        assert "is complete" in run.text
        return
    assert _verdicts(run) == _verdicts(uninterrupted), run.text
    assert run.code == uninterrupted.code
    assert len(_starts(run)) == 2
    measured = [name for start in _starts(run) for name in start["measured"]]
    assert len(measured) == len(set(measured))
    _follows_the_files(run)


@pytest.mark.thorough
def test_a_run_that_was_killed_between_patterns_measures_the_subject_again(runner: Runner) -> None:
    options = (*TINY, "--ckpt-suite=performance,contention")
    started = runner.start(*options)
    started.until(lambda: any(e["event"] == "pattern" for e in read_events(started.report)), "a pattern was measured")
    _kill(started)
    run = runner.run(*options, RESUME)
    assert run.verdict("STORM")["outcome"] in ("met", "failed")
    (broken,) = _starts(run)[0]["interrupted_work"]
    assert (broken["name"], broken["operations"]) == (MEASURED, 4)
    _follows_the_files(run)


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_was_interrupted_is_continued(runner: Runner, number: signal.Signals) -> None:
    sabotage = Sabotage(runner.home, "hold", rank=1)
    started = runner.start(*TINY, environment=sabotage.environment)
    sabotage.wait_until_blocked(started)
    os.kill(started.process.pid, number)
    interrupted = started.finish()
    assert interrupted.code == 2
    assert "Start 1 did not complete" in interrupted.text
    run = runner.run(*TINY, RESUME)
    assert (run.code, [s["end"] for s in _starts(run)]) == (0, ["interrupted", "finished"]), run.text
    _follows_the_files(run)


def test_a_save_over_the_limit_stays_failed_whoever_interrupted_the_run_afterwards(runner: Runner) -> None:
    sabotage = Sabotage(runner.home, "hold", rank=1)
    started = runner.start(*TINY, environment=sabotage.environment)
    sabotage.wait_until_blocked(started)
    started.until(lambda: "save 2" in running_operations(started.report).values(), "its start is recorded")
    _kill(started)
    # A save of a day exceeds the limit of any cluster.
    _slow_down(started.report / "events.jsonl", 86_400.0)
    run = runner.run(*TINY, RESUME)
    verdict = run.verdict("SAVE")
    assert (run.code, verdict["outcome"]) == (1, "failed"), run.text
    assert verdict["because"].startswith("In start 1: 1 of 1 save exceeded the limit")
    assert run.verdict("LOAD")["outcome"] == "met"
    _follows_the_files(run)


def _slow_down(events: Path, seconds: float) -> None:
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    for line in lines:
        if line["event"] == "operation":
            operation = line["operation"]
            share = seconds / operation["seconds"]
            operation["rank_seconds"] = [s * share for s in operation["rank_seconds"]]
            operation["phases"] = {name: s * share for name, s in operation["phases"].items()}
            for name in ("seconds", "rank0_seconds", "returned_seconds", "staged_seconds", "stored_seconds"):
                if operation[name] is not None:
                    operation[name] *= share
    events.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(scope="module")
def finished(create_home: Callable[[str], Path]) -> Iterator[tuple[Runner, Run]]:
    """(runner, run) of a complete run that failed, because no storage can meet the limits of this run."""
    with temporary_runner(create_home("finished")) as runner:
        yield runner, runner.run(*_HOPELESS, "--ckpt-suite=performance")


_HOPELESS = (*TINY[:-1], "--cluster=5000000")


def test_a_complete_measurement_is_kept_however_bad_it_is(finished: tuple[Runner, Run]) -> None:
    """A complete measurement that failed is kept when the run is resumed with other suites."""
    runner, before = finished
    assert before.verdict("SAVE")["outcome"] == "failed"
    kept = (before.report / "measurements" / f"{DIRECTORY}.json").read_bytes()
    run = runner.run("--cluster=5000000", "--ckpt-profile=smoke", "--ckpt-suite=conformance", "-k", "COMMIT[", RESUME)
    assert (run.report / "measurements" / f"{DIRECTORY}.json").read_bytes() == kept
    assert (run.code, run.verdict("SAVE")["outcome"]) == (1, "failed"), run.text
    assert run.verdict("COMMIT", "file")["outcome"] == "met"
    assert [s["suites"] for s in _starts(run)] == [["performance"], ["conformance"]]
    assert _starts(run)[0]["measured"] == [MEASURED]
    _follows_the_files(run)
    again = runner.run("--cluster=5000000", "--ckpt-profile=smoke", "--ckpt-suite=conformance", "-k", "COMMIT[", RESUME)
    assert len(_starts(again)) == 3
    assert _starts(again)[2]["measured"] == []


@pytest.mark.thorough
def test_patterns_are_added_to_saves_and_loads_that_stay(runner: Runner) -> None:
    runner.run(*TINY, "--ckpt-suite=performance")
    kept = (runner.home / "ckpt-report" / "measurements" / f"{DIRECTORY}.json").read_bytes()
    options = (*TINY, "--ckpt-suite=performance,contention")
    run = runner.run(*options, RESUME)
    assert (run.report / "measurements" / f"{DIRECTORY}.json").read_bytes() == kept
    assert run.operations("save") == json.loads(kept)["operations"][:2]
    assert run.verdict("STORM")["outcome"] in ("met", "failed")
    assert _starts(run)[1]["measured"] == [f"patterns of {MEASURED}"]
    _follows_the_files(run)
    # Nothing of the contention suite is missing now.
    assert runner.run(*options, RESUME).code == 4


@pytest.mark.thorough
def test_a_measurement_made_under_other_conditions_is_named_and_repeated(runner: Runner) -> None:
    before = runner.run(*_HOPELESS)
    run = runner.run(*_HOPELESS, "--ckpt-engine=depth=4", RESUME)
    assert run.operations("save") != before.operations("save")
    (replaced,) = _starts(run)[0]["replaced"]
    assert (replaced["name"], replaced["differences"]) == (MEASURED, ["io depth: not set, now 4"])
    assert "SAVE" in replaced["failed"]
    assert "It had failed " in (run.report / "certificate.html").read_text()
    _follows_the_files(run)


def _changed(report: Path) -> None:
    edit(report / "measurements" / f"{DIRECTORY}.json", lambda m: m["operations"].clear())


def _of_another_version(report: Path) -> None:
    (report / "manifest.sha256").unlink()
    edit(report / "session.json", lambda s: s["environment"]["versions"].update({"pytest-ckpt": "0.0.9"}))


REFUSED: dict[str, tuple[Callable[[Path], object] | None, tuple[str, ...], str]] = {
    "nothing to add": (None, (), "is complete, and these options do not add to it"),
    "a changed directory": (_changed, (), f"is not as its last start left it: measurements/{DIRECTORY}.json"),
    "another version": (_of_another_version, (), "pytest-ckpt 0.0.9 began the run of "),
    "another target": (None, ("--ckpt-target=other",), "is of another target (location: "),
    "no run": (None, ("--ckpt-report=nothing",), "nothing contains no run"),
    "a measured subject left out": (
        None, ("--ckpt-ranks=4",), f"has measured {MEASURED}, which these options leave out"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_run_that_cannot_be_resumed_is_refused_with_a_remedy(runner: Runner, complete: Path, name: str) -> None:
    change, options, expected_text = REFUSED[name]
    report = _copied(complete, runner)
    if change:
        change(report)
    before = sorted(p.relative_to(report) for p in report.rglob("*"))
    (runner.home / "other").mkdir()
    run = runner.run(*TINY, *options, RESUME)
    assert run.code == 4, run.text
    assert expected_text in run.text.replace("\n  ", " ")
    assert sorted(p.relative_to(report) for p in report.rglob("*")) == before
    assert run.left_on_target == []


@pytest.fixture(scope="module")
def complete(create_home: Callable[[str], Path]) -> Iterator[Path]:
    with temporary_runner(create_home("complete")) as runner:
        yield runner.run(*TINY).report


def _copied(report: Path, runner: Runner) -> Path:
    copy = Path(shutil.copytree(report, runner.home / "ckpt-report"))
    # Make the copy look like a run on this test's target.
    of, now = str(report.parent / "target"), str(runner.target)
    for file in (copy / "session.json", copy / "report.json"):
        file.write_text(file.read_text().replace(of, now))
    write_manifest(copy)
    return copy


def test_a_running_run_is_refused(runner: Runner) -> None:
    sabotage = Sabotage(runner.home, "hold", rank=1)
    started = runner.start(*TINY, environment=sabotage.environment)
    sabotage.wait_until_blocked(started)
    run = runner.run(*TINY, RESUME)
    assert (run.code, "is still in progress" in run.text) == (4, True), run.text
    sabotage.release()
    assert started.finish().code == 0

"""Runs with several starts: the report includes measurements of earlier starts, and is computed from files only."""

from __future__ import annotations

import dataclasses
import json

import pytest

from pytest_ckpt.evidence.judged_run import judge_directory
from pytest_ckpt.evidence.manifest import write_manifest
from pytest_ckpt.evidence.verification import verify_directory
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.facts.measurement import LoadPattern, Patterns, with_patterns_of
from pytest_ckpt.facts.proofs import Integrity
from pytest_ckpt.facts.starts import InterruptedWork, Start, is_interruption
from pytest_ckpt.report.view import start_lines
from pytest_ckpt.run.close import write_report
from tests.support import synthetic_run

SUBJECT = synthetic_run.SUBJECT
START = Start(
    number=1, id="first", started=synthetic_run.start_of_day(1), ended=None, end="killed", command=("pytest",),
    suites=("performance",), hosts=("n1",), measured=(),
    interrupted_work=(InterruptedWork(name=SUBJECT, operation="save 3", operations=2, why="killed"),),
)  # fmt: skip


@pytest.fixture
def continued(tmp_path):
    """Directory of a run with two starts. The first start was interrupted after a save far over its limit."""
    directory, other = tmp_path / "run", tmp_path / "first"
    kept = []
    synthetic_run.write_run(other, save=100.0, change=lambda m: kept.append(m) or m)
    synthetic_run.write_run(directory)
    (slow,) = kept
    broken = dataclasses.replace(
        slow,
        operations=slow.of_kind("save")[:2],
        durability=None,
        integrity=None,
        failure=Failure(kind="interrupted", message="the run was interrupted"),
    )
    place = directory / "starts" / "1"
    (place / "interrupted_work").mkdir(parents=True)
    (place / "interrupted_work" / f"{SUBJECT}.json").write_text(json.dumps(to_plain(broken)))
    (place / "start.json").write_text(json.dumps(to_plain(START)))
    report = json.loads((directory / "report.json").read_text())
    write_report(judge_directory(directory, {}, as_recorded=True) | {"run": report["run"]}, directory)
    return directory


def broken(directory):
    return [d for c in verify_directory(directory, None) if c.outcome == "broken" for d in c.details]


def test_a_save_that_had_ended_before_the_interruption_still_fails(continued):
    report = json.loads((continued / "report.json").read_text())
    (save,) = (v for v in report["requirements"] if v["id"] == "SAVE")
    assert (save["outcome"], report["exit_code"]) == ("failed", 1)
    assert save["because"].startswith("In start 1: 2 of 2 saves exceeded the limit")
    assert [s["end"] for s in report["starts"]] == ["killed", "finished"]
    assert broken(continued) == []


@pytest.mark.parametrize("name", ["starts/1/start.json", f"starts/1/interrupted_work/{SUBJECT}.json"])
def test_a_start_that_was_removed_is_missed(continued, name):
    (continued / name).unlink()
    write_manifest(continued)
    assert broken(continued) != []


def test_the_starts_are_listed_with_the_operations_that_were_interrupted(continued):
    report = json.loads((continued / "report.json").read_text())
    assert start_lines(report) == [
        "Start 1, 1 May 2031, 07:08 UTC, performance: killed. It measured no subject completely.",
        f"Start 1 did not complete {SUBJECT}: it ended in save 3, after 2 saves and loads.",
        f"Start 2, 6 May 2031, 07:08 UTC, no suite: finished. It measured {SUBJECT}.",
    ]
    assert start_lines(report | {"starts": report["starts"][1:]}) == []


def test_added_patterns_leave_the_saves_and_loads_as_they_are(tmp_path):
    kept = []
    synthetic_run.write_run(tmp_path / "one", change=lambda m: kept.append(m) or m)
    synthetic_run.write_run(tmp_path / "other", seed=2, change=lambda m: kept.append(m) or m)
    first, second = kept
    integrity = Integrity(bytes_expected=1, bytes_checked=1, fault_count=0, faults=())
    storm = LoadPattern(reads="all", rank_bytes=(1, 1), operations=(), integrity=integrity)
    added = dataclasses.replace(second, patterns=Patterns(storm=storm, not_run={"mixed": "too few ranks"}))
    whole = with_patterns_of(first, added)
    assert whole == dataclasses.replace(first, patterns=added.patterns)
    assert with_patterns_of(whole, second) == whole
    hung = dataclasses.replace(added, failure=Failure(kind="hung", message="it hung"))
    assert with_patterns_of(first, hung).failure == hung.failure


@pytest.mark.parametrize(
    ("kind", "is_one"), [("interrupted", True), ("killed", True), ("launch", True), ("hung", False), ("error", False)]
)
def test_only_failures_without_evidence_about_the_storage_are_measured_again(kind, is_one):
    assert is_interruption(Failure(kind=kind, message="why")) == is_one
    assert not is_interruption(None)

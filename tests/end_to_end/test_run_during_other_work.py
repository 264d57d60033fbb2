"""Runs in which replicas load concurrently, ranks load other ranks' files, or saves overlap with other work."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.evidence.judged_run import judge_directory
from tests.support import jsonschema_validation
from tests.support.created_directories import CreatedDirectories
from tests.support.end_to_end import (
    HERE,
    REQUIRED,
    TORCH,
    Run,
    Runner,
    Sabotage,
    counted_steps,
    progress_lines,
    temporary_runner,
)

SUBJECT = "llama3-8b-open-4"
RANKS = 4
PATTERNS = ("storm", "shifted", "joined", "split")
ASKED = ("STORM", "SHIFTED", "RESHAPED")
OPTIONS = (
    "--ckpt-model=llama3-8b",
    "--ckpt-mode=open",
    f"--ckpt-ranks={RANKS}",
    "--ckpt-scale=1/10000",
    "--ckpt-operations=2",
    "--ckpt-suite=performance,contention",
    "--ckpt-gate-table=posix-shared",
)


@pytest.fixture(scope="module", params=[pytest.param("torch", marks=pytest.mark.thorough), "stream"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def created_directories(create_home: Callable[[str], Path]) -> CreatedDirectories:
    return CreatedDirectories(create_home("made"))


@pytest.fixture(scope="module")
def run(create_home: Callable[[str], Path], engine: str, created_directories: CreatedDirectories) -> Run:
    with temporary_runner(create_home("patterns")) as runner:
        # The limits of this small cluster are far longer than the times of a busy machine.
        return runner.run(*OPTIONS, f"--ckpt-engine={engine}", cluster=1, environment=created_directories.environment)


def test_all_of_them_are_measured_and_met(run: Run) -> None:
    assert run.outcomes(SUBJECT) == dict.fromkeys(REQUIRED, "met")
    assert {name: run.verdict(name, SUBJECT)["outcome"] for name in ASKED} == dict.fromkeys(ASKED, "met")


def test_no_save_has_a_name_that_was_used_before(run: Run, created_directories: CreatedDirectories) -> None:
    """Each save of a run has a new directory name, because a client may cache the directory of an earlier save.

    A training job does not use the directory name of a step twice either.
    """
    assert len([name for name in created_directories.names if "-again-" in name]) > len(PATTERNS), run.text
    assert len(created_directories.names) == len(set(created_directories.names))


@pytest.mark.parametrize("name", PATTERNS)
def test_each_reads_all_it_promises_cold_and_right(run: Run, name: str) -> None:
    size = run.measurement(SUBJECT)["bytes"]
    found = run.measurement(SUBJECT)["patterns"][name]
    assert [o["bytes"] for o in found["operations"]] == [size] * 3
    assert [o["resident_bytes"] for o in found["operations"]] == [0] * 3
    integrity = found["integrity"]
    assert integrity["bytes_checked"] == integrity["bytes_expected"] == 3 * size
    assert integrity["faults"] == []
    readers = {"joined": [size // 2, size // 2, 0, 0]}.get(name, [size // 4] * 4)
    assert sum(found["rank_bytes"]) == size
    assert [abs(got - wanted) <= size // 8 for got, wanted in zip(found["rank_bytes"], readers, strict=True)] == [
        True
    ] * 4


def test_a_restart_of_a_larger_cluster_is_projected_from_the_storm(run: Run) -> None:
    recorded = run.measurement(SUBJECT)["patterns"]["storm"]["restart"]
    assert (recorded["copies"], recorded["accelerators_per_copy"]) == (0, 8)
    assert recorded["first_copy_bytes"] == recorded["copy_bytes"] == run.measurement(SUBJECT)["full_bytes"]
    verdict = run.verdict("RESTART", SUBJECT)
    assert (verdict["outcome"], verdict["severity"], verdict["reason"]) == ("not run", "advisory", "not possible")
    assert verdict["because"].startswith("A cluster of 1 accelerator has one copy of the model")
    again = judge_directory(run.report, {"ckpt_cluster": "64"}, foresees=False)
    (projected,) = (v for v in again["requirements"] if v["id"] == "RESTART")
    assert "Projection at this rate: a restart of 64 accelerators, 8 copies, takes" in projected["because"]


def test_operations_of_patterns_are_not_counted_as_loads(run: Run) -> None:
    assert len(run.operations("load", SUBJECT)) == 2
    stages = run.measurement(SUBJECT)["stages"]
    counted = sum(o["seconds"] for o in run.operations("load", SUBJECT))
    patterns = run.measurement(SUBJECT)["patterns"]
    asides = [o["seconds"] for name in PATTERNS for o in patterns[name]["operations"]]
    asides += patterns["neighbour"]["save_seconds"] + patterns["neighbour"]["neighbour_save_seconds"]
    asides += patterns["mixed"]["save_seconds"]
    assert stages["loads"] == pytest.approx(counted)
    # In three turns samples are read without saves, for at least a second each.
    assert stages["probes"] >= sum(asides) + 3 * 1.0
    assert stages["wait"] > 0


def test_two_jobs_save_at_a_pace_in_turns(run: Run) -> None:
    """Two halves of the ranks act as two jobs, which save at the same time at a fixed rate.

    Each half is measured in three of six turns. A paced save of the whole checkpoint takes 0.8 of the save limit, which
    is too long for a rehearsal. A rehearsal therefore saves a smaller checkpoint at the same rate in 1 s.
    """
    found = run.measurement(SUBJECT)["patterns"]["neighbour"]
    pace = found["pace"]
    assert pace["seconds"] == pytest.approx(1.0, rel=0.05)
    limit = run.document["cluster"]["save_limit_seconds"] * pace["bytes"] / pace["full_bytes"]
    assert pace["seconds"] == pytest.approx(0.8 * limit)
    assert (found["ranks"], found["neighbour_ranks"]) == (2, 2)
    assert found["bytes"] + found["neighbour_bytes"] == pace["bytes"]
    assert len(found["save_seconds"]) == len(found["neighbour_save_seconds"]) == 3
    assert min(found["save_seconds"] + found["neighbour_save_seconds"]) >= 0.95 * pace["seconds"]
    # In each of six turns two ranks save at least once, and files contain more than tensors.
    assert found["concurrent_bytes"] >= 3 * pace["bytes"]
    verdict = run.verdict("NEIGHBOUR", SUBJECT)
    assert (verdict["outcome"], verdict["severity"]) == ("met", "required")
    assert verdict["limit"] == pytest.approx(limit + 1.0)


def test_samples_are_read_without_saves_and_during_saves(run: Run) -> None:
    found = run.measurement(SUBJECT)["patterns"]["mixed"]
    assert found["loader_bytes_per_second"] == 10e6
    assert min(found["undisturbed_reads"] + found["contended_reads"]) > 0
    assert all(0 < p99 < 60 for p99 in found["undisturbed_p99_seconds"] + found["contended_p99_seconds"])
    assert len(found["empty_queue_seconds"]) == len(found["undisturbed_empty_queue_seconds"]) == 3
    assert sum(found["save_seconds"]) >= 3 * 0.95
    assert "around the client's page cache" in found["reads"]
    assert run.verdict("MIXED", SUBJECT)["outcome"] in ("met", "failed", "not run")


def test_the_lines_count_every_step_that_ranks_do(run: Run) -> None:
    """Progress lines count every step of the ranks: saves, loads, and the turns of each pattern."""
    total = counted_steps(run.text)[0][1]
    assert total >= 28
    assert counted_steps(run.text) == [(number, total) for number in range(1, total + 1)]
    lines = progress_lines(run.text)
    assert lines[4].partition(": ")[0] == f"[5/{total}] {run.measurement(SUBJECT)['subject']} storm load 1 of 3"
    assert any("turn of reading samples 6 of 6: " in line for line in lines)
    assert ["left" in line for line in lines] == [True] * (total - 1) + [False]


def test_the_report_and_the_certificate_contain_all_patterns(run: Run) -> None:
    assert jsonschema_validation.violations(run.document, "report") == []
    certificate = (run.report / "certificate.html").read_text()
    for name in PATTERNS:
        assert run.measurement(SUBJECT)["patterns"][name]["reads"].replace("'", "&#39;") in certificate


def test_the_target_is_empty_afterwards(run: Run) -> None:
    assert run.left_on_target == []


@pytest.mark.thorough
def test_a_page_that_is_torn_is_found_by_whoever_reads_it(runner: Runner, engine: str) -> None:
    """If a page in a file of rank 1 is torn, SHIFTED and RESHAPED fail, because other ranks read this file.

    STORM (all ranks load at once) is met, because no rank reads the torn file in the storm of this run.
    """
    command = shlex.join([sys.executable, str(HERE / "corrupt.py"), str(runner.target), "torn"])
    run = runner.run(*OPTIONS, f"--ckpt-engine={engine}", f"--ckpt-drop-caches={command}", cluster=1)
    assert run.code == 1
    assert {name: run.verdict(name, SUBJECT)["outcome"] for name in ASKED} == {
        "STORM": "met",
        "SHIFTED": "failed",
        "RESHAPED": "failed",
    }
    for name, readers in (("shifted", (0,)), ("joined", (0,)), ("split", (2, 3))):
        integrity = run.measurement(SUBJECT)["patterns"][name]["integrity"]
        assert integrity["fault_count"] == 3
        fault = integrity["faults"][0]
        assert (fault["kind"], fault["file"]) == ("torn", "zero_pp_rank_1_mp_rank_0_optim_states.pt")
        assert fault["rank"] in readers
    assert "torn: checkpoint 2, rank 0 on" in run.verdict("SHIFTED", SUBJECT)["because"]


@pytest.mark.thorough
def test_a_replica_that_is_served_late_fails_the_storm(runner: Runner) -> None:
    sabotage = Sabotage(runner.home, "slow", rank=2, where=" storm 3$")
    run = runner.run(*OPTIONS, environment=sabotage.environment, cluster=1)
    verdict = run.verdict("STORM", SUBJECT)
    assert (verdict["outcome"], verdict["unit"]) == ("failed", "slowest / median")
    assert "Load 3: rank 2 took" in verdict["because"]
    # The limit of unevenness is our own, so it is only reported.
    assert verdict["severity"] == "advisory"
    assert run.verdict("LOAD", SUBJECT)["outcome"] == "met"


@pytest.mark.thorough
def test_saves_that_other_work_holds_up_fail(runner: Runner) -> None:
    # The first job saves in the 1st, 4th and 5th turn, and rank 0 belongs to it.
    sabotage = Sabotage(runner.home, "slow", rank=0, where=r" neighbour [145]$| mixed \d+$")
    run = runner.run(*OPTIONS, environment=sabotage.environment)
    assert run.verdict("SAVE", SUBJECT)["outcome"] == "met"
    verdict = run.verdict("NEIGHBOUR", SUBJECT)
    assert (verdict["outcome"], verdict["unit"], verdict["severity"]) == ("failed", "s", "required")
    assert "by the first job" in verdict["because"]
    verdict = run.verdict("MIXED", SUBJECT)
    assert (verdict["outcome"], verdict["unit"], verdict["severity"]) == ("failed", "s", "advisory")
    assert run.left_on_target == []


@pytest.mark.thorough
@pytest.mark.alone
def test_loads_that_are_not_cold_are_not_judged(runner: Runner) -> None:
    # Torch reads through the page cache. Without it, checkpoints would be cold anyway.
    run = runner.run(*OPTIONS, TORCH, "--ckpt-drop-caches=never")
    assert {name: run.verdict(name, SUBJECT)["outcome"] for name in ASKED} == dict.fromkeys(ASKED, "not run")
    assert "was cached" in run.verdict("STORM", SUBJECT)["because"]

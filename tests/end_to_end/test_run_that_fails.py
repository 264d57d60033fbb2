"""Runs with verdicts other than "met": too slow, deselected, not cold, or not possible on this target."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.options import OPTIONS
from pytest_ckpt.sizing.plan import plan_run
from tests.support.end_to_end import CHECKOUT, DIRECTORY, MEASURED, SMALLEST, TINY, Run, Runner, temporary_runner
from tests.support.machine import file_system_of, need
from tests.support.synthetic_target import mounted

# No storage is fast enough for a cluster that fails every two seconds.
HUGE = 100_000_000

# The run identifies network file systems from the table of mounts. This code replaces that decision.
NO_FILE_SYSTEM_IS_LOCAL = """
from pytest_ckpt.targets.posix import storage_stack

storage_stack._LOCAL = frozenset()
"""


@pytest.fixture(scope="module")
def too_slow(create_home: Callable[[str], Path]) -> Run:
    with temporary_runner(create_home("too-slow")) as runner:
        return runner.run(*SMALLEST, cluster=HUGE)


def test_storage_that_is_too_slow_ends_with_one(too_slow: Run) -> None:
    assert too_slow.code == 1, too_slow.text
    assert too_slow.document["exit_code"] == 1
    assert "REHEARSAL for a cluster of 100,000,000 accelerators: did not pass" in too_slow.text


def test_only_the_times_fail_when_storage_is_too_slow(too_slow: Run) -> None:
    assert too_slow.outcomes() == {
        "SAVE": "failed",
        "LOAD": "failed",
        "INTEGRITY": "met",
        "COLD": "met",
        "DURABLE-CALLS": "met",
    }


@pytest.mark.parametrize("requirement", ["SAVE", "LOAD"])
def test_a_failure_message_shows_the_measured_value_the_limit_and_the_ratio(too_slow: Run, requirement: str) -> None:
    verdict = too_slow.verdict(requirement)
    slowest = max(too_slow.operations(requirement.lower()), key=lambda o: o["seconds"])
    assert verdict["measured"] == slowest["seconds"] > verdict["limit"] > 0
    assert verdict["margin"] == pytest.approx(1 - verdict["measured"] / verdict["limit"])
    assert f"{verdict['measured'] / verdict['limit']:.2f} x the limit" in verdict["because"]
    failure = _failure(too_slow, requirement)
    assert f"{requirement} failed for {MEASURED}: {verdict['because']}" in failure
    assert [line.split()[0] for line in failure.splitlines() if line.startswith("  ")][:3] == [
        "measured",
        "limit",
        "by",
    ]


@pytest.mark.parametrize("requirement", ["SAVE", "LOAD"])
def test_a_failure_message_names_the_longest_phase_and_the_slowest_rank(too_slow: Run, requirement: str) -> None:
    slowest = max(too_slow.operations(requirement.lower()), key=lambda o: o["seconds"])
    phase = max(slowest["phases"], key=slowest["phases"].get)
    assert f"most of it in {phase} on rank {slowest['slowest_rank']}" in _failure(too_slow, requirement)


def test_a_failure_message_shows_the_origin_of_the_limit_and_the_path_of_the_raw_data(too_slow: Run) -> None:
    failure = _failure(too_slow, "SAVE")
    assert " x 5 % = " in failure
    assert "the limit is " in failure
    raw = failure.partition("raw data: ")[2].splitlines()[0]
    assert Path(raw) == too_slow.report / "measurements" / f"{DIRECTORY}.json"
    assert Path(raw).is_file()


def test_a_failure_names_a_command_that_explains_it(too_slow: Run) -> None:
    words = shlex.split(_failure(too_slow, "SAVE").partition("explained by: ")[2].splitlines()[0])
    assert words[:2] == ["pytest-ckpt", "plan"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest_ckpt.cli.main", *words[1:]],
        cwd=too_slow.home,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert MEASURED in done.stdout


def test_a_failure_is_no_traceback(too_slow: Run) -> None:
    assert "Traceback" not in too_slow.text
    assert ".py:" not in too_slow.text.partition("= FAILURES =")[2].partition("short test summary")[0]


def test_the_target_is_empty_after_a_failure(too_slow: Run) -> None:
    assert too_slow.left_on_target == []


@pytest.mark.thorough
def test_the_suites_can_share_the_verdict_of_a_failure_over_workers(runner: Runner) -> None:
    run = runner.run(*SMALLEST, "-n", "2", cluster=HUGE)
    assert run.code == 1, run.text
    assert run.outcomes()["SAVE"] == run.outcomes()["LOAD"] == "failed"
    assert "Traceback" not in run.text


def test_a_measured_requirement_is_judged_even_if_its_test_was_deselected(runner: Runner) -> None:
    run = runner.run(*TINY, "-k", "SAVE")
    assert run.code == 0, run.text
    assert set(run.outcomes().values()) == {"met"}


def test_a_check_that_was_deselected_makes_the_run_incomplete(runner: Runner) -> None:
    run = runner.run(*TINY, "--ckpt-gate-table=posix-local", "-k", "SAVE")
    assert run.code == 8, run.text
    (verdict,) = (v for v in run.document["requirements"] if (v["id"], v["subject"]) == ("COMMIT", "file"))
    assert verdict["outcome"] == "not run"
    assert "deselected" in verdict["because"]
    assert "not everything required was run" in run.text


def test_a_run_of_which_everything_was_deselected_is_not_green(runner: Runner) -> None:
    run = runner.run(*TINY, "-k", "nothing_is_called_like_this")
    assert run.code == 8, run.text
    assert set(run.outcomes().values()) == {"not run"}
    assert run.left_on_target == []


@pytest.mark.thorough
def test_memory_as_a_target_fails_cold(runner: Runner) -> None:
    memory = Path("/dev/shm")
    need(memory.is_dir() and file_system_of(memory) == "tmpfs", "/dev/shm is no tmpfs")
    with tempfile.TemporaryDirectory(dir=memory) as target:
        run = runner.run(*TINY, target=Path(target))
        assert run.left_on_target == []
    assert run.code == 1, run.text
    assert "(tmpfs on /dev/shm" in run.text
    assert run.outcomes()["COLD"] == "failed"
    assert "ckpt obstacle: COLD will fail: the target is memory of this host" in run.text


@pytest.mark.thorough
def test_a_layout_that_needs_more_ranks_is_not_run_on_shared_storage(runner: Runner) -> None:
    (runner.home / "network_mount.py").write_text(NO_FILE_SYSTEM_IS_LOCAL)
    run = runner.run(
        "-p",
        "network_mount",
        "--ckpt-model=llama3-8b,llama3-70b",
        "--ckpt-profile=smoke",
        "--ckpt-operations=2",
        environment={"PYTHONPATH": f"{runner.home}:{CHECKOUT}"},
    )
    assert run.code == 8, run.text
    assert set(run.outcomes("llama3-8b-full").values()) == {"met"}
    assert set(run.outcomes("llama3-70b-full").values()) == {"not run"}
    reason = run.verdict("SAVE", "llama3-70b-full")["because"]
    assert "llama3-70b in full has 64 ranks and 8 were requested" in reason
    assert "--ckpt-hosts" in reason
    assert f"ckpt llama3-70b-full/stream: not run: {reason.rstrip('.')}" in run.text
    assert [m["subject"] for m in run.document["measurements"]] == ["llama3-8b-full/stream"]


def test_a_subset_on_a_network_file_system_is_planned_as_not_run() -> None:
    fields = dict.fromkeys((o.ini_name for o in OPTIONS), None) | {"ckpt_cluster": "64", "ckpt_model": "llama3-70b"}
    (planned,) = plan_run(resolve(fields, {}), mounted("nfs4")).checkpoints
    assert "the target is a nfs4 file system" in planned.not_run
    (planned,) = plan_run(resolve(fields, {}), mounted("ext4")).checkpoints
    assert not planned.not_run


def _failure(run: Run, requirement: str) -> str:
    """Return the failure text of the test for a requirement."""
    return (
        run.text.partition(f"{requirement} failed for ")[1]
        + run.text.partition(f"{requirement} failed for ")[2].partition("\n__")[0]
    )


@pytest.mark.thorough
def test_a_waiver_turns_a_failure_into_what_it_is_and_certifies_nothing(runner: Runner) -> None:
    (runner.home / "waive.toml").write_text(
        '[[waive]]\nrequirement = "SAVE"\nsubject = "*"\nreason = "A trial"\nexpires = 2999-12-31\n'
        '[[waive]]\nrequirement = "LOAD"\nsubject = "*"\nreason = "Long ago"\nexpires = 2001-01-01\n'
    )
    run = runner.run(*SMALLEST, "--ckpt-waivers=waive.toml", cluster=HUGE)
    assert run.code == 1
    assert run.verdict("SAVE")["outcome"] == "waived"
    assert "A trial" in run.verdict("SAVE")["because"]
    assert run.verdict("LOAD")["outcome"] == "failed"
    assert any("ended on 2001-01-01" in reason for reason in run.document["grade_reasons"])
    page = (run.report / "certificate.html").read_text()
    assert "A trial" in page
    wrong = runner.run(*SMALLEST, "--ckpt-waivers=nowhere.toml", report=runner.home / "other")
    assert wrong.code == 4
    assert "--ckpt-waivers nowhere.toml: it cannot be read" in wrong.text

"""Runs in which torch saves in the background, in a separate process.

These saves are measured like other background saves, and faults in these saves are detected.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.facts.strategy_results import BACKGROUND
from tests.support.end_to_end import SUBJECT, TINY, Run, Runner, in_every_rank, processes_of, temporary_runner
from tests.support.hidden_hosts import namespace_launcher
from tests.support.machine import need_fuse
from tests.support.targets.misbehaving import misbehaving

WORDS = (*TINY, "--ckpt-engine=dcp", "--ckpt-strategy=async:process")
OF_PROCESS = f"{SUBJECT}/dcp/async:process"
JUDGED = ("BLOCKING", "BACKGROUND", "LOST-WORK", "INTEGRITY", "CRASH-ASYNC", "RETAIN-COMMITTED")
# A library that lets the job continue before anything is copied, and then saves the changing state.
NOTHING_COPIED = """
import sys

if "pytest_ckpt.ranks" in sys.orig_argv:
    from pytest_ckpt.ranks.engines.dcp import DcpEngine

    own_state = DcpEngine._new_state

    def new_state(engine, *, is_shared=False):
        return own_state(engine, is_shared=True)

    def stage(engine):
        engine._copy, engine._is_staged = engine._state, True
        return 1

    DcpEngine._new_state, DcpEngine.stage = new_state, stage
"""
# The process of rank 1 is killed just before its second save, as by the kernel when memory is short.
KILLED = """
import multiprocessing, sys

if "pytest_ckpt.ranks" in sys.orig_argv:
    from pytest_ckpt.ranks.engines.dcp_process import SavingProcess

    save, saves = SavingProcess.save, []

    def killed(process, state, directory, *others):
        saves.append(directory)
        if len(saves) == 2 and any("__1_" in name for name in process._notes.names):
            for child in multiprocessing.active_children():
                child.kill()
                child.join()
        save(process, state, directory, *others)

    SavingProcess.save = killed
"""


def measurement_of(run: Run) -> dict[str, str]:
    return {v["id"]: v["outcome"] for v in run.document["requirements"] if v["subject"] == OF_PROCESS}


@pytest.fixture(scope="module")
def saved(create_home: Callable[[str], Path]) -> Run:
    with temporary_runner(create_home("process")) as runner:
        return runner.run(*WORDS)


def test_a_run_meets_all_that_is_required_and_leaves_nothing(saved: Run) -> None:
    assert saved.code == 0, saved.text
    verdicts = measurement_of(saved)
    assert {name: verdicts[name] for name in JUDGED} == dict.fromkeys(JUDGED, "met")
    assert saved.left_on_target == []
    assert processes_of(saved.run_id) == []
    assert "Traceback" not in (saved.report / "launches" / "1" / "launcher.log").read_text()


def test_the_copy_is_timed_separately_and_the_job_continues_while_the_process_writes(saved: Run) -> None:
    for save in saved.operations("save", OF_PROCESS):
        assert (
            0 < save["copying_seconds"] <= save["staged_seconds"] <= save["returned_seconds"] < save["stored_seconds"]
        )
        assert {"stage", "open", "write", "fsync", "directory", "commit"} <= set(save["phases"])
        assert sum(save["phases"].values()) <= save["seconds"] + 1e-6


def test_the_report_describes_the_process_and_that_its_start_is_not_timed(saved: Run) -> None:
    facts = saved.measurement(OF_PROCESS)["engine_facts"]
    assert "async_save in its own process (AsyncCheckpointerType.PROCESS)" in facts["save"]
    assert facts["process"].startswith("started once before the first save, off the clock: ")
    assert facts["copy of the state"]


def test_every_byte_of_every_load_is_compared_and_the_metadata_is_the_one_that_the_process_wrote(saved: Run) -> None:
    saved.assert_loads_compared_and_uncached(OF_PROCESS)


@pytest.mark.thorough
def test_a_state_that_was_not_copied_before_the_job_continued_is_found(runner: Runner) -> None:
    run = runner.run(*WORDS, "--ckpt-operations=1", environment=in_every_rank(runner.home, NOTHING_COPIED))
    assert run.code == 1, run.text
    verdict = run.verdict("INTEGRITY", OF_PROCESS)
    assert (verdict["outcome"], verdict["reason"]) == ("failed", "wrong bytes")


@pytest.mark.thorough
def test_an_error_in_the_process_is_reported_with_its_call(runner: Runner, create_home: Callable[[str], Path]) -> None:
    need_fuse()
    with misbehaving(create_home("refuses")) as target:
        target.fault("EIO in write", path="*/__1_0.distcp")
        run = runner.run(*WORDS, target=target.path)
        assert run.left_on_target == []
    assert run.code == 1, run.text
    verdicts = measurement_of(run)
    assert (verdicts["BACKGROUND"], verdicts["BLOCKING"], verdicts["LOST-WORK"]) == ("failed", "not run", "not run")
    failure = run.measurement(OF_PROCESS)["failure"]
    found = {name: failure[name] for name in ("rank", "lane", "errno", "phase", "file")}
    assert found == {
        "rank": 1, "lane": BACKGROUND, "errno": errno.errorcode[errno.EIO], "phase": "write", "file": "__1_0.distcp",
    }  # fmt: skip
    assert processes_of(run.run_id) == []


@pytest.mark.thorough
def test_storage_that_is_too_slow_fails_the_background(runner: Runner, create_home: Callable[[str], Path]) -> None:
    need_fuse()
    with misbehaving(create_home("slow")) as target:
        # A checkpoint of 11 MB takes half a second. For 8,000 accelerators the limit is 0.11 s.
        target.fault("slow", bytes_per_second=20e6)
        run = runner.run(*WORDS, target=target.path, cluster=8_000)
        assert run.left_on_target == []
    assert run.code == 1, run.text
    verdicts = measurement_of(run)
    assert (verdicts["BACKGROUND"], verdicts["LOST-WORK"], verdicts["INTEGRITY"]) == ("failed", "failed", "met")


@pytest.mark.thorough
def test_a_process_that_is_killed_is_no_evidence_about_the_storage(runner: Runner) -> None:
    run = runner.run(*WORDS, environment=in_every_rank(runner.home, KILLED))
    verdict = run.verdict("BACKGROUND", OF_PROCESS)
    assert (verdict["outcome"], verdict["reason"]) == ("not run", "killed"), run.text
    failure = run.measurement(OF_PROCESS)["failure"]
    assert (failure["kind"], failure["rank"]) == ("killed", 1)
    assert "the process of torch that saves for this rank" in verdict["because"]
    assert run.code == 8, run.text
    assert run.left_on_target == []
    assert processes_of(run.run_id) == []


@pytest.mark.thorough
def test_processes_of_several_hosts_save_together(runner: Runner, create_home: Callable[[str], Path]) -> None:
    need_fuse()
    words = ("--ckpt-hosts=left:1,right:1", f"--ckpt-launcher={namespace_launcher(runner.home)}")
    with misbehaving(create_home("hosts")) as target:
        run = runner.run(*WORDS, "--ckpt-operations=1", *words, target=target.path)
        assert run.left_on_target == []
    verdicts = measurement_of(run)
    judged = ("BLOCKING", "BACKGROUND", "LOST-WORK", "INTEGRITY")
    assert {name: verdicts[name] for name in judged} == dict.fromkeys(judged, "met"), run.text
    assert run.measurement(OF_PROCESS)["hosts"] == ["left", "right"]
    assert processes_of(run.run_id) == []

"""Runs in which a rank is killed or stopped during a save, or the storage refuses writes."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.sizing.models import layout
from tests.support.end_to_end import (
    MEASURED,
    SUBJECT,
    TINY,
    TORCH,
    Run,
    Runner,
    Sabotage,
    processes_of,
    temporary_runner,
)
from tests.support.machine import eventually, frozen, need_fuse, patience
from tests.support.targets.misbehaving import misbehaving

HOST = socket.gethostname()
# Deadline without progress. The undisturbed ranks must make some progress in this time.
DEADLINE_SECONDS = 4
FIRST, SECOND = "llama3-8b-full", "llama3-70b-subset"
MODEL_OF_RANK_1 = "zero_pp_rank_1_mp_rank_0_model_states.pt"
_BYTES_OF_RANK = layout("llama3-8b", mode="open", processes=2, scale=1 / 10_000).rank_bytes[0]
ONLY_SAVE_FAILED = {
    "SAVE": "failed",
    "LOAD": "not run",
    "INTEGRITY": "not run",
    "COLD": "not run",
    "DURABLE-CALLS": "not run",
}


@pytest.fixture(scope="module")
def killed(create_home: Callable[[str], Path]) -> Run:
    """A run of two models. While the first model is saved for the second time, its rank 5 is killed."""
    with temporary_runner(create_home("killed")) as runner:
        sabotage = Sabotage(runner.home, "hold", rank=5, subject=FIRST)
        started = runner.start(
            "--ckpt-model=llama3-8b,llama3-70b",
            "--ckpt-profile=smoke",
            "--ckpt-operations=2",
            environment=sabotage.environment,
        )
        os.kill(sabotage.wait_until_blocked(started), signal.SIGKILL)
        return started.finish()


@pytest.mark.thorough
def test_a_killed_rank_is_named_and_accuses_no_storage(killed: Run) -> None:
    assert killed.code == 8, killed.text
    assert killed.outcomes(FIRST) == ONLY_SAVE_FAILED | {"SAVE": "not run"}
    because = killed.verdict("SAVE", FIRST)["because"]
    assert because.startswith(f"Rank 5 on {HOST} was killed in {FIRST}/stream save 2")
    assert "signal 9" in because
    assert because in " ".join(killed.text.split())


@pytest.mark.thorough
def test_after_a_killed_rank_the_other_measurements_continue(killed: Run) -> None:
    assert set(killed.outcomes(SECOND).values()) == {"met"}
    assert killed.launches == ["1", "2"]


@pytest.mark.thorough
def test_an_undecided_verdict_names_the_killed_rank_as_its_cause(killed: Run) -> None:
    because = killed.verdict("LOAD", FIRST)["because"]
    assert because.startswith(f"The run ended before this was measured: Rank 5 on {HOST} was killed")


@pytest.mark.thorough
def test_nothing_is_left_of_a_run_with_a_killed_rank(killed: Run) -> None:
    assert processes_of(killed.run_id) == []
    assert killed.left_on_target == []


@pytest.mark.thorough
def test_a_stopped_rank_is_named_when_the_deadline_is_over(runner: Runner) -> None:
    sabotage, seconds = Sabotage(runner.home, "hold", rank=1), round(patience(DEADLINE_SECONDS))
    started = runner.start(*TINY, f"--ckpt-io-timeout={seconds}s", environment=sabotage.environment)
    os.kill(sabotage.wait_until_blocked(started), signal.SIGSTOP)
    run = started.finish()
    assert run.code == 8, run.text
    assert run.outcomes() == ONLY_SAVE_FAILED | {"SAVE": "not run"}
    because = run.verdict("SAVE")["because"]
    assert because.startswith(f"Rank 1 on {HOST} hung in {MEASURED} save ")
    assert f"(--ckpt-io-timeout {seconds} s)" in because
    assert "state T" in run.verdict("SAVE")["detail"]
    assert processes_of(run.run_id) == []
    assert run.left_on_target == []


@pytest.mark.thorough
def test_a_rank_that_makes_no_progress_is_named_with_its_phase_and_file(runner: Runner) -> None:
    sabotage = Sabotage(runner.home, "hold", rank=1)
    run = runner.run(*TINY, f"--ckpt-io-timeout={patience(DEADLINE_SECONDS):.0f}s", environment=sabotage.environment)
    assert run.code == 1, run.text
    because = run.verdict("SAVE")["because"]
    assert because.startswith(f"Rank 1 on {HOST} hung in {MEASURED} save 2 write of {MODEL_OF_RANK_1}: no progress")
    assert run.measurement()["failure"]["phase"] == "write"
    assert run.left_on_target == []


@pytest.mark.thorough
def test_a_storage_that_takes_bytes_slowly_and_steadily_is_measured(
    runner: Runner, create_home: Callable[[str], Path]
) -> None:
    """A slow but steady save exceeds the save limit. The watchdog neither ends the save nor reports a hang.

    The save takes twelve times ``--ckpt-io-timeout``. The watchdog checks the pace of a save only after ten times this
    timeout.
    """
    need_fuse()
    deadline = max(10, patience(2))
    with misbehaving(create_home("steady")) as target:
        target.fault("writes trickle", maximum_bytes=1 << 16, bytes_per_second=_BYTES_OF_RANK / (12 * deadline))
        options = (*TINY, TORCH, "--ckpt-operations=1", f"--ckpt-io-timeout={deadline:.0f}s")
        run = runner.run(*options, target=target.path, cluster=16_000)
        assert run.left_on_target == []
    assert run.code == 1, run.text
    assert run.verdict("SAVE")["because"].startswith("1 of 1 save exceeded the limit")
    assert run.measurement()["failure"] is None
    (save,) = run.operations("save")
    assert save["seconds"] >= 10 * deadline
    assert len(run.operations("load")) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("file_system", ["ext4", "xfs"])
def test_a_target_that_stops_answering_does_not_hold_the_run(
    runner: Runner, mount: Callable[..., Path], file_system: str
) -> None:
    point = mount(file_system, 400)
    target = point / "target"
    target.mkdir()
    sabotage = Sabotage(runner.home, "hold", rank=1)
    # With one thread per rank, the verdict shows the state of that thread.
    options = (*TINY, TORCH, f"--ckpt-io-timeout={patience(DEADLINE_SECONDS):.0f}s")
    started = runner.start(*options, target=target, environment=sabotage.environment)
    sabotage.wait_until_blocked(started)
    with frozen(point):
        sabotage.release()
        run = started.finish()
        blocked = processes_of(started.run_id)
    assert run.code == 1, run.text
    assert run.outcomes() == ONLY_SAVE_FAILED
    verdict = run.verdict("SAVE")
    # Which rank stalled first depends on chance.
    hung = (
        rf"Rank [01] on {HOST} hung in {SUBJECT} save 2 (open|write|fsync|close) of zero_pp_rank_[01]_\S+: no progress"
    )
    assert re.match(hung, verdict["because"])
    assert "state D" in verdict["detail"]
    assert "cannot be ended: they are blocked in the kernel until the target answers" in verdict["detail"]
    assert blocked
    (left,) = run.document["left_behind"]
    assert str(started.run_directory) in left
    assert "may still write" in left
    assert f"left on the target: {left}" in run.text
    eventually(lambda: not processes_of(run.run_id), "the blocked ranks end when the target answers")
    assert run.left_on_target == [started.run_directory.name]


@pytest.mark.thorough
def test_a_target_that_fills_up_fails_the_save_with_its_error_and_file(
    runner: Runner, mount: Callable[..., Path]
) -> None:
    target = mount("tmpfs", 64)
    sabotage = Sabotage(runner.home, "hold", rank=1)
    started = runner.start(*TINY, target=target, environment=sabotage.environment)
    sabotage.wait_until_blocked(started)
    _fill(target / "ballast")
    sabotage.release()
    run = started.finish()
    assert run.code == 1, run.text
    assert run.outcomes() == ONLY_SAVE_FAILED
    failure = run.measurement()["failure"]
    assert (failure["kind"], failure["errno"], failure["host"]) == ("error", "ENOSPC", HOST)
    assert failure["file"].startswith(f"zero_pp_rank_{failure['rank']}_mp_rank_0_")
    because = run.verdict("SAVE")["because"]
    assert because.startswith(
        f"Rank {failure['rank']} on {HOST} failed in {MEASURED} save 2 {failure['phase']} of zero_pp"
    )
    assert "ENOSPC: No space left on device" in because
    assert processes_of(run.run_id) == []
    assert run.left_on_target == ["ballast"]


def test_a_failed_fsync_fails_the_save_in_that_phase(runner: Runner) -> None:
    sabotage = Sabotage(runner.home, "eio", rank=1)
    run = runner.run(*TINY, environment=sabotage.environment)
    assert run.code == 1, run.text
    assert run.outcomes() == ONLY_SAVE_FAILED
    assert run.verdict("SAVE")["because"].startswith(
        f"Rank 1 on {HOST} failed in {MEASURED} save 2 fsync of {MODEL_OF_RANK_1}: EIO: Input/output error"
    )
    assert run.left_on_target == []


def test_an_engine_that_forgets_fsync_fails_durable_calls(runner: Runner) -> None:
    sabotage = Sabotage(runner.home, "forget", rank=1, where=".*")
    run = runner.run(*TINY, environment=sabotage.environment)
    assert run.code == 1, run.text
    assert run.outcomes()["DURABLE-CALLS"] == "failed"
    assert run.measurement()["durability"]["files_synced"] == 4
    assert "Of 8 files only 4 were made durable" in run.text
    assert run.outcomes()["SAVE"] == run.outcomes()["INTEGRITY"] == "met"


@pytest.mark.thorough
def test_a_background_save_that_commits_before_its_data_are_durable_fails_durable_calls(runner: Runner) -> None:
    sabotage = Sabotage(runner.home, "forget", rank=1, where=".*")
    run = runner.run(*TINY, "--ckpt-strategy=async", environment=sabotage.environment)
    assert run.code == 1, run.text
    # The save is committed in time and loads completely, so only this requirement and a power cut can show the fault.
    for name in ("BACKGROUND", "BLOCKING", "LOST-WORK", "CRASH-ASYNC", "INTEGRITY"):
        assert run.verdict(name)["outcome"] == "met"
    assert run.verdict("DURABLE-CALLS")["outcome"] == "failed"
    assert "Of 8 files only 4 were made durable" in run.text


def _fill(file: Path) -> None:
    """Write to a file until the volume is full."""
    with file.open("wb", buffering=0) as out:
        piece = bytes(1 << 20)
        while piece:
            try:
                out.write(piece)
            except OSError:
                piece = piece[: len(piece) // 2]

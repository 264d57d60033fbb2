"""A run that pytest-xdist distributes over several workers has the same verdicts as a run in one process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.end_to_end import (
    SMALLEST,
    TINY,
    TORCH,
    Run,
    Runner,
    Sabotage,
    processes_of,
    progress_lines,
    temporary_runner,
)


@pytest.fixture(scope="module")
def over_workers(create_home: Callable[[str], Path]) -> Run:
    with temporary_runner(create_home("workers")) as runner:
        return runner.run(*SMALLEST, TORCH, "-n", "4", cluster=1)


def test_four_workers_give_the_same_verdicts_as_none(good: Run, over_workers: Run) -> None:
    assert over_workers.code == good.code == 0, over_workers.text
    assert _decided(over_workers) == _decided(good)
    assert over_workers.document["grade"] == good.document["grade"]


def test_four_workers_share_one_launch(over_workers: Run) -> None:
    assert over_workers.launches == ["1"]
    assert [e["event"] for e in over_workers.events].count("measuring") == 1
    assert len(over_workers.document["measurements"]) == 1


def test_workers_are_silent(over_workers: Run) -> None:
    assert progress_lines(over_workers.text) == []
    assert over_workers.text.count("ckpt target: ") == 1
    assert over_workers.text.count("certificate: ") == 1


def test_workers_leave_the_target_empty(over_workers: Run) -> None:
    assert over_workers.left_on_target == []


@pytest.mark.thorough
def test_a_requirement_deselected_on_the_workers_is_judged_by_what_was_measured(runner: Runner) -> None:
    run = runner.run(*SMALLEST, "-n", "2", "-k", "SAVE or LOAD")
    assert run.code == 0, run.text
    assert run.outcomes() == dict.fromkeys(("SAVE", "LOAD", "INTEGRITY", "COLD", "DURABLE-CALLS"), "met")


@pytest.mark.thorough
def test_after_a_crashed_worker_the_next_one_measures_again(runner: Runner) -> None:
    sabotage = Sabotage(runner.home, "hold", rank=1)
    started = runner.start(*TINY, "-n", "2", environment=sabotage.environment)
    launcher = _parent(sabotage.wait_until_blocked(started))
    os.kill(_parent(launcher), signal.SIGKILL)
    run = started.finish()
    assert run.code == 1, run.text
    assert "crashed while running" in run.text
    decided = [outcome for outcome in run.outcomes().values() if outcome != "not run"]
    assert set(decided) == {"met"}, run.text
    assert len(decided) >= 4, run.text
    assert processes_of(run.run_id) == []
    assert run.left_on_target == []


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _decided(run: Run) -> list[tuple[str, str, str, str]]:
    """Return (requirement, subject, severity, outcome) of each verdict, in order.

    The outcome of an advisory verdict is replaced by an empty text, because it may vary by chance.
    """
    return [
        (v["id"], v["subject"], v["severity"], v["outcome"] if v["severity"] == "required" else "")
        for v in run.document["requirements"]
    ]

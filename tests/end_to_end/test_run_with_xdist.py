"""The same run over workers of pytest-xdist."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from front_door import SMALLEST, FrontDoor, Run, opened_door, progress_lines


@pytest.fixture(scope="module")
def over_workers(make_home: Callable[[str], Path]) -> Run:
    with opened_door(make_home("workers")) as door:
        return door.run(*SMALLEST, "-n", "4")


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


def test_a_requirement_deselected_on_the_workers_makes_the_run_incomplete(door: FrontDoor) -> None:
    run = door.run(*SMALLEST, "-n", "2", "-k", "every_save or every_load")
    assert run.code == 8, run.text
    assert run.outcomes() == {
        "SAVE": "met",
        "LOAD": "met",
        "INTEGRITY": "not run",
        "COLD": "not run",
        "DURABLE-CALLS": "not run",
    }


def _decided(run: Run) -> list[tuple[str, str, str, str]]:
    """Return what was decided, in order; advisory requirements may be decided otherwise by chance."""
    return [
        (v["id"], v["subject"], v["severity"], v["outcome"] if v["severity"] == "required" else "")
        for v in run.document["requirements"]
    ]

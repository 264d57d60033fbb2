"""The estimate of a run's remaining time.

The estimate is computed from the times of completed steps. Until the first step is completed, no estimate is printed.
"""

from __future__ import annotations

import pytest

from pytest_ckpt.config.options import resolve
from pytest_ckpt.launching.progress import Row, seconds_left
from pytest_ckpt.sizing.plan import plan_run
from pytest_ckpt.sizing.steps import planned_steps

MEASURED = {"ckpt_engine": "torch", "ckpt_cluster": "64", "ckpt_model": "llama3-8b", "ckpt_operations": "2"}


def rows(**options: str) -> dict[str, Row]:
    settings = resolve(MEASURED | options, {})
    (planned,) = plan_run(settings, None).runnable
    return {steps.kind: Row(steps=steps, count=steps.count) for steps in planned_steps(planned, settings, None)}


def remaining_seconds(of: dict[str, Row], spent: float) -> float | None:
    return seconds_left(list(of.values()), spent)


def test_before_the_first_save_nothing_is_known() -> None:
    assert remaining_seconds(rows(), 5.0) is None


def test_the_remaining_time_follows_the_pace_of_finished_operations() -> None:
    of = rows()
    of["save"].ended(4.0)
    assert remaining_seconds(of, 5.0) == pytest.approx(15.0)
    for kind in ("save", "load", "load"):
        of[kind].ended(4.0)
    assert remaining_seconds(of, 20.0) is None


def test_turns_with_paced_saves_last_by_the_clock_and_are_no_pace() -> None:
    """Each step of the pattern mixed is estimated at 30 s, the duration of a paced save in this test.

    A paced save is written on a schedule. The times of other steps do not change this estimate.
    """
    of = rows(ckpt_suite="performance,contention")
    for kind, count in {name: row.count for name, row in of.items() if name != "mixed"}.items():
        for _ in range(count):
            of[kind].ended(40.0)
    assert remaining_seconds(of, 500.0) == pytest.approx(6 * 30.0, rel=1e-4)
    of["mixed"].ended(31.0)
    assert remaining_seconds(of, 531.0) == pytest.approx(6 * 30.0 - 31.0, rel=1e-4)


def test_endurance_takes_its_time_or_at_most_its_saves() -> None:
    timed = rows(ckpt_suite="performance,endurance", ckpt_duration="1h")
    for kind in ("save", "save", "load", "load"):
        timed[kind].ended(1.0)
    assert remaining_seconds(timed, 4.0) == pytest.approx(3600.0)
    timed["endurance"].clock_seconds = 600.0
    assert remaining_seconds(timed, 604.0) == pytest.approx(3000.0)
    steady = rows(ckpt_suite="performance,endurance")
    for kind in ("save", "save", "load", "load"):
        steady[kind].ended(1.0)
    assert remaining_seconds(steady, 4.0) == pytest.approx(25.0)
    steady["endurance"].part_done = 5
    assert remaining_seconds(steady, 9.0) == pytest.approx(20.0)


def test_neither_bytes_nor_a_clock_foretell_calls_on_names() -> None:
    of = rows(ckpt_suite="performance,metadata")
    for kind in ("save", "save", "load"):
        of[kind].ended(1.0)
    assert remaining_seconds(of, 3.0) == pytest.approx(1.0)
    of["load"].ended(1.0)
    assert remaining_seconds(of, 4.0) is None


def test_there_is_no_remaining_time_if_nothing_is_left_to_measure() -> None:
    of = rows(ckpt_suite="performance,contention")
    for kind in ("save", "save", "load", "load"):
        of[kind].ended(1.0)
    for row in of.values():
        row.count = row.done
    assert remaining_seconds(of, 4.0) is None

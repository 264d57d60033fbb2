"""The progress lines of a run count every step of the ranks and every check."""

from __future__ import annotations

import re

import pytest

from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.events import (
    MeasurementDone,
    MeasurementStarted,
    OperationDone,
    OperationStarted,
    PatternMeasured,
    StepDone,
    StepKind,
)
from pytest_ckpt.facts.measurement import OperationKind, Resized
from pytest_ckpt.facts.subject import OperationRef
from pytest_ckpt.launching import progress as module
from pytest_ckpt.launching.progress import Progress
from pytest_ckpt.sizing.plan import plan_run
from pytest_ckpt.sizing.steps import planned_steps
from pytest_ckpt.support.units import format_seconds
from tests.support.synthetic_measurement import measurement, operation

CHECKS = 2
OWN: tuple[OperationKind, ...] = ("save", "load")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module.time, "monotonic", made)
    return made


class Watched:
    """A run of one subject (a model and how it is saved), and the progress lines that the run has printed."""

    def __init__(self, clock: Clock, **options: str) -> None:
        said = {"ckpt_engine": "torch", "ckpt_cluster": "64", "ckpt_model": "llama3-8b", "ckpt_operations": "2"}
        settings = resolve(said | options, {})
        (self.planned,) = plan_run(settings, None).runnable
        self.steps = planned_steps(self.planned, settings, None)
        self.written: list[str] = []
        self.clock = clock
        self.progress = Progress(self.steps, CHECKS, self.written.append, live=False)
        self.progress.begin([self.planned])
        self.progress.record(MeasurementStarted(subject=self.planned.subject))

    def own(self, kind: OperationKind, index: int, seconds: float) -> None:
        """Report a save or load that belongs to no pattern (such as a storm) and that takes ``seconds``."""
        ref = OperationRef(subject=self.planned.subject, action=kind, index=index)
        self.progress.record(OperationStarted(operation=ref))
        self.clock.now += seconds
        done = operation(kind, index, seconds)
        self.progress.record(OperationDone(subject=self.planned.subject, operation=done))

    def step(self, kind: StepKind, index: int, seconds: float) -> None:
        self.clock.now += seconds
        done = StepDone(subject=self.planned.subject, kind=kind, index=index, step_seconds=seconds)
        self.progress.record(done)

    @property
    def lines(self) -> list[str]:
        return [line for line in "".join(self.written).splitlines() if line]


def remaining_time(line: str) -> str:
    """Return the remaining time that a progress line states, or an empty text."""
    found = re.search(r", ((?:about|at most) .* left)$", line)
    return found[1] if found else ""


def test_every_step_during_saves_and_loads_increases_the_count(clock: Clock) -> None:
    """Each step of a pattern and each check increases the count by one."""
    run = Watched(clock, ckpt_suite="performance,contention")
    total = sum(steps.count for steps in run.steps) + CHECKS
    assert total > 4 + CHECKS
    for steps in run.steps:
        for index in range(1, steps.count + 1):
            if steps.kind in ("save", "load"):
                run.own(steps.kind, index, 2.0)
            else:
                run.step(steps.kind, index, 2.0)
    for number in range(CHECKS):
        run.progress.checked(f"COMMIT.{number}", 1.0)
        run.progress.printed(".")
    counted = [re.match(r"\[(\d+)/(\d+)\]", line) for line in run.lines]
    assert [(int(c[1]), int(c[2])) for c in counted if c] == [(n, total) for n in range(1, total + 1)]
    assert run.progress.done == run.progress.total == total


@pytest.mark.parametrize(
    ("duration", "each_seconds", "bound", "left_seconds"),
    [
        # One step of an hour, or one of at most 25 saves of ten seconds.
        ({"ckpt_duration": "1h"}, 600.0, "about", (3000, 2400, 1800)),
        ({}, 10.0, "at most", (240, 230, 220)),
    ],
)
def test_every_save_of_endurance_brings_its_end_nearer(
    clock: Clock, duration: dict[str, str], each_seconds: float, bound: str, left_seconds: tuple[float, ...]
) -> None:
    run = Watched(clock, ckpt_suite="performance,endurance", **duration)
    for kind in OWN:
        for index in (1, 2):
            run.own(kind, index, 10.0)
    for index in range(1, 4):
        run.step("endurance", index, each_seconds)
    assert [remaining_time(line) for line in run.lines[-3:]] == [
        f"{bound} {format_seconds(seconds)} and {CHECKS} checks left" for seconds in left_seconds
    ]


def test_checks_move_the_count_on_and_are_told_to_be_left(clock: Clock) -> None:
    run = Watched(clock)
    run.own("save", 1, 4.0)
    assert remaining_time(run.lines[-1]) == f"about 12 s and {CHECKS} checks left"
    run.progress.checked("COMMIT.file", 1.0)
    assert run.progress.done == 2
    run.own("save", 2, 4.0)
    assert remaining_time(run.lines[-1]).endswith("and 1 check left")


def test_the_total_excludes_steps_that_an_ended_launch_skipped(clock: Clock) -> None:
    run = Watched(clock)
    run.own("save", 1, 4.0)
    run.progress.end()
    assert (run.progress.done, run.progress.total) == (1, 1 + CHECKS)


def test_steps_of_a_separate_launch_are_waited_for_until_it_is_over(clock: Clock) -> None:
    run = Watched(clock, ckpt_engine="dcp", ckpt_suite="performance,contention")
    subject = run.planned.subject
    run.progress.record(PatternMeasured(subject=subject, name="joined", not_run="ranks load together"))
    for kind in OWN:
        for index in (1, 2):
            run.own(kind, index, 2.0)
    cache = measurement().cache
    assert cache
    run.progress.record(MeasurementDone(subject=subject, cache=cache, ranks=()))
    run.progress.end()
    (separate,) = (steps.count for steps in run.steps if steps.kind == "resized")
    assert run.progress.total == 4 + separate + CHECKS
    run.progress.begin([run.planned])
    run.step("resized", 1, 2.0)
    found = Resized(saved_by=8, not_run={"halved": "too few", "doubled": "too few"})
    run.progress.record(PatternMeasured(subject=subject, name="resized", found=found))
    run.progress.end()
    assert (run.progress.done, run.progress.total) == (5, 5 + CHECKS)

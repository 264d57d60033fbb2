"""Saves for hours, on a fake clock: the number of saves, their start times, and the saves that rank 0 reports."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest

from pytest_ckpt.facts.subject import OperationRef, Subject
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.scenarios import endurance
from pytest_ckpt.ranks.scenarios.endurance import LongRun

SUBJECT = Subject(model="made", mode="test")


class Clock:
    def __init__(self):
        self.now = 1000.0

    def perf_counter(self):
        return self.now

    def sleep(self, seconds):
        assert seconds > 0
        self.now += seconds


class SingleRank:
    rank, size = 0, 1

    def share(self, value):
        return value


class Saves:
    """Fake operations of a subject: a save only advances the fake clock."""

    subject = SUBJECT

    def __init__(self, clock, seconds):
        self.clock, self.seconds = clock, seconds
        self.began, self.steps, self.sent = [], [], []

    def save(self, _strategy, _number, *, is_reported, **_):
        if is_reported:
            self.began.append(self.clock.now)
        self.clock.now += self.seconds
        return SimpleNamespace(seconds=self.seconds)

    def one(self, scenario, action, index):
        return OperationRef(subject=SUBJECT, scenario=scenario, action=action, index=index)

    def all(self, stage, scenario):
        return OperationRef(subject=SUBJECT, scenario=scenario, stage=stage)

    def stage(self, *_):
        return contextlib.nullcontext()

    def delete_files_of_rank(self, _): ...

    def finish_delete(self, _): ...

    def step(self, kind, index, seconds):
        self.steps.append(index)

    def send(self, event):
        self.sent.append(event)


@pytest.fixture
def endured(monkeypatch, capfd):
    def run(asked, seconds, maximum=100, reported=10):
        clock = Clock()
        monkeypatch.setattr(endurance, "time", clock)
        monkeypatch.setattr(endurance, "MAXIMUM_ENDURANCE_SAVES", maximum)
        monkeypatch.setattr(endurance, "FACTS_OF_ENDURANCE", reported)
        do = Saves(clock, seconds)
        LongRun(SingleRank(), Activity(), do, strategy=None, store=None, after=3).endure(asked)
        (event,) = do.sent
        return do, event.found

    return run


def test_saves_that_take_their_time_follow_one_another(endured):
    _, found = endured(1000.0, 30.0)
    assert len(found.save_seconds) == 34
    assert list(found.start_seconds) == [30.0 * n for n in range(34)]


def test_saves_that_are_too_fast_to_be_recorded_wait_for_their_turn(endured):
    _, found = endured(1000.0, 1.0)
    assert 100 <= len(found.save_seconds) <= 101
    assert list(found.start_seconds) == pytest.approx([10.0 * n for n in range(len(found.start_seconds))])
    assert set(found.save_seconds) == {1.0}


def test_saves_until_they_are_steady_never_wait(endured):
    do, found = endured(0.0, 0.001)
    assert do.steps == [1, 2, 3, 4, 5]
    assert list(found.start_seconds) == pytest.approx([0.001 * n for n in range(5)])


@pytest.mark.parametrize(("seconds", "reported"), [(30.0, 9), (1.0, 10), (200.0, 5)])
def test_rank_0_tells_of_some_of_many_saves(endured, seconds, reported):
    """Rank 0 reports the first save. After this, it reports at most one save in each tenth of the requested time."""
    do, found = endured(1000.0, seconds)
    assert do.steps[0] == 1
    assert len(do.steps) == len(do.began) == pytest.approx(reported, abs=1)
    assert all(b - a >= 100 for a, b in zip(do.began, do.began[1:], strict=False))
    assert len(found.save_seconds) >= len(do.steps)

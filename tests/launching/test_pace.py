"""The watchdog ends an operation that moves bytes only if the operation would take longer than 50 deadlines.

The deadline is the longest permitted time without progress. Here it is 60 s.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.events import Beat, Hello
from pytest_ckpt.facts.failure import describe_failure
from pytest_ckpt.facts.subject import OperationRef, Subject
from pytest_ckpt.launching import rank_watchdog
from pytest_ckpt.launching.rank_watchdog import Allowance, RankWatchdog, allowances_of
from pytest_ckpt.sizing.plan import plan_run
from tests.support.synthetic_target import mounted

SUBJECT = Subject(model="llama3-8b", mode="full")
SAVE = OperationRef(subject=SUBJECT, action="save", index=2)
LOAD = OperationRef(subject=SUBJECT, action="load", index=2)
SIZE = 1_000_000
# As in a launch: the maximum is 50 deadlines, and the pace is checked after ten.
DEADLINE, MAXIMUM = 60.0, 3000.0
BEAT = 10.0


class Clock:
    now = 5000.0

    def monotonic(self):
        return self.now


class Watched:
    """A watchdog of two ranks. Rank 0 always reports that it waits, so only rank 1 can be too slow."""

    def __init__(self, clock, maximum=MAXIMUM):
        allowed = Allowance(seconds=maximum, why="50 x --ckpt-io-timeout 1 min", rank_bytes=(SIZE, SIZE))
        self.clock = clock
        self.watch = RankWatchdog(2, DEADLINE, "h", {(SUBJECT, "save"): allowed, (SUBJECT, "load"): allowed})
        for rank in range(2):
            self.watch.record(Hello(rank=rank, host="h", pid=1))
        self.moved = 0

    def report(self, operation, bytes_more=0, *, seconds=0.0, waiting=False, lane="", phase="write"):
        """Let ``seconds`` pass, then report ``bytes_more`` further bytes of rank 1.

        Return the failure that the watchdog finds, or None.
        """
        self.clock.now += seconds
        self.moved += bytes_more
        for rank, lane_of in ((0, ""), (1, lane)):
            beat = Beat(rank=rank, operation=operation, phase=phase, file="f", waiting=waiting or rank == 0,
                        progress=(self.moved, 7), lane=lane_of)  # fmt: skip
            self.watch.record(beat)
        return self.watch.hung()

    def keep_reporting(self, operation, bytes_more, seconds):
        """Let rank 1 report ``bytes_more`` further bytes every ten seconds, for ``seconds`` in total.

        If the watchdog finds a failure, stop earlier. Return (failure or None, seconds that have passed).
        """
        began = self.clock.now
        while self.clock.now - began < seconds:
            if found := self.report(operation, bytes_more, seconds=BEAT):
                return found, self.clock.now - began
        return None, self.clock.now - began


@pytest.fixture
def watched(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(rank_watchdog, "time", clock)
    made = Watched(clock)
    assert made.report(SAVE) is None
    return made


def test_a_trickle_is_ended_after_a_fifth_of_what_an_operation_may_take(watched):
    found, after = watched.keep_reporting(SAVE, 100, 10 * MAXIMUM)
    assert (found.kind, found.rank, found.operation, found.phase, found.file) == ("too slow", 1, SAVE, "write", "f")
    assert after == MAXIMUM / 5
    assert describe_failure(found) == (
        "Rank 1 on h was far too slow in llama3-8b-full save 2 write of f: it moved 6 kB of 1 MB in 10 min "
        "(10 B/s) and would take 27.8 h at that pace; at most 50 min are waited for (50 x --ckpt-io-timeout 1 min)."
    )


def test_a_slow_save_that_ends_in_time_continues(watched):
    """A save that takes 49 of the allowed 50 minutes is not ended."""
    every = SIZE / (0.98 * MAXIMUM) * BEAT
    found, after = watched.keep_reporting(SAVE, round(every), 0.98 * MAXIMUM)
    assert (found, after) == (None, 0.98 * MAXIMUM)
    assert watched.moved == pytest.approx(SIZE, rel=0.01)


def test_a_save_that_needs_slightly_more_than_the_allowed_time_is_ended(watched):
    found, _ = watched.keep_reporting(SAVE, round(SIZE / (1.1 * MAXIMUM) * BEAT), MAXIMUM)
    assert found.kind == "too slow"


def test_a_pause_shorter_than_the_deadline_ends_nothing(watched):
    """A save that pauses for 50 s at its beginning is not ended, because the pause is shorter than the deadline."""
    every = round(SIZE / (0.5 * MAXIMUM) * BEAT)
    watched.report(SAVE, 1, seconds=BEAT)
    for _ in range(5):
        assert watched.report(SAVE, 0, seconds=BEAT) is None
    assert watched.keep_reporting(SAVE, every, 0.5 * MAXIMUM)[0] is None


def test_a_rank_that_saved_no_files_is_ended_only_when_its_time_is_over():
    """A rank that has saved no files is ended only when the allowed time is over.

    If more ranks load than have saved, some ranks have saved no files. The watchdog then does not know how many bytes
    such a rank must read.
    """
    allowed = Allowance(seconds=MAXIMUM, why="50 x --ckpt-io-timeout 1 min", rank_bytes=(SIZE, SIZE))
    assert allowed.exceeded_by(3, 100, MAXIMUM) == ""
    assert "100 B of 100 B" in allowed.exceeded_by(3, 100, MAXIMUM + 1)


def test_without_any_progress_the_deadline_decides(watched):
    found, after = watched.keep_reporting(SAVE, 0, MAXIMUM)
    assert found.kind == "hung"
    assert after == DEADLINE + BEAT


def test_every_operation_begins_anew(watched):
    for index in range(1, 40):
        save = OperationRef(subject=SUBJECT, action="save", index=index)
        watched.report(save)
        assert watched.keep_reporting(save, 100, MAXIMUM / 6)[0] is None


def test_waiting_for_others_and_comparing_between_steps_are_no_part_of_it(watched):
    for _ in range(20):
        assert watched.report(LOAD, 0, seconds=1) is None
        assert watched.report(LOAD, SIZE // 20, seconds=30, phase="read") is None
        assert watched.report(LOAD.at("verify"), 0, seconds=0) is None
        assert watched.report(LOAD.at("verify"), 1, seconds=50) is None
        assert watched.report(LOAD, 0, seconds=1, waiting=True) is None
        assert watched.report(LOAD, 0, seconds=500, waiting=True) is None
    assert watched.clock.now - 5000 > 3 * MAXIMUM


def test_the_steps_of_a_load_are_added_up(watched):
    found = None
    while not found:
        watched.report(LOAD, 0, seconds=0)
        found = watched.report(LOAD, 100, seconds=50, phase="read")
        found = found or watched.report(LOAD.at("verify"), 0, seconds=0)
        assert watched.clock.now < 5000 + MAXIMUM
    assert (found.kind, found.operation) == ("too slow", LOAD)


def test_a_rank_that_reads_other_files_may_use_the_allowed_time(watched):
    """A rank that reads more bytes than its own files contain is ended only when the allowed time is over.

    In a storm (all ranks load at once), a rank also reads other ranks' files, so the remaining bytes are unknown.
    """
    assert watched.keep_reporting(LOAD, SIZE // 10, 0.9 * MAXIMUM)[0] is None
    assert watched.keep_reporting(LOAD, SIZE // 10, MAXIMUM)[0].kind == "too slow"


def test_work_in_a_lane_of_its_own_is_named_with_it(watched):
    watched.report(SAVE, lane="save")
    found = None
    while not found:
        watched.watch.record(Beat(rank=1, operation=None, phase="", file="", waiting=True, progress=(0, 7)))
        found = watched.report(SAVE, 100, seconds=BEAT, lane="save")
        assert watched.clock.now < 5000 + MAXIMUM
    assert (found.kind, found.lane) == ("too slow", "save")


def test_stages_other_than_saves_and_loads_have_no_pace_limit(watched):
    for at in (SAVE.at("content"), OperationRef(subject=SUBJECT, scenario="near_full", stage="ballast", level=0.9)):
        watched.report(at)
        assert watched.keep_reporting(at, 10, MAXIMUM)[0] is None


@pytest.mark.parametrize(("limit", "seconds", "why"), [
    (28.0, 15_000.0, "50 x --ckpt-io-timeout 5 min"), (7_000.0, 70_000.0, "10 x the limit of 117 min"),
])  # fmt: skip
def test_the_bound_is_the_longer_of_ten_limits_and_fifty_deadlines(limit, seconds, why):
    settings = resolve({"ckpt_engine": "torch", "ckpt_cluster": "64", "ckpt_model": "llama3-8b"}, {})
    (planned,) = plan_run(settings, mounted("ext4")).checkpoints
    demand = replace(planned.demand, save_limit_seconds=limit, load_limit_seconds=0.0)
    found = allowances_of([replace(planned, demand=demand)], 300.0)
    rank_bytes = planned.layout.rank_bytes
    assert found[SUBJECT, "save"] == Allowance(seconds=seconds, why=why, rank_bytes=rank_bytes)
    assert found[SUBJECT, "load"].seconds == 15_000.0

"""The message that states what a launch waits for: ranks that start, a stalled rank, or an operation in progress."""

from __future__ import annotations

import pytest

from pytest_ckpt.facts.events import Beat, Hello
from pytest_ckpt.facts.subject import OperationRef, Subject
from pytest_ckpt.launching import rank_watchdog
from pytest_ckpt.launching.rank_watchdog import RankWatchdog

SAVE = OperationRef(subject=Subject(model="made", mode="test"), action="save", index=3)


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(rank_watchdog, "time", made)
    return made


def beat(rank: int, progress: int, lane: str = "") -> Beat:
    return Beat(
        rank=rank, operation=SAVE, phase="fsync", file="rank-1.pt", waiting=False, progress=(progress, 0), lane=lane
    )


@pytest.fixture
def watch(clock: Clock) -> RankWatchdog:
    """Return the watchdog of two ranks that save, each on its own host."""
    made = RankWatchdog(2, 600.0, "h1")
    for rank in (0, 1):
        made.record(Hello(rank=rank, host=f"h{rank + 1}", pid=1))
        made.record(beat(rank, 0))
    return made


def test_ranks_that_have_not_started_are_counted(clock: Clock) -> None:
    watch = RankWatchdog(8, 600.0, "h1")
    watch.record(Hello(rank=2, host="h1", pid=1))
    clock.now += 30
    assert watch.waits_for() == "starting the ranks: 7 of 8 have not called back for 30 s"


def test_a_rank_without_a_job_is_named(clock: Clock) -> None:
    watch = RankWatchdog(1, 600.0, "h1")
    watch.record(Hello(rank=0, host="h1", pid=1))
    clock.now += 30
    assert watch.waits_for() == "rank 0 on h1 has been waiting for its job for 30 s"


def test_the_rank_that_stalls_is_named_with_its_call_and_file(clock: Clock, watch: RankWatchdog) -> None:
    for second in range(30):
        clock.now += 1
        watch.record(beat(0, second + 1))
        watch.record(beat(1, 0))
    assert watch.waits_for() == f"{SAVE}: rank 1 on h2 has been in fsync of rank-1.pt for 30 s"


def test_a_lane_that_stalls_is_named(clock: Clock, watch: RankWatchdog) -> None:
    watch.record(beat(1, 0, lane="drain"))
    for second in range(30):
        clock.now += 1
        watch.record(beat(0, second + 1))
        watch.record(beat(1, second + 1))
        watch.record(beat(1, 0, lane="drain"))
    assert watch.waits_for() == f"{SAVE} (drain): rank 1 on h2 has been in fsync of rank-1.pt for 30 s"


def test_a_rank_that_stalls_before_its_first_call_is_named(clock: Clock, watch: RankWatchdog) -> None:
    for second in range(31):
        watch.record(beat(0, second + 1))
        watch.record(Beat(rank=1, operation=SAVE, phase="", file="", waiting=False, progress=(0, 0)))
        clock.now += 1
    assert watch.waits_for() == f"{SAVE}: rank 1 on h2 has made no progress for 31 s"


def test_a_rank_that_sends_nothing_is_named_as_that(clock: Clock, watch: RankWatchdog) -> None:
    for second in range(61):
        clock.now += 1
        watch.record(beat(0, second + 1))
    assert watch.waits_for() == f"{SAVE}: rank 1 on h2, last in fsync of rank-1.pt, has not sent a message for 61 s"


def test_the_last_report_of_a_rank_that_may_still_continue_is_shown(clock: Clock, watch: RankWatchdog) -> None:
    for second in range(70):
        clock.now += 1
        watch.record(beat(0, second + 1))
        watch.record(beat(1, second + 1))
    clock.now += 25
    watch.record(beat(0, 100))
    assert watch.waits_for() == f"{SAVE}: 95 s; rank 1 on h2 was in fsync of rank-1.pt 25 s ago"


def test_a_rank_that_waits_for_others_is_not_reported_as_stalled(clock: Clock, watch: RankWatchdog) -> None:
    for _ in range(30):
        watch.record(Beat(rank=1, operation=SAVE, phase="", file="", waiting=True, progress=(0, 0)))
        watch.record(Beat(rank=0, operation=SAVE, phase="", file="", waiting=True, progress=(0, 0)))
        clock.now += 1
    assert watch.waits_for() == f"{SAVE}: 30 s; rank 0 on h1 was waiting for other ranks 1 s ago"

"""A paced store writes bytes on a schedule, and writes late bytes immediately.

The store detects writes that bypass the schedule.
"""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_ckpt.ranks import paced
from pytest_ckpt.ranks.paced import Pace, paced_store

PIECE = 64 << 10


class Recorder:
    """A fake draft (an uncommitted checkpoint) that records writes. The object is also the only file in the draft."""

    part_bytes: int | None = None
    path = "/somewhere"

    def __init__(self) -> None:
        self.written: list[tuple[int, int]] = []
        self.pushed: list[tuple[int, int]] = []
        self.end = 0

    def create(self, name: str, size: int | None) -> Recorder:
        return self

    def write(self, data: memoryview) -> int:
        self.write_at(self.end, data)
        self.end += len(data)
        return len(data)

    def write_at(self, offset: int, data: memoryview) -> None:
        self.written.append((offset, len(data)))

    def start_writeback(self, offset: int, count: int) -> None:
        self.pushed.append((offset, count))

    def location(self) -> str:
        return self.path

    def seal(self) -> str:
        return "sealed"


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(paced, "time", SimpleNamespace(perf_counter=lambda: self.now))
        self.over = threading.Event()
        monkeypatch.setattr(self.over, "wait", self.wait)

    def wait(self, seconds: float) -> None:
        if not self.over.is_set():
            self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def begun(clock: Clock, count: int, seconds: float) -> tuple[Pace, Recorder, Any]:
    """Begin a save of ``count`` bytes that are due in ``seconds``; return (pace, recorder, draft)."""
    pace, draft = Pace(seconds), Recorder()
    store = paced_store(SimpleNamespace(begin=lambda ref, phases: draft), pace)  # type: ignore[arg-type]
    pace.until(clock.over)
    store.begin(None, None).create("a", None).write(bytes(count))  # type: ignore[arg-type]
    pace.learn()
    draft.written.clear()
    draft.end = 0
    return pace, draft, store.begin(None, None)  # type: ignore[arg-type]


def test_before_the_bytes_are_known_nothing_waits(clock: Clock) -> None:
    begun(clock, 8 * PIECE, 4.0)
    assert clock.now == 100.0


def test_a_save_is_spread_over_its_seconds(clock: Clock) -> None:
    _, draft, save = begun(clock, 8 * PIECE, 4.0)
    assert save.create("a", None).write(bytes(8 * PIECE)) == 8 * PIECE
    assert clock.now == pytest.approx(104.0)
    assert draft.written == [(n * PIECE, PIECE) for n in range(8)]
    assert draft.pushed[-8:] == draft.written


def test_several_files_share_one_schedule(clock: Clock) -> None:
    _, _, save = begun(clock, 8 * PIECE, 4.0)
    save.create("a", 4 * PIECE).write_at(0, bytes(4 * PIECE))
    assert clock.now == pytest.approx(102.0)
    save.create("b", 4 * PIECE).write_at(0, bytes(4 * PIECE))
    assert clock.now == pytest.approx(104.0)


def test_a_paced_save_catches_up_after_a_delay_of_the_storage(clock: Clock) -> None:
    _, _, save = begun(clock, 8 * PIECE, 4.0)
    file = save.create("a", None)
    file.write(bytes(PIECE))
    clock.now += 2.0
    file.write(bytes(7 * PIECE))
    assert clock.now == pytest.approx(104.0)


def test_when_the_other_save_is_over_the_rest_does_not_wait(clock: Clock) -> None:
    _, _, save = begun(clock, 8 * PIECE, 4.0)
    file = save.create("a", None)
    file.write(bytes(PIECE))
    clock.over.set()
    file.write(bytes(7 * PIECE))
    assert clock.now == pytest.approx(100.5)


def test_a_store_of_parts_gets_complete_parts(clock: Clock) -> None:
    _, draft, save = begun(clock, 8 * PIECE, 4.0)
    draft.part_bytes = 4 * PIECE
    save.create("a", 8 * PIECE).write_at(0, bytes(4 * PIECE))
    assert draft.written == [(0, 4 * PIECE)]
    assert clock.now == pytest.approx(102.0)


def test_an_engine_that_writes_by_itself_is_noticed(clock: Clock) -> None:
    pace, _, save = begun(clock, 8 * PIECE, 4.0)
    assert save.seal() == "sealed"
    assert not pace.is_bypassed
    assert save.location() == "/somewhere"
    assert pace.is_bypassed

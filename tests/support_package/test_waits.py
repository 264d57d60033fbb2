"""After 30 s without other output, a waiting run prints what it waits for."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_ckpt.support import waits
from pytest_ckpt.support.waits import Waits
from pytest_ckpt.targets import timed_calls
from pytest_ckpt.targets.timed_calls import watched

SECONDS = 60.0


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def lines_after(seconds: float, clock: Clock, waits_of: Waits, printed_lines: list[str]) -> list[str]:
    """Advance the clock by ``seconds`` in steps of one second; return the lines printed in this time."""
    printed_lines.clear()
    for _ in range(round(seconds)):
        clock.now += 1
        waits_of.print_if_due()
    return list(printed_lines)


def test_a_line_comes_every_thirty_seconds_with_the_time_since_the_wait_began() -> None:
    printed_lines, clock = list[str](), Clock()
    made = Waits(printed_lines.append, clock)
    with made.waiting("check VISIBLE.read-after-close"):
        assert lines_after(29, clock, made, printed_lines) == []
        assert lines_after(1, clock, made, printed_lines) == ["check VISIBLE.read-after-close: 30 s"]
        assert lines_after(60, clock, made, printed_lines) == [
            "check VISIBLE.read-after-close: 60 s",
            "check VISIBLE.read-after-close: 90 s",
        ]
    assert lines_after(120, clock, made, printed_lines) == [], "nothing is waited for"


def test_a_line_of_others_puts_off_the_next() -> None:
    printed_lines, clock = list[str](), Clock()
    made = Waits(printed_lines.append, clock)
    with made.waiting("clean-up"):
        lines_after(20, clock, made, printed_lines)
        made.spoke()
        assert lines_after(29, clock, made, printed_lines) == []
        assert lines_after(1, clock, made, printed_lines) == ["clean-up: 50 s"]


def test_an_inner_wait_is_printed_after_its_outer_wait() -> None:
    printed_lines, clock = list[str](), Clock()
    made = Waits(printed_lines.append, clock)
    with made.waiting("preflight"):
        lines_after(10, clock, made, printed_lines)
        with made.waiting(lambda: "/mnt/array has not answered"), made.waiting(lambda: ""):
            assert lines_after(20, clock, made, printed_lines) == ["preflight: 30 s; /mnt/array has not answered"]
        assert lines_after(30, clock, made, printed_lines) == ["preflight: 60 s"]


def test_a_process_that_nobody_sits_before_prints_nothing() -> None:
    clock = Clock()
    made = Waits(None, clock)
    with made.waiting("check"):
        clock.now += 3600
        made.print_if_due()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    os.mkfifo(made := tmp_path / "gate")
    return made


@pytest.fixture
def printed_lines(gate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Return a list that receives the printed lines.

    Each printed line also opens the named pipe ``gate``. A call that waits for the pipe then continues.
    """
    monkeypatch.setattr(waits, "TELL_SECONDS", 0.0)
    monkeypatch.setattr(waits, "LOOK_SECONDS", 0.05)
    found: list[str] = []

    def say(text: str) -> None:
        found.append(text)
        try:
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return  # it does not listen yet

    with waits.telling(say):
        yield found


def test_a_call_on_storage_that_does_not_answer_is_reported(gate: Path, printed_lines: list[str]) -> None:
    assert watched("--ckpt-target /mnt/array", gate.read_text) == ""
    assert re.fullmatch("--ckpt-target /mnt/array has not answered for [0-9]+ s", printed_lines[0])


def open_gate(gate: str) -> str:
    return Path(gate).read_text()


def test_a_call_in_a_process_of_its_own_is_reported(gate: Path, printed_lines: list[str]) -> None:
    with waits.waiting("clean-up"):
        assert timed_calls.call_in_time(f"{__name__}:open_gate", str(gate), SECONDS) == ""
    assert re.fullmatch("clean-up: [0-9]+ s", printed_lines[0])


def test_a_process_that_has_not_ended_is_reported(gate: Path, printed_lines: list[str]) -> None:
    process = subprocess.Popen(["cat", "-", gate], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with waits.waiting("judging the files of the run"):
        done = waits.completed(process, "given", seconds=SECONDS)
    assert (done.returncode, done.stdout) == (0, "given")
    assert re.fullmatch("judging the files of the run: [0-9]+ s", printed_lines[0])


def test_a_process_that_never_ends_is_killed(gate: Path) -> None:
    process = subprocess.Popen(["cat", gate], stdout=subprocess.PIPE)
    with pytest.raises(subprocess.TimeoutExpired):
        waits.completed(process, seconds=0.0)
    assert process.returncode == -9


def test_a_thread_prints_nothing_about_waits_of_another_thread(printed_lines: list[str]) -> None:
    looks: list[Callable[[], None]] = [waits.print_if_due]
    with waits.waiting("clean-up"):
        thread = threading.Thread(target=looks[0])
        thread.start()
        thread.join()
    assert printed_lines == []

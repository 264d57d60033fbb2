"""The time limit of a call in a separate process starts when the process runs.

A busy host is therefore not reported as storage that does not answer.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.targets import timed_calls
from pytest_ckpt.targets.timed_calls import NoAnswerError, RefusedError, call_in_time, watched
from tests.support.machine import eventually, patience

PATH = "os.path:basename"
HANG, LONG_SECONDS = "time:sleep", 1000


@pytest.fixture
def late_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> float:
    """Replace the Python interpreter by one that starts late; return the delay in seconds."""
    seconds = patience(1.0)
    late = tmp_path / "python"
    late.write_text(f'#!/bin/sh\nsleep {seconds}\nexec {shlex.quote(sys.executable)} "$@"\n')
    late.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(late))
    return seconds


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_process_that_begins_late_is_no_target_that_is_silent(late_python: float) -> None:
    assert call_in_time(PATH, "/mnt/array", late_python / 2) == "array"


def test_a_target_that_is_silent_is_one_however_late_its_process_began(late_python: float) -> None:
    with pytest.raises(NoAnswerError, match=r"did not answer for 0\.5 s; process \d+ waits") as silence:
        call_in_time(HANG, LONG_SECONDS, 0.5)
    eventually(lambda: is_gone(silence.value.pid), "the process is ended and reaped")


def test_a_process_that_never_begins_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stuck = tmp_path / "python"
    stuck.write_text(f"#!/bin/sh\nexec sleep {LONG_SECONDS}\n")
    stuck.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stuck))
    monkeypatch.setattr(timed_calls, "_BEGIN_SECONDS", 0.2)
    with pytest.raises(RefusedError, match=r"could not be tried: process \d+, .* did not begin for 0\.2 s") as refused:
        call_in_time(PATH, "/mnt/array", 1000)
    assert str(stuck) in refused.value.remedy
    pid = int(str(refused.value).split("process ")[1].split(",")[0])
    eventually(lambda: is_gone(pid), "the process is ended and reaped")


def test_a_process_that_breaks_before_it_begins_is_reported_with_its_last_line() -> None:
    with pytest.raises(RefusedError, match="could not be tried: ModuleNotFoundError: No module named 'no_such'"):
        call_in_time("no_such:module", None, 1000)
    with pytest.raises(RefusedError, match="could not be tried: ModuleNotFoundError: No module named 'no_such'"):
        call_in_time(PATH, "/mnt/array", 1000, imports=("no_such:module",))


def test_no_end_of_a_pipe_is_left_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    call_in_time(PATH, "/mnt/array", 1000)
    assert len(os.listdir("/proc/self/fd")) == before


def dies(times: int, count: Path) -> int:
    """Kill this process in the first ``times`` calls. Later calls return their number.

    The file ``count`` stores the number of calls.
    """
    number = len(count.read_bytes()) + 1 if count.exists() else 1
    count.write_bytes(b"." * number)
    if number <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_call_whose_process_is_killed_is_made_again(tmp_path: Path) -> None:
    assert watched("the target", lambda: dies(2, tmp_path / "count")) == 3


@pytest.mark.parametrize("tries", [1, 3])
def test_a_call_whose_processes_are_all_killed_is_no_fault_of_the_storage(tries: int, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Process \d+, which called the target, was killed by signal 9 \(SIGKILL\)"):
        watched("the target", lambda: dies(9, tmp_path / "count"), tries=tries)
    assert len((tmp_path / "count").read_bytes()) == tries

"""Processes that do not run: blocked in a system call, stopped by a signal, or in a frozen cgroup."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_ckpt.support.processes import FROZEN, blocked_in, stopped_among
from tests.support.machine import eventually, need

WAITS = "import sys; sys.stdin.read()"


@pytest.fixture
def process() -> Iterator[int]:
    """Start a process that waits for input; return its process id."""
    with subprocess.Popen([sys.executable, "-c", WAITS], stdin=subprocess.PIPE) as started:
        yield started.pid
        started.kill()


@pytest.fixture
def freezer() -> Iterator[Path]:
    """Return a new cgroup, of version 1 or 2, that a test can freeze."""
    for home in (Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup")):
        group = home / f"ckpt-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        yield group
        eventually(functools.partial(_removed, group), "the cgroup is empty")
        return
    need(False, "needs a cgroup that can be frozen")


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        return False
    return True


def freeze(group: Path, *, frozen: bool) -> None:
    if (group / "freezer.state").exists():
        (group / "freezer.state").write_text("FROZEN" if frozen else "THAWED")
    else:
        need((group / "cgroup.freeze").exists(), "needs a cgroup that can be frozen")
        (group / "cgroup.freeze").write_text(str(int(frozen)))


def test_a_process_that_waits_is_not_stopped(process):
    assert stopped_among([process]) is None
    assert FROZEN not in blocked_in(process)


def test_a_process_that_a_signal_stopped_is_found(process):
    os.kill(process, signal.SIGSTOP)
    assert eventually(lambda: stopped_among([os.getpid(), process]), "it is stopped") == process


def test_a_process_in_a_frozen_cgroup_is_found(freezer, process):
    (freezer / "cgroup.procs").write_text(str(process))
    freeze(freezer, frozen=True)
    try:
        assert eventually(lambda: stopped_among([os.getpid(), process]), "it is frozen") == process
        assert FROZEN in blocked_in(process)
    finally:
        freeze(freezer, frozen=False)


def test_a_process_that_has_ended_is_not_stopped(process):
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    assert stopped_among([process]) is None

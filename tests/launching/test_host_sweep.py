"""The host sweep ends a run's processes on its host, and removes the session directories of the launcher.

The launcher's processes keep shared memory and sockets in a session directory.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_ckpt.support.processes import LAUNCH, MARK, SESSION, SWEEP

RUN = "a-test-of-a-sweep"
GONE = 2**22 - 1
WAITS = "print(flush=True); import time; time.sleep(600)"


def swept(session: Path, *words: str) -> None:
    """Start a process of the run with this session directory, and check that a sweep of the host ends the process.

    ``words`` are the arguments of the sweep.
    """
    environment = os.environ | {MARK: RUN, SESSION: str(session)}
    process = subprocess.Popen([sys.executable, "-c", WAITS], env=environment, stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    done = subprocess.run(
        [sys.executable, "-m", "pytest_ckpt.launching.host_sweep", *words],
        env=os.environ | {MARK: RUN + SWEEP},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == '{"stuck": []}\n'
    assert process.wait() < 0
    process.stdout.close()


def create_session(session: Path) -> Path:
    (session / "1" / "0").mkdir(parents=True)
    (session / "sm_segment.h2.0.1.0").write_bytes(b"of shared memory")
    return session


def test_the_session_of_a_daemon_that_is_gone_is_removed(tmp_path: Path) -> None:
    swept(create_session(tmp_path / f"ompi.{GONE}"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["ompi", "prted"])
def test_a_rank_that_is_gone_has_handed_its_session_on(tmp_path: Path, name: str) -> None:
    session = create_session(tmp_path / f"{name}.{GONE}")
    environment = os.environ | {MARK: RUN + SWEEP, SESSION: str(session)}
    words = [sys.executable, "-m", "pytest_ckpt.launching.host_sweep", "0"]
    subprocess.run(words, env=environment, capture_output=True, check=True)
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_is_gone_ends_nothing_of_the_next_launch(tmp_path: Path) -> None:
    """A sweep for one launch does not end processes of a later launch, which may already run on the same host."""
    waiting = [
        subprocess.Popen([sys.executable, "-c", WAITS], env=os.environ | {MARK: RUN, LAUNCH: launch},
                         stdout=subprocess.PIPE)
        for launch in ("first", "second")
    ]  # fmt: skip
    try:
        for process in waiting:
            assert process.stdout
            process.stdout.readline()
        words = [sys.executable, "-m", "pytest_ckpt.launching.host_sweep", "0"]
        environment = os.environ | {MARK: RUN + SWEEP, LAUNCH: "first"}
        subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, check=True)
        assert waiting[0].wait() < 0
        assert waiting[1].poll() is None
    finally:
        for process in waiting:
            process.kill()
            process.communicate()


def test_another_process_with_the_pid_of_a_daemon_is_not_ended(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE)
    try:
        swept(create_session(tmp_path / f"ompi.{other.pid}"))
        assert other.poll() is None
    finally:
        other.kill()
        other.communicate()
    assert list(tmp_path.iterdir()) == []


def test_the_session_of_a_scheduler_stays(tmp_path: Path) -> None:
    """A sweep does not remove a session directory of Slurm, because Slurm still uses the directory after the run."""
    session = create_session(tmp_path / "pmix.7.0")
    swept(session)
    assert (session / "1").exists()

"""A fixture for the end-to-end tests: a run that meets every required requirement."""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.end_to_end import SMALLEST, TORCH, Run, temporary_runner
from tests.support.machine import file_system_of


@pytest.fixture(scope="session")
def good(create_home: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A small run that meets all required requirements and writes every type of file.

    The run is made once, and all workers of pytest-xdist share it.
    """
    base = tmp_path_factory.getbasetemp()
    # If the home directories are not below ``base``, each worker process removes its own at its end.
    is_kept = "PYTEST_XDIST_WORKER" in os.environ and file_system_of(base) != "tmpfs"
    shared = (base.parent if is_kept else base) / "good.pickle"
    with shared.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not shared.exists():
            shared.write_bytes(pickle.dumps(_good_run(create_home("good"))))
    run: Run = pickle.loads(shared.read_bytes())
    return run


def _good_run(home: Path) -> Run:
    with temporary_runner(home) as opened:
        return opened.run(
            *SMALLEST,
            TORCH,
            "--junitxml=pytest.xml",
            "--benchmark-json=benchmark.json",
            environment={"KEY_OF_THE_USER": "not-for-the-report"},
            cluster=4,
        )

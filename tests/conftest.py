"""Fixtures of the project's tests: directories on a real disk, mounts, and end-to-end runs of pytest."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.end_to_end import Runner, temporary_runner
from tests.support.machine import Mounts, file_system_of, need

pytest_plugins = ["pytester", "tests.support.selection"]
# Three launchers share these modules of tests. Rewriting makes a failed assert show its values.
pytest.register_assert_rewrite("tests.support.hosts.fault_runs", "tests.support.hosts.delivery")


@pytest.fixture(scope="session", autouse=True)
def separate_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Use a temporary directory as the user's cache directory, in which runs store data for later runs."""
    with pytest.MonkeyPatch.context() as patch:
        # Without this, threads of numpy's library spin for 50 ms in each controller that starts.
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        # Tests start hundreds of processes. If this variable were set, each would compile every module again.
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield


@pytest.fixture(autouse=True)
def restored_signals() -> Iterator[None]:
    """Restore the handlers of SIGINT and SIGTERM after each test.

    A run in this process may leave both signals ignored, and later child processes would inherit the ignored signals.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def create_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """Return a function that creates an empty directory on a disk and returns its path.

    A tmpfs is not suitable, because its files are always in memory.
    """
    base, made = tmp_path_factory.getbasetemp(), None
    if file_system_of(base) == "tmpfs":
        need(
            file_system_of(Path("/var/tmp")) != "tmpfs",
            "neither pytest's temporary directory nor /var/tmp is on a disk",
        )
        base = made = Path(tempfile.mkdtemp(prefix="ckpt-tests-", dir="/var/tmp"))

    def make(name: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base))

    yield make
    if made:
        shutil.rmtree(made)


@pytest.fixture
def runner(create_home: Callable[[str], Path]) -> Iterator[Runner]:
    """Return an object that runs pytest end to end in a new directory."""
    with temporary_runner(create_home("run")) as opened:
        yield opened


@pytest.fixture
def run_pytest(pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    """Return a function that runs pytest with the given arguments in the directory of ``pytester``."""
    return Runner(pytester.path).pytest


@pytest.fixture
def mount(create_home: Callable[[str], Path]) -> Iterator[Mounts]:
    """Return a function that mounts a small file system: tmpfs, or another type on a loop device.

    All file systems are unmounted after the test.
    """
    mounts = Mounts(create_home)
    yield mounts
    mounts.unmount_all()

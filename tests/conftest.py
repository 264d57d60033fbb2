"""What several of the project's own tests share: directories on a real disk, mounts, the front door."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.front_door import FrontDoor, opened_door
from tests.support.machine import Mounts, file_system_of, need

pytest_plugins = ["pytester", "tests.support.selection"]
# Tests that three launchers share: a failure shows what was found.
pytest.register_assert_rewrite("tests.support.hosts.bad_luck", "tests.support.hosts.reached")


@pytest.fixture(scope="session", autouse=True)
def cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What runs keep for the next one is the tests' own, not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        # Threads of numpy's library spin for a twentieth of a second in each controller that starts.
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        # Hundreds of processes start; where this is set, each compiles every module again.
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield


@pytest.fixture(autouse=True)
def signals_given_back() -> Iterator[None]:
    """A run that is ended in this process ignores signals to its end; processes of later tests would inherit that."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def make_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """Return a function that makes an empty directory on a disk: memory is never cold."""
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
def door(make_home: Callable[[str], Path]) -> Iterator[FrontDoor]:
    """The front door of a test with runs of its own."""
    with opened_door(make_home("run")) as opened:
        yield opened


@pytest.fixture
def front_door(pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    """Return a function that runs pytest with the arguments that it is given, in the directory of ``pytester``."""
    return FrontDoor(pytester.path).pytest


@pytest.fixture
def mount(make_home: Callable[[str], Path]) -> Iterator[Mounts]:
    """Return a function that mounts a small file system of its own, ``tmpfs`` or on a loop device."""
    mounts = Mounts(make_home)
    yield mounts
    mounts.unmount_all()

"""What several of the project's own tests share: folders on a real disk, mounts, a pytest in a process of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import CHECKOUT
from tests.support.machine import Mounts, file_system_of, need

pytest_plugins = ["pytester"]

FrontDoor = Callable[..., pytest.RunResult]


@pytest.fixture(scope="session", autouse=True)
def cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What runs keep for the next one is the tests' own, not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def front_door(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> FrontDoor:
    """Run pytest as a user of the plugin does: in a process and a folder of its own, with this checkout's plugin."""
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))

    def run(*arguments: object) -> pytest.RunResult:
        words = ("-p", "pytest_ckpt.plugin.session_hooks", "-p", "no:cacheprovider", *map(str, arguments))
        return pytester.runpytest_subprocess(*words)

    return run


@pytest.fixture(scope="session")
def make_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """Return a function that makes an empty folder on a disk: memory is never cold."""
    base, made = tmp_path_factory.getbasetemp(), None
    if file_system_of(base) == "tmpfs":
        need(file_system_of(Path("/var/tmp")) != "tmpfs", "neither pytest's temporary folder nor /var/tmp is on a disk")
        base = made = Path(tempfile.mkdtemp(prefix="ckpt-tests-", dir="/var/tmp"))

    def make(name: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base))

    yield make
    if made:
        shutil.rmtree(made)


@pytest.fixture
def mount(make_home: Callable[[str], Path]) -> Iterator[Mounts]:
    """Return a function that mounts a small file system of its own, ``tmpfs`` or on a loop device."""
    mounts = Mounts(make_home)
    yield mounts
    mounts.unmount_all()

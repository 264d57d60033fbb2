"""What the end-to-end tests share: folders on a real disk, the front door, and one run that meets everything."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from front_door import SMALLEST, FrontDoor, Run, eventually, file_system_of, need, opened_door


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
def door(make_home: Callable[[str], Path]) -> Iterator[FrontDoor]:
    """The front door of a test with runs of its own."""
    with opened_door(make_home("run")) as opened:
        yield opened


@pytest.fixture(scope="session")
def good(make_home: Callable[[str], Path]) -> Run:
    """A small run that meets all that is required, with everything written that can be."""
    with opened_door(make_home("good")) as opened:
        return opened.run(
            *SMALLEST,
            "--junitxml=pytest.xml",
            "--benchmark-json=benchmark.json",
            environment={"KEY_OF_THE_USER": "not-for-the-report"},
        )


@pytest.fixture
def mount(make_home: Callable[[str], Path]) -> Iterator[Callable[..., Path]]:
    """Return a function that mounts a small file system of its own, ``tmpfs`` or on a loop device."""
    mounted: list[Path] = []

    def new(kind: str, mebibytes: int) -> Path:
        home = make_home(kind)
        point = home / "mounted"
        point.mkdir()
        if kind == "tmpfs":
            command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "ckpt-test", str(point)]
        else:
            image = home / "image"
            with image.open("wb") as file:
                file.truncate(mebibytes << 20)
            need(shutil.which(f"mkfs.{kind}"), f"there is no mkfs.{kind}")
            subprocess.run([f"mkfs.{kind}", "-q", str(image)], check=True)
            command = ["mount", "-o", "loop", str(image), str(point)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        need(done.returncode == 0, f"nothing can be mounted here: {done.stderr.strip()}")
        mounted.append(point)
        return point

    yield new
    for point in mounted:
        # A process that was killed lets go of its files a little after it has left the table of processes.
        eventually(functools.partial(_unmount, point), "it is unmounted")


def _unmount(point: Path) -> bool:
    return subprocess.run(["umount", str(point)], capture_output=True, check=False).returncode == 0

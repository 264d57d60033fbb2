"""The machine on which tests run: privileges, mounts, and timeouts that grow with load."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

_POLL_SECONDS = 0.01
_PATIENCE_SECONDS = 60.0
_MAXIMUM_PATIENT = 20.0

Found = TypeVar("Found")

_ON_CI = "PYTEST_CKPT_TESTS_ON_CI"
# If CI is set, pytest shows the complete difference of two values, which takes minutes for the content of a file.
if seen := os.environ.pop("CI", None):
    os.environ[_ON_CI] = seen


def need(condition: object, reason: str) -> None:
    """Skip the test if its condition is not met. On CI, fail, because all conditions are met there."""
    if condition:
        return
    if os.environ.get(_ON_CI) == "true":
        pytest.fail(f"this must be able to run on CI: {reason}")
    pytest.skip(reason)


def need_fuse() -> None:
    """Skip the test if FUSE is not available. On CI, fail, because it is available there."""
    need(os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK), "a FUSE mount needs root and /dev/fuse")


def patience(seconds: float) -> float:
    """Return a timeout for a test: ``seconds``, multiplied by the load per core if this exceeds 1.

    ``seconds`` must be sufficient on a machine with a core for each process. The result is not for limits of the
    product.
    """
    average, _, _, now, _ = Path("/proc/loadavg").read_text().split()
    # The averages over a minute and now, because an average does not show work that has just begun.
    busy = max(float(average), float(now.partition("/")[0])) / len(os.sched_getaffinity(0))
    return seconds * min(max(busy, 1.0), _MAXIMUM_PATIENT)


def eventually(condition: Callable[[], Found], what: str, seconds: float = _PATIENCE_SECONDS) -> Found:
    """Call ``condition`` until its result is true, and return the result.

    Fail after ``seconds``, or later if the machine is busy. ``what`` describes the condition.
    """
    began = time.monotonic()
    while True:
        if found := condition():
            return found
        took = time.monotonic() - began
        if took > seconds and took > patience(seconds):
            pytest.fail(f"after {took:.0f} s still not: {what}")
        time.sleep(_POLL_SECONDS)


def file_system_of(path: Path) -> str:
    """Return the type of the file system that contains a path."""
    output = subprocess.run(["stat", "-f", "-c", "%T", str(path)], capture_output=True, text=True, check=True)
    return output.stdout.strip()


class Mounts:
    """Creates small file systems for a test. ``make_home`` creates the directory of each, on a disk."""

    def __init__(self, make_home: Callable[[str], Path]) -> None:
        self._make_home = make_home
        self._points: list[Path] = []

    def __call__(self, kind: str, mebibytes: int, below: Path | None = None, options: str = "") -> Path:
        """Mount a new file system and return its mount point.

        A ``tmpfs`` is in memory. Any other kind is on a loop device, whose file is in ``below``, or by default in a
        directory of ``make_home``.
        """
        home = self._make_home(kind)
        point = home / "mounted"
        point.mkdir()
        if kind == "tmpfs":
            command = [
                "mount",
                "-t",
                "tmpfs",
                "-o",
                f"size={mebibytes}m,{options}".rstrip(","),
                "ckpt-test",
                str(point),
            ]
        else:
            image = (below or home) / "image"
            with image.open("wb") as file:
                file.truncate(mebibytes << 20)
            need(shutil.which(f"mkfs.{kind}"), f"there is no mkfs.{kind}")
            # mkfs.btrfs inspects all loop devices, and fails if another test's device disappears during this.
            eventually(functools.partial(_succeeds, f"mkfs.{kind}", "-q", str(image)), f"mkfs.{kind} makes {image}")
            command = ["mount", "-o", "loop", str(image), str(point)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        need(done.returncode == 0, f"nothing can be mounted here: {done.stderr.strip()}")
        self._points.append(point)
        return point

    def bind(self, directory: Path) -> Path:
        """Bind-mount a directory at a new place, and return this place."""
        point = self._make_home("bind") / "mounted"
        point.mkdir()
        done = subprocess.run(
            ["mount", "--bind", str(directory), str(point)], capture_output=True, text=True, check=False
        )
        need(done.returncode == 0, f"nothing can be mounted here: {done.stderr.strip()}")
        self._points.append(point)
        return point

    def unmount_all(self) -> None:
        """Unmount all file systems that this object has mounted."""
        for point in reversed(self._points):
            # A killed process closes its files slightly after it has left the process table.
            eventually(functools.partial(_unmounted, point), "it is unmounted")


@contextmanager
def frozen(point: Path) -> Iterator[None]:
    """Freeze a file system: during the block, every call that would change it waits in the kernel."""
    done = subprocess.run(["fsfreeze", "-f", str(point)], capture_output=True, text=True, check=False)
    need(done.returncode == 0, f"a file system cannot be frozen here: {done.stderr}")
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "-u", str(point)], check=True)


def _unmounted(point: Path) -> bool:
    return f" {point} " not in Path("/proc/mounts").read_text() or _succeeds("umount", str(point))


def _succeeds(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=_PATIENCE_SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def leave_mounts_of_others() -> None:
    """Unmount the inherited file systems on loop devices. This process must have a private mount namespace.

    As long as this process has copies of other tests' mounts, those tests cannot unmount their file systems or cut the
    power.
    """
    for line in Path("/proc/self/mounts").read_text().splitlines():
        source, point, *_ = line.split(" ")
        if source.startswith("/dev/loop"):
            # Spaces are written as octal escapes.
            path = point.encode().decode("unicode_escape")
            subprocess.run(["umount", "--lazy", path], capture_output=True, check=False)

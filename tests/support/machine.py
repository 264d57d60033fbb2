"""The machine on which tests run: privileges, mounts, and timeouts that increase with the machine's load."""

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
    """Skip the test if ``condition`` is false. On CI, fail, because CI must meet all conditions."""
    if condition:
        return
    if os.environ.get(_ON_CI) == "true":
        pytest.fail(f"this must be able to run on CI: {reason}")
    pytest.skip(reason)


def need_fuse() -> None:
    """Skip the test if FUSE is not available. On CI, fail."""
    need(os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK), "a FUSE mount needs root and /dev/fuse")


def patience(seconds: float) -> float:
    """Return a timeout for a test: ``seconds``, multiplied by the load per core if the load exceeds 1.

    The factor is at most 20. ``seconds`` must be sufficient if each process has a core. Do not use the result for
    limits of pytest-ckpt.
    """
    average, _, _, now, _ = Path("/proc/loadavg").read_text().split()
    # The averages over a minute and now, because an average does not show work that has just begun.
    busy = max(float(average), float(now.partition("/")[0])) / len(os.sched_getaffinity(0))
    return seconds * min(max(busy, 1.0), _MAXIMUM_PATIENT)


def eventually(condition: Callable[[], Found], what: str, seconds: float = _PATIENCE_SECONDS) -> Found:
    """Call ``condition`` until it returns a true value, and return the value.

    The test fails after ``seconds``, or later if the machine is busy. ``what`` describes the condition in the message.
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
    output = subprocess.run(["stat", "-f", "-c", "%T", str(path)], capture_output=True, text=True, check=True)
    return output.stdout.strip()


class Mounts:
    """Creates small file systems for a test. ``create_home`` creates a directory on a disk for each file system."""

    def __init__(self, create_home: Callable[[str], Path]) -> None:
        self._make_home = create_home
        self._points: list[Path] = []

    def __call__(self, kind: str, mebibytes: int, below: Path | None = None, options: str = "") -> Path:
        """Create and mount a file system of the type ``kind``; return its mount point.

        A ``tmpfs`` is in memory. Any other file system is on a loop device. The image of the device is in the directory
        ``below``, or by default in a directory from ``create_home``.
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
            make_file_system(f"mkfs.{kind}", "-q", str(image))
            command = ["mount", "-o", "loop", str(image), str(point)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        need(done.returncode == 0, f"nothing can be mounted here: {done.stderr.strip()}")
        self._points.append(point)
        return point

    def bind(self, directory: Path) -> Path:
        """Bind-mount a directory at a new path; return the path."""
        point = self._make_home("bind") / "mounted"
        point.mkdir()
        done = subprocess.run(
            ["mount", "--bind", str(directory), str(point)], capture_output=True, text=True, check=False
        )
        need(done.returncode == 0, f"nothing can be mounted here: {done.stderr.strip()}")
        self._points.append(point)
        return point

    def unmount_all(self) -> None:
        for point in reversed(self._points):
            # A killed process closes its files slightly after it has left the process table.
            eventually(functools.partial(_unmounted, point), "it is unmounted")


@contextmanager
def frozen(point: Path) -> Iterator[None]:
    """Freeze a file system until the block ends. Calls that would change the file system wait in the kernel."""
    done = subprocess.run(["fsfreeze", "-f", str(point)], capture_output=True, text=True, check=False)
    need(done.returncode == 0, f"a file system cannot be frozen here: {done.stderr}")
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "-u", str(point)], check=True)


def _unmounted(point: Path) -> bool:
    return f" {point} " not in Path("/proc/mounts").read_text() or _succeeds("umount", str(point))


def make_file_system(*command: str) -> None:
    """Run a mkfs command, whose last argument is the image, until it succeeds.

    mkfs.btrfs inspects all loop devices, and fails if another test's device disappears during this.
    """
    eventually(functools.partial(_succeeds, *command), f"{command[0]} makes {command[-1]}")


def _succeeds(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=_PATIENCE_SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def unmount_inherited() -> None:
    """Unmount inherited file systems on loop devices. Call it in a process with a private mount namespace.

    A new namespace contains copies of the mounts of other tests. The copies would keep the file systems in use after
    the other tests have unmounted them.
    """
    for line in Path("/proc/self/mounts").read_text().splitlines():
        source, point, *_ = line.split(" ")
        if source.startswith("/dev/loop"):
            # Spaces are written as octal escapes.
            path = point.encode().decode("unicode_escape")
            subprocess.run(["umount", "--lazy", path], capture_output=True, check=False)

"""A power cut of a loop device's file system: durable data remain, and other data are lost."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_ckpt.targets.posix.storage_stack import mount_of
from tests.support.machine import Mounts, eventually, need, patience

pytestmark = pytest.mark.usefixtures("as_root")


@pytest.fixture
def as_root() -> None:
    need(os.geteuid() == 0, "mounting takes root")


def command(point: Path) -> list[str]:
    return [sys.executable, "-m", "pytest_ckpt.targets.posix.power_cut", "--patience=300", str(point)]


def cut(point: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command(point), *more], capture_output=True, text=True, check=False)


def write(path: Path, data: bytes, *, durable: bool) -> None:
    with path.open("wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())


@pytest.mark.alone  # a test of a hook calls sync
@pytest.mark.parametrize("file_system", ["ext4", "xfs"])
def test_durable_data_remain_and_other_data_are_lost(mount: Mounts, file_system: str) -> None:
    point = mount(file_system, 400)
    # ext4 writes its journal every 5 s, which may be before the cut on a busy machine. XFS does so every 30 s.
    options = "remount,noatime,commit=300" if file_system == "ext4" else "remount,noatime"
    subprocess.run(["mount", "-o", options, str(point)], check=True)
    before = mount_of(point)
    write(point / "durable", b"a" * 100_000, durable=True)
    write(point / "only written", b"b" * 100_000, durable=False)
    for _ in range(2):
        done = cut(point)
        assert (done.returncode, done.stderr) == (0, "")
        assert mount_of(point) == before
        assert (point / "durable").read_bytes() == b"a" * 100_000
        assert not (point / "only written").exists()
    write(point / "only written", b"c", durable=True)


def test_only_a_mount_point_is_cut(mount: Mounts) -> None:
    point = mount("ext4", 64)
    (point / "directory").mkdir()
    done = cut(point / "directory")
    assert done.returncode == 4
    assert f"{point}/directory is not a mount point" in done.stderr
    assert "Traceback" not in done.stderr


def test_only_a_loop_device_is_cut(mount: Mounts) -> None:
    point = mount("tmpfs", 16)
    write(point / "file", b"a", durable=False)
    done = cut(point)
    assert done.returncode == 4
    assert f"{point} is not on a loop device but on ckpt-test (tmpfs)" in done.stderr
    assert (point / "file").exists()


def test_a_file_system_that_others_use_too_is_not_cut(mount: Mounts, tmp_path: Path) -> None:
    point = mount("ext4", 64)
    (point / "below").mkdir()
    write(point / "file", b"a", durable=False)
    for source, where, option in ((str(point), tmp_path, "--bind"), ("none", point / "below", "-ttmpfs")):
        subprocess.run(["mount", option, source, str(where)], check=True)
        done = cut(point)
        subprocess.run(["umount", str(where)], check=True)
        assert done.returncode == 4
        assert f"{point} is not the only mount" in done.stderr
        assert str(where) in done.stderr
    assert (point / "file").read_bytes() == b"a"
    write(point / "another", b"a", durable=True)


def test_a_process_that_prevents_the_unmount_is_named(mount: Mounts) -> None:
    point = mount("ext4", 64)
    holder = subprocess.Popen(["sleep", "1000"], cwd=point)
    try:
        done = cut(point, "--patience=1")
    finally:
        holder.kill()
        holder.wait()
    assert done.returncode == 4
    assert f"process {holder.pid} (sleep)" in done.stderr
    assert "is shut down, but cannot be unmounted" in done.stderr


@contextmanager
def another_namespace() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process whose mount namespace keeps the current mounts, even after an unmount here.

    Containers and browsers have such namespaces.
    """
    holder = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sleep", "1000"])
    own = Path("/proc/self/ns/mnt").readlink()
    try:
        eventually(lambda: Path(f"/proc/{holder.pid}/comm").read_text() == "sleep\n", "the holder sleeps")
        assert Path(f"/proc/{holder.pid}/ns/mnt").readlink() != own
        yield holder
    finally:
        # This must come before the last unmount: while the process lives, the loop device stays in use.
        holder.kill()
        holder.wait(patience(60))


def is_shut_down(point: Path) -> bool:
    try:
        directory = os.open(point, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        return error.errno == errno.EIO
    return False


@pytest.mark.parametrize("file_system", ["ext4", "xfs"])
def test_a_power_cut_ends_when_the_file_system_is_back_after_another_namespace_held_it(
    mount: Mounts, file_system: str
) -> None:
    point = mount(file_system, 400)
    write(point / "durable", b"a" * 100_000, durable=True)
    with another_namespace() as holder, subprocess.Popen(command(point), stderr=subprocess.PIPE) as cutting:
        # Until the other process ends, the old file system stays mounted and shut down.
        eventually(lambda: is_shut_down(point), "the power is cut")
        assert cutting.poll() is None
        holder.kill()
        _, output = cutting.communicate(timeout=patience(60))
    assert (cutting.returncode, output) == (0, b"")
    assert not is_shut_down(point)
    assert (point / "durable").read_bytes() == b"a" * 100_000
    write(point / "another", b"c", durable=True)


@pytest.mark.thorough
def test_a_file_system_that_another_namespace_keeps_shut_down_is_reported(mount: Mounts) -> None:
    point = mount("ext4", 64)
    with another_namespace():
        done = cut(point, "--patience=1")
        assert is_shut_down(point)
    assert done.returncode == 4
    assert "still shut down: a process in another mount namespace uses it" in done.stderr
    assert cut(point).returncode == 0
    assert not is_shut_down(point)

"""Cutting the power of a loop device's file system: what was made durable stays, the rest is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_ckpt.targets.posix.mounts import mount_of
from tests.support.machine import Mounts, need

pytestmark = pytest.mark.usefixtures("as_root")


@pytest.fixture
def as_root() -> None:
    need(os.geteuid() == 0, "mounting takes root")


def cut(point: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest_ckpt.targets.posix.power_cut", str(point)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def write(path: Path, data: bytes, *, durable: bool) -> None:
    with path.open("wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())


@pytest.mark.parametrize("file_system", ["ext4", "xfs"])
def test_what_is_durable_stays_and_the_rest_is_gone(mount: Mounts, file_system: str) -> None:
    point = mount(file_system, 400)
    subprocess.run(["mount", "-o", "remount,noatime", str(point)], check=True)
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
    (point / "folder").mkdir()
    done = cut(point / "folder")
    assert done.returncode == 4
    assert f"{point}/folder is not a mount point" in done.stderr
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
        assert f"{point} is not alone" in done.stderr
        assert str(where) in done.stderr
    assert (point / "file").read_bytes() == b"a"
    write(point / "another", b"a", durable=True)


def test_who_keeps_it_from_being_unmounted_is_named(mount: Mounts) -> None:
    point = mount("ext4", 64)
    holder = subprocess.Popen(["sleep", "1000"], cwd=point)
    try:
        done = cut(point)
    finally:
        holder.kill()
        holder.wait()
    assert done.returncode == 4
    assert f"process {holder.pid} (sleep)" in done.stderr
    assert "is shut down, but cannot be unmounted" in done.stderr

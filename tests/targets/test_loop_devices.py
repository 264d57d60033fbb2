"""Real file systems on loop devices fail as described by their methods, and leave no mounts or devices."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.machine import eventually, need
from tests.support.targets.loop_devices import loop_mount, memory_mount, throttle
from tests.support.targets.misbehaving import misbehaving
from tests.support.targets.synced import sync_directory, write

CONTENT = os.urandom(3_000_000)


@pytest.fixture
def home(create_home):
    need(os.geteuid() == 0 and Path("/dev/loop-control").exists(), "loop devices need root and /dev/loop-control")
    return create_home("loop")


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_each_kind_is_mounted_and_leaves_nothing(home, kind):
    need(shutil.which(f"mkfs.{kind}"), f"there is no mkfs.{kind}")
    with loop_mount(home, kind) as mount:
        device = mount.device
        write(mount.path / "file", CONTENT, sync=True)
        assert (mount.path / "file").read_bytes() == CONTENT
        assert f"{device} {mount.path} {kind}" in Path("/proc/mounts").read_text()
    assert str(home) not in Path("/proc/mounts").read_text()
    # A mount namespace of another test may hold a copy of the mount for a while.
    eventually(lambda: str(home) not in loop_devices(), "the loop device is free")
    assert list(home.iterdir()) == []


def loop_devices() -> str:
    return subprocess.run(["losetup", "-l"], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_power_cut_keeps_what_was_fsynced_and_takes_the_rest(home, kind):
    need(shutil.which(f"mkfs.{kind}"), f"there is no mkfs.{kind}")
    with loop_mount(home, kind) as mount:
        for _ in range(3):
            write(mount.path / "tmp", CONTENT, sync=True)
            os.rename(mount.path / "tmp", mount.path / "kept")
            sync_directory(mount.path)
            write(mount.path / "lost", CONTENT, sync=False)
            mount.power_cut()
            assert (mount.path / "kept").read_bytes() == CONTENT
            assert not (mount.path / "lost").exists() or (mount.path / "lost").read_bytes() != CONTENT


def test_a_drive_that_lies_about_flush_loses_what_was_fsynced(home):
    """A file system on a drive that ignores flush requests loses fsynced data in a power cut.

    The drive is a loop device whose image file is on the FUSE target.
    """
    for fault, survives in ((None, True), ("fsync of files is lost", False)):
        with misbehaving(home) as liar, loop_mount(home, "ext4", 64, image=liar.path / "image") as mount:
            subprocess.run(["sync", "--file-system", str(mount.path)], check=True)
            false_sync(liar.path / "image")
            if fault:
                liar.fault(fault)
            write(mount.path / "file", CONTENT, sync=True)
            sync_directory(mount.path)
            mount.shut_down()
            mount.detach()
            liar.power_cut()
            mount.attach()
            assert ((mount.path / "file").exists() and (mount.path / "file").read_bytes() == CONTENT) == survives
            if fault:
                assert liar.hits(fault)


def false_sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def test_a_quota_of_btrfs_is_an_error_of_its_own(home):
    need(shutil.which("mkfs.btrfs"), "there is no mkfs.btrfs")
    with loop_mount(home, "btrfs") as mount:
        mount.limit(4 << 20)
        with pytest.raises(OSError, match="quota") as raised:
            write(mount.path / "file", bytes(20 << 20), sync=True)
        assert raised.value.errno == errno.EDQUOT


def test_a_file_system_that_became_read_only(home):
    with loop_mount(home, mebibytes=64) as mount:
        write(mount.path / "file", CONTENT, sync=True)
        mount.read_only()
        with pytest.raises(OSError, match="Read-only"):
            write(mount.path / "other", CONTENT, sync=True)
        assert (mount.path / "file").read_bytes() == CONTENT


def test_a_memory_that_is_full(home):
    with memory_mount(home, 4) as path:
        with pytest.raises(OSError, match="No space left"):
            write(path / "file", bytes(5 << 20), sync=True)
        (path / "file").unlink()
        write(path / "file", CONTENT, sync=True)
    assert str(home) not in Path("/proc/mounts").read_text()


def test_a_throttled_process_waits_for_the_device(home):
    need(os.access("/sys/fs/cgroup", os.W_OK), "a throttle needs cgroups that can be written")
    program = """if True:
        import mmap, os, sys, time
        input()
        fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        begin = time.monotonic()
        for _ in range(4):
            os.write(fd, mmap.mmap(-1, 1 << 20))
        print(time.monotonic() - begin)
    """
    with loop_mount(home, mebibytes=64) as mount, throttle() as slow:
        slow.limit(mount.path, 8 << 20)
        words = [sys.executable, "-I", "-S", "-c", program, str(mount.path / "file")]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            slow.add(process.pid)
            seconds = float(process.communicate("go\n")[0])
        assert seconds >= 0.4  # 4 MiB at 8 MiB/s, less the burst at the start

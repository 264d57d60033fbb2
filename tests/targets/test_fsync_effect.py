"""The effect of fsync is measured by the kernel's count of dirty pages, or else by the device's written sectors."""

from __future__ import annotations

import errno
import os
import subprocess

import pytest

from pytest_ckpt.targets.posix import fsync_effect
from pytest_ckpt.targets.posix.fsync_effect import fsync_counts
from pytest_ckpt.targets.posix.storage_stack import Mount
from tests.support.machine import need

CANARY_BYTES = 128 << 10


@pytest.fixture
def directory(create_home):
    return create_home("fsync")


@pytest.fixture
def no_cachestat(monkeypatch):
    """Simulate an older kernel without cachestat."""

    def refuse(_descriptor):
        raise OSError(errno.ENOSYS, "no cachestat")

    monkeypatch.setattr(fsync_effect, "page_counts", refuse)


class Device:
    """Fake counters of the device of a directory. Each fsync adds ``by_fsync`` written sectors."""

    def __init__(self, root, directory, monkeypatch):
        number = os.stat(directory).st_dev
        self.stat = root / f"{os.major(number)}:{os.minor(number)}" / "stat"
        self.stat.parent.mkdir(parents=True)
        self.sectors, self.by_fsync = 1000, 0
        self.write()
        monkeypatch.setattr(os, "fsync", self.fsync)

    def write(self):
        self.stat.write_text(f"  1 2 3 4 5 6 {self.sectors} 8 9\n")

    def fsync(self, _descriptor):
        self.sectors += self.by_fsync
        self.write()


@pytest.mark.parametrize(("sectors", "left"), [
    (CANARY_BYTES // 512, 0),
    (CANARY_BYTES // 512 + 8, 0),  # the journal, or another process
    (CANARY_BYTES // 512 - 8, 4096),
    (0, CANARY_BYTES),
])  # fmt: skip
def test_without_cachestat_what_the_device_wrote_counts(tmp_path, directory, no_cachestat, monkeypatch, sectors, left):
    device = Device(tmp_path / "devices", directory, monkeypatch)
    device.by_fsync = sectors
    counts = fsync_counts(directory, devices=tmp_path / "devices")
    assert (counts.counter, counts.dirty_bytes, counts.left_bytes) == ("device counters", CANARY_BYTES, left)
    assert counts.unobservable == ""
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("text", [None, "", "1 2 3", "a b c d e f g h"])
def test_without_cachestat_and_without_counters_nothing_is_seen(tmp_path, directory, no_cachestat, monkeypatch, text):
    if text is not None:
        device = Device(tmp_path / "devices", directory, monkeypatch)
        device.stat.write_text(text)
        monkeypatch.setattr(os, "fsync", lambda _: None)
    counts = fsync_counts(directory, devices=tmp_path / "devices")
    assert "the kernel has no cachestat(2)" in counts.unobservable
    assert counts.left_bytes == 0


def test_another_error_of_the_count_is_an_error_and_leaves_no_file(directory, monkeypatch):
    def fail(_descriptor):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(fsync_effect, "page_counts", fail)
    with pytest.raises(OSError, match="broken"):
        fsync_counts(directory)
    assert list(directory.iterdir()) == []


def test_fsync_on_a_disk_leaves_nothing_and_no_fsync_leaves_all(directory, monkeypatch):
    counts = fsync_counts(directory)
    need(counts.counter == "cachestat", "the kernel has no cachestat(2)")
    assert (counts.left_bytes, counts.unobservable, counts.unsafe_option) == (0, "", "")
    assert 0 < counts.dirty_bytes <= CANARY_BYTES
    monkeypatch.setattr(os, "fsync", lambda _: None)
    # The kernel may write pages back by itself in between, but not five times.
    assert any(fsync_counts(directory).left_bytes > 0 for _ in range(5))


def test_memory_shows_no_effect(mount):
    counts = fsync_counts(mount("tmpfs", 16))
    assert "no dirty page" in counts.unobservable or "no separate block device" in counts.unobservable


def test_an_option_of_the_mount_that_takes_fsync_its_effect_is_kept(directory, monkeypatch):
    options = "rw,relatime,nobarrier,data=ordered"
    monkeypatch.setattr(
        fsync_effect,
        "mount_of",
        lambda _: Mount(mount_point="/", file_system="ext4", source="/dev/sda", options=options),
    )
    assert fsync_counts(directory).unsafe_option == "nobarrier"


@pytest.fixture
def overlay(mount, create_home):
    """Return a function that mounts an overlay file system and returns its mount point.

    The first argument of the function is the file system of the layers, such as ext4.
    """
    mounted = []

    def make(kind, mebibytes, option=""):
        below, point = mount(kind, mebibytes), create_home("overlay")
        for name in ("lower", "upper", "work"):
            (below / name).mkdir()
        layers = f"lowerdir={below}/lower,upperdir={below}/upper,workdir={below}/work{option}"
        made = subprocess.run(["mount", "-t", "overlay", "-o", layers, "overlay", point], check=False)
        need(made.returncode == 0, "this kernel mounts no such overlay")
        mounted.append(point)
        return point

    yield make
    for point in mounted:
        subprocess.run(["umount", point], check=True)


@pytest.mark.parametrize(("option", "is_volatile"), [("", False), (",volatile", True)])
def test_an_overlay_is_counted_in_its_upper_directory(overlay, option, is_volatile):
    counts = fsync_counts(overlay("ext4", 64, option))
    need(counts.counter == "cachestat" and not counts.unobservable, "the kernel counts no pages here")
    assert ("volatile" in counts.unsafe_option, counts.left_bytes > 0) == (is_volatile, is_volatile)


def test_a_volatile_overlay_whose_pages_cannot_be_counted_is_known_by_its_option(overlay):
    counts = fsync_counts(overlay("tmpfs", 16, ",volatile"))
    assert "volatile" in counts.unsafe_option
    assert (bool(counts.unobservable), counts.left_bytes) == (True, 0)

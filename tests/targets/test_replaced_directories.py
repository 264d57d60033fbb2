"""A replaced run directory is detected by its mount, its inode number, and its owner file."""

from __future__ import annotations

import subprocess

import pytest

from pytest_ckpt.targets.posix.run_directory import describe_change, directory_identity
from tests.support.machine import need


@pytest.mark.parametrize("kind", ["ext4", "btrfs"])
def test_a_copy_of_the_image_that_is_mounted_over_the_target_is_another_directory(mount, create_home, kind):
    target = mount(kind, 128)
    directory = target / "run"
    directory.mkdir()
    before = directory_identity(directory)
    subprocess.run(["sync", "-f", str(directory)], check=True)
    image, copy = target.parent / "image", create_home("copy") / "image"
    subprocess.run(["cp", "--sparse=always", str(image), str(copy)], check=True)
    if kind == "btrfs":
        # The kernel refuses two file systems with one UUID, so the copy gets another one.
        subprocess.run(["btrfstune", "-f", "-u", str(copy)], check=True, capture_output=True)
    done = subprocess.run(["mount", "-o", "loop", str(copy), str(target)], capture_output=True, text=True, check=False)
    need(done.returncode == 0, f"nothing can be mounted here: {done.stderr}")
    try:
        now = directory_identity(directory)
        assert now.number == before.number
        assert str(copy) in describe_change(before, now)
    finally:
        subprocess.run(["umount", str(target)], check=True)


def test_a_mount_inside_the_directory_is_named(tmp_path, mount):
    directory, other = tmp_path / "run", mount("tmpfs", 1)
    (directory / "subject").mkdir(parents=True)
    before = directory_identity(directory)
    assert describe_change(before, directory_identity(directory)) == ""
    subprocess.run(["mount", "--bind", str(other), str(directory / "subject")], check=True)
    try:
        changed = describe_change(before, directory_identity(directory))
        assert f"with {directory}/subject (tmpfs of ckpt-test) mounted in it" in changed
    finally:
        subprocess.run(["umount", str(directory / "subject")], check=True)


def test_an_image_that_is_mounted_again_by_another_loop_device_is_the_same_directory(mount):
    target = mount("ext4", 64)
    (target / "run").mkdir()
    before = directory_identity(target / "run")
    image = target.parent / "image"
    subprocess.run(["umount", str(target)], check=True)
    # The first free device may be the one used before. This command occupies it.
    other = subprocess.run(
        ["losetup", "-f", "--show", str(image.parent / "image")], capture_output=True, text=True, check=True
    )
    try:
        subprocess.run(["mount", "-o", "loop", str(image), str(target)], check=True)
        assert describe_change(before, directory_identity(target / "run")) == ""
    finally:
        subprocess.run(["losetup", "-d", other.stdout.strip()], check=True)

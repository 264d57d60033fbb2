"""The kernel's table of mounts, read as the kernel means it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.targets.posix.storage_stack import mount_of

TABLE = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
23 22 0:21 / /proc rw,nosuid - proc proc rw
30 22 0:40 / /mnt rw,relatime shared:2 - tmpfs none rw,size=1024k
31 30 0:41 / /mnt/array rw,noatime shared:3 master:2 - nfs4 filer:/export rw,vers=4.2,hard
32 30 0:42 / /mnt/my\040array rw - lustre 10.0.0.1@tcp:/fs\0431 rw,flock
33 30 0:43 /sub /mnt/sub ro,relatime - xfs /dev/sdb1 rw,noquota
""".lstrip()  # fmt: skip


@pytest.mark.parametrize(
    ("path", "point", "kind"),
    [
        ("/", "/", "ext4"),
        ("/home/user", "/", "ext4"),
        ("/mnt", "/mnt", "tmpfs"),
        ("/mnt/array", "/mnt/array", "nfs4"),
        ("/mnt/array/deep/er", "/mnt/array", "nfs4"),
        ("/mnt/array2", "/mnt", "tmpfs"),
        ("/mnt/arra", "/mnt", "tmpfs"),
        ("/mnt/my array/x", "/mnt/my array", "lustre"),
        ("/mntx", "/", "ext4"),
    ],
)
def test_the_longest_mount_point_above_a_path_is_its_mount(path, point, kind):
    mount = mount_of(Path(path), TABLE)
    assert (mount.mount_point, mount.file_system) == (point, kind)


def test_options_of_the_mount_and_of_the_file_system_are_joined_without_repeats():
    assert mount_of(Path("/mnt/array"), TABLE).options == "rw,noatime,vers=4.2,hard"
    assert mount_of(Path("/mnt/sub"), TABLE).options == "ro,relatime,rw,noquota"


def test_any_number_of_optional_fields_is_skipped():
    assert mount_of(Path("/mnt/array"), TABLE).source == "filer:/export"
    assert mount_of(Path("/mnt/my array"), TABLE).source == "10.0.0.1@tcp:/fs#1"


def test_of_two_mounts_on_one_point_the_later_is_seen():
    over = TABLE + "40 30 0:50 / /mnt/array rw - beegfs storage rw\n"
    assert mount_of(Path("/mnt/array/x"), over).file_system == "beegfs"


def test_a_mount_on_a_parent_that_came_later_does_not_win_over_a_longer_point():
    over = TABLE + "41 22 0:51 / / rw - overlay overlay rw\n"
    assert mount_of(Path("/mnt/array/x"), over).file_system == "nfs4"
    assert mount_of(Path("/etc"), over).file_system == "overlay"


def escaped(text):
    """What the kernel makes of a name in the table."""
    return "".join(f"\\{ord(c):03o}" if c in " \t\n\\#" else c for c in text)


names = st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=12).filter(lambda n: n not in {".", ".."})


@given(name=names, source=names)
def test_every_name_survives_the_table(name, source):
    table = TABLE + f"50 22 0:60 / /{escaped(name)} rw - fuse.x {escaped(source)} rw\n"
    mount = mount_of(Path("/", name, "file"), table)
    assert (mount.mount_point, mount.source, mount.file_system) == (f"/{name}", source, "fuse.x")
    assert mount_of(Path("/mnt/array"), table).file_system == "nfs4"


@pytest.mark.parametrize(("kind", "local"), [("ext4", True), ("xfs", True), ("tmpfs", True), ("overlay", True),
                                             ("nfs", False), ("nfs4", False), ("lustre", False), ("fuse.sshfs", False),
                                             ("gpfs", False), ("cifs", False), ("ceph", False), ("9p", False),
                                             ("something-new", False)])  # fmt: skip
def test_what_is_not_known_to_be_local_counts_as_shared(kind, local):
    assert mount_of(Path("/"), f"1 0 8:1 / / rw - {kind} x rw\n").is_local is local


def test_without_any_mount_nothing_is_known_and_it_is_not_called_local():
    mount = mount_of(Path("/x"), "")
    assert (mount.file_system, mount.is_local) == ("unknown", False)


def test_this_machine_has_a_table():
    assert mount_of(Path("/proc/self")).file_system == "proc"

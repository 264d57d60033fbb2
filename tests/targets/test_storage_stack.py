"""The storage stack below a target, from fake /sys trees and mount tables, and from real mounts of this machine."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.targets.posix.page_cache import (
    FileBelow,
    evict,
    find_cache_probe_for_all_files,
    inspect_storage,
    resident_bytes,
)
from pytest_ckpt.targets.posix.storage_stack import ignores_fsync, mount_of, storage_stack

TABLE = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
23 22 0:21 / /proc rw,nosuid - proc proc rw
30 22 0:40 / /mnt rw,relatime shared:2 - tmpfs none rw,size=1024k
31 30 0:41 / /mnt/array rw,noatime shared:3 master:2 - nfs4 filer:/export rw,vers=4.2,hard
32 30 0:42 / /mnt/my\040array rw - lustre 10.0.0.1@tcp:/fs\0431 rw,flock
33 30 0:43 /sub /mnt/sub ro,relatime - xfs /dev/sdb1 rw,noquota
""".lstrip()  # fmt: skip

names = st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=12).filter(lambda n: n not in {".", ".."})

BYTES = 8 << 20
LINE = "{number} 1 {device} / {point} rw - {kind} {source} {options}\n"

ZPOOL = """tank\t29G\t1G\t28G\t-\t-\t0%\t3%\t1.00x\tONLINE\t-
\tmirror-0\t29G\t1G\t28G\t-\t-\t0%\t3%\t-\tONLINE
\t/dev/sda1\t30G\t-\t-\t-\t-\t-\t-\t-\tONLINE
\t/dev/zram0\t30G\t-\t-\t-\t-\t-\t-\t-\tONLINE
"""


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


def test_the_later_of_two_mounts_on_one_point_counts():
    over = TABLE + "40 30 0:50 / /mnt/array rw - beegfs storage rw\n"
    assert mount_of(Path("/mnt/array/x"), over).file_system == "beegfs"


def test_a_mount_on_a_parent_that_came_later_does_not_win_over_a_longer_point():
    over = TABLE + "41 22 0:51 / / rw - overlay overlay rw\n"
    assert mount_of(Path("/mnt/array/x"), over).file_system == "nfs4"
    assert mount_of(Path("/etc"), over).file_system == "overlay"


def escaped(text):
    """Escape special characters of a name as in the kernel's mount table."""
    return "".join(f"\\{ord(c):03o}" if c in " \t\n\\#" else c for c in text)


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
def test_an_unknown_file_system_counts_as_shared(kind, local):
    assert mount_of(Path("/"), f"1 0 8:1 / / rw - {kind} x rw\n").is_local is local


def test_without_any_mount_nothing_is_known_and_it_is_not_called_local():
    mount = mount_of(Path("/x"), "")
    assert (mount.file_system, mount.is_local) == ("unknown", False)


def test_this_machine_has_a_table():
    assert mount_of(Path("/proc/self")).file_system == "proc"


class Tree:
    """A fake /sys tree and a fake mount table."""

    def __init__(self, root: Path) -> None:
        self.root, self.mounts = root, ""

    def mount(self, point: str, kind: str, source: str = "none", device: str = "0:99", options: str = "rw") -> None:
        self.mounts += LINE.format(
            number=30 + len(self.mounts), device=device, point=point, kind=kind, source=source, options=options
        )

    def device(self, name: str, number: str, **files: str) -> Path:
        directory = self.root / "sys/devices" / name
        directory.mkdir(parents=True)
        for file, text in files.items():
            place = directory / file.replace("__", "/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text + "\n")
        by_number = self.root / "sys/dev/block" / number
        by_number.parent.mkdir(parents=True, exist_ok=True)
        by_number.symlink_to(directory)
        by_name = self.root / "sys/class/block" / directory.name
        by_name.parent.mkdir(parents=True, exist_ok=True)
        by_name.symlink_to(directory)
        return directory

    def above(self, upper: Path, *lower: Path) -> None:
        (upper / "slaves").mkdir()
        for device in lower:
            (upper / "slaves" / device.name).symlink_to(device)

    def sentence(self, path: str) -> str:
        return storage_stack(Path(path), root=self.root, mounts=self.mounts).sentence


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_partition_of_a_disk(tree):
    tree.mount("/a", "ext4", "/dev/sda1", "8:1")
    tree.device("sda/sda1", "8:1", partition="1")
    assert tree.sentence("/a/b") == "ext4 on /dev/sda1"


def test_a_virtual_disk_ends_in_a_hypervisor(tree):
    tree.mount("/a", "xfs", "/dev/sdb", "8:16")
    tree.device("sdb", "8:16", device__vendor="QEMU")
    assert tree.sentence("/a") == "xfs on /dev/sdb (virtual disk: the cache of its hypervisor is not visible)"


def test_every_part_of_a_mapped_device_is_walked(tree):
    tree.mount("/a", "xfs", "/dev/mapper/data", "253:0")
    mapped = tree.device("dm-0", "253:0", dm__name="data")
    tree.above(mapped, tree.device("sda", "8:0"), tree.device("zram0", "252:0"))
    stack = storage_stack(Path("/a"), root=tree.root, mounts=tree.mounts)
    assert stack.sentence == "xfs on /dev/mapper/data on /dev/sda and /dev/zram0 (memory of this host)"
    assert stack.memory == ("/dev/zram0 (memory of this host)",)


def test_a_partition_of_a_raid_is_on_the_disks_of_the_raid(tree):
    tree.mount("/a", "xfs", "/dev/md0p1", "259:0")
    raid = tree.device("md0", "9:0")
    tree.device("md0/md0p1", "259:0", partition="1")
    tree.above(raid, tree.device("sda", "8:0"), tree.device("zram0", "252:0"))
    stack = storage_stack(Path("/a"), root=tree.root, mounts=tree.mounts)
    assert stack.sentence == "xfs on /dev/md0p1 on /dev/sda and /dev/zram0 (memory of this host)"
    assert stack.memory == ("/dev/zram0 (memory of this host)",)


@pytest.mark.parametrize("name", ["zram3", "ram0", "nullb0"])
def test_devices_in_memory(tree, name):
    tree.mount("/a", "ext4", f"/dev/{name}", "1:0")
    tree.device(name, "1:0")
    assert storage_stack(Path("/a"), root=tree.root, mounts=tree.mounts).memory


def test_a_file_in_memory_below_a_loop_device(tree, tmp_path):
    image = tmp_path / "memory" / "image"
    image.parent.mkdir()
    image.touch()
    tree.mount("/a", "ext4", "/dev/loop7", "7:7")
    tree.mount(str(image.parent), "tmpfs")
    tree.device("loop7", "7:7", loop__backing_file=str(image))
    stack = storage_stack(Path("/a"), root=tree.root, mounts=tree.mounts)
    assert stack.sentence == f"ext4 on /dev/loop7 on the file {image} on tmpfs (memory of this host)"
    assert stack.files == (str(image),)
    assert stack.memory == ("tmpfs (memory of this host)",)


def test_a_file_that_is_gone_is_not_followed(tree):
    tree.mount("/a", "ext4", "/dev/loop7", "7:7")
    tree.device("loop7", "7:7", loop__backing_file="/image (deleted)")
    assert tree.sentence("/a").endswith("on the file /image on a file system that is not visible here")


def test_an_overlay_is_its_upper_directory(tree, tmp_path):
    upper = tmp_path / "upper"
    upper.mkdir()
    tree.mount("/a", "overlay", "overlay", options=f"rw,lowerdir=/l,upperdir={upper},workdir=/w")
    tree.mount(str(upper), "tmpfs")
    assert tree.sentence("/a") == "overlay on tmpfs (memory of this host)"


def test_an_overlay_of_another_mount_namespace(tree):
    tree.mount("/a", "overlay", "overlay", options="rw,upperdir=/is/not/here")
    assert tree.sentence("/a") == "overlay on an upper directory that is not visible here"


def test_btrfs_names_all_of_its_devices(tree):
    tree.mount("/a", "btrfs", "/dev/sdb", "0:40")
    devices = tree.root / "sys/fs/btrfs/0a/devices"
    devices.mkdir(parents=True)
    for name, number in (("sdb", "8:16"), ("zram0", "252:0")):
        (devices / name).symlink_to(tree.device(name, number))
    assert tree.sentence("/a") == "btrfs on /dev/sdb and /dev/zram0 (memory of this host)"


def test_a_pool_of_zfs_is_walked_by_its_own_command(tree):
    tree.mount("/t", "zfs", "tank/checkpoints")
    tree.device("sda/sda1", "8:1", partition="1")
    tree.device("zram0", "253:0")
    asked = []
    stack = storage_stack(
        Path("/t/run"), root=tree.root, mounts=tree.mounts, run_command=lambda words: asked.append(words) or ZPOOL
    )
    assert stack.memory
    assert [layer.text for layer in stack.layers] == [
        "zfs tank/checkpoints", "/dev/sda1", "/dev/zram0 (memory of this host)"
    ]  # fmt: skip
    assert asked[0][-1] == "tank"
    silent = storage_stack(Path("/t/run"), root=tree.root, mounts=tree.mounts, run_command=lambda _words: "")
    assert silent.layers[-1].text == "devices of a pool that the kernel does not name"


@pytest.mark.parametrize(("told", "ignored"), [("disabled\n", True), ("standard\n", False), ("", False)])
def test_a_dataset_that_ignores_fsync(told, ignored):
    assert (
        ignores_fsync("tank/checkpoints", lambda words: told if words[-2:] == ("sync", "tank/checkpoints") else "")
        is ignored
    )


def test_a_cache_on_a_disk_of_the_client_blinds_the_count(tree):
    tree.mount("/a", "nfs4", "array:/export", options="rw,fsc")
    stack = storage_stack(Path("/a"), root=tree.root, mounts=tree.mounts)
    assert stack.sentence == "nfs4 of array:/export"
    assert stack.blind == ("nfs4 is mounted with 'fsc': a disk of this host caches reads",)


@pytest.mark.parametrize("datasets", ["", "/mnt/nvme:\n  rwid: 2\n  flags: 3f\n"])
def test_a_cache_of_lustre_on_a_disk_of_the_client_blinds_the_count(tree, datasets):
    tree.mount("/a", "lustre", "mgs@tcp:/scratch")
    listed = tree.root / "sys/kernel/debug/lustre/llite/scratch-ffff8881/pcc"
    listed.parent.mkdir(parents=True)
    listed.write_text(datasets)
    blind = storage_stack(Path("/a"), root=tree.root, mounts=tree.mounts).blind
    assert blind == (("a disk of this host caches files of Lustre (persistent client cache)",) if datasets else ())


def test_a_file_on_a_mount_that_a_process_serves(tree, tmp_path):
    image = tmp_path / "served" / "image"
    image.parent.mkdir()
    image.touch()
    tree.mount("/a", "ext4", "/dev/loop7", "7:7")
    tree.mount(str(image.parent), "fuse.sshfs", "array:/images")
    tree.device("loop7", "7:7", loop__backing_file=str(image))
    stack = storage_stack(Path("/a"), root=tree.root, mounts=tree.mounts)
    assert stack.processes == ("fuse.sshfs of array:/images",)


def test_a_process_that_keeps_its_files_in_a_directory_here(tree, tmp_path):
    tree.mount("/a", "fuse.gocryptfs", str(tmp_path))
    tree.mount(str(tmp_path), "tmpfs")
    assert tree.sentence("/a") == f"fuse.gocryptfs of {tmp_path} on tmpfs (memory of this host)"


@pytest.mark.alone  # other tests drop the page cache of this machine
@pytest.mark.parametrize(("kind", "mebibytes"), [("ext4", 64), ("btrfs", 128)])
def test_both_cached_copies_of_data_on_a_loop_device_are_counted_and_dropped(mount, kind, mebibytes):
    """Data on a loop device are cached twice: as pages of the file, and as pages of the device's image file.

    The pages of both files are counted and dropped.
    """
    point = mount(kind, mebibytes)
    stack = inspect_storage(point)
    assert stack.files == (str(point.parent / "image"),)
    assert stack.blind == ()
    file = point / "file"
    with file.open("wb") as written:
        written.write(os.urandom(BYTES))
        os.fsync(written.fileno())
    evict([file])
    below = FileBelow(stack)
    assert resident_bytes(file, "cachestat")[0] == 0
    assert below.cached_bytes([(file, BYTES)]) > 0
    below.evict()
    assert below.cached_bytes([(file, BYTES)]) < BYTES
    file.read_bytes()
    assert below.cached_bytes([(file, BYTES)]) == BYTES
    assert find_cache_probe_for_all_files(point) == "cachestat"


def test_a_loop_device_with_direct_io_leaves_nothing_in_the_cache_below(mount):
    point = mount("ext4", 64)
    device = subprocess.run(
        ["findmnt", "-n", "-o", "SOURCE", "--mountpoint", point], capture_output=True, text=True, check=True
    ).stdout.strip()
    if subprocess.run(["losetup", "--direct-io=on", device], check=False, capture_output=True).returncode:
        pytest.skip("this kernel cannot read that file around the page cache")
    assert find_cache_probe_for_all_files(point) == "cachestat"


def test_an_overlay_is_counted_by_another_call_than_the_file_below_it(mount, create_home):
    below, point = mount("ext4", 64), create_home("overlay")
    for directory in ("lower", "upper", "work"):
        (below / directory).mkdir()
    layers = f"lowerdir={below}/lower,upperdir={below}/upper,workdir={below}/work"
    subprocess.run(["mount", "-t", "overlay", "-o", layers, "overlay", point], check=True)
    try:
        assert inspect_storage(point).files == (str(below.parent / "image"),)
        assert find_cache_probe_for_all_files(point) in ("cachestat", "mincore")
    finally:
        subprocess.run(["umount", point], check=True)


def test_a_count_below_that_sees_no_reads_is_not_believed(mount, monkeypatch):
    """The count of cached pages of the image file is used only if reads of the target change this count.

    The count may not change, because a process between the target and the image file may cache the reads.
    """
    point = mount("ext4", 64)
    monkeypatch.setattr(FileBelow, "_placed", lambda *_: 0)
    assert find_cache_probe_for_all_files(point) is None


@pytest.fixture
def in_compressed_memory(create_home: Callable[[str], Path]) -> Iterator[Path]:
    """Return an ext4 file system on a new zram device (compressed memory)."""
    control = Path("/sys/class/zram-control")
    if os.geteuid() != 0 or not (control / "hot_add").exists() or not os.access(control / "hot_remove", os.W_OK):
        pytest.skip("this kernel makes no zram for this user")
    number = (control / "hot_add").read_text().strip()
    device, state = Path(f"/dev/zram{number}"), Path(f"/sys/block/zram{number}")
    point = create_home("zram")
    try:
        if not device.exists():
            pytest.skip(f"nothing makes {device} here")
        (state / "disksize").write_text("64M")
        subprocess.run(["mkfs.ext4", "-q", device], check=True)
        subprocess.run(["mount", device, point], check=True)
        try:
            yield point
        finally:
            subprocess.run(["umount", point], check=True)
    finally:
        (state / "reset").write_text("1")
        (control / "hot_remove").write_text(number)


def test_a_real_zram_is_memory(in_compressed_memory):
    stack = inspect_storage(in_compressed_memory)
    assert re.fullmatch(r"ext4 on /dev/zram\d+ \(memory of this host\)", stack.sentence)
    assert stack.memory

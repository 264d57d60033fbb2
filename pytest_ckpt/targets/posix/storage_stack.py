"""The storage below a path, as the kernel's tables report it: mount, devices and files. The storage itself is not read.

Mounts come from ``/proc/self/mountinfo``, without access to the path. Block devices come from
``/sys/dev/block/MAJOR:MINOR``: ``slaves`` (device mapper, md), ``loop/backing_file``, ``partition``. The device numbers
of btrfs and ZFS belong to no block device. The devices of btrfs are therefore listed by ``/sys/fs/btrfs/UUID/devices``.
The commands ``zpool`` and ``zfs`` print the devices of a ZFS pool and its fsync setting. debugfs (readable by root)
shows whether Lustre's client caches files on a local disk.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_ckpt.facts.targets import MEMORY_KINDS, Layer, LayerKind, StorageStack

# File systems of a single host. All others, including unknown ones, count as shared by several hosts.
_LOCAL = frozenset(
    [
        "bcachefs",
        "btrfs",
        "devtmpfs",
        "erofs",
        "exfat",
        "ext2",
        "ext3",
        "ext4",
        "f2fs",
        "fuseblk",
        "hfsplus",
        "hugetlbfs",
        "jfs",
        "nilfs2",
        "ntfs3",
        "overlay",
        "ramfs",
        "reiserfs",
        "rootfs",
        "squashfs",
        "tmpfs",
        "udf",
        "ufs",
        "vfat",
        "xfs",
        "zfs",
    ]
)
# User-space file systems in front of an object store: they accept files, with fewer guarantees.
_GATEWAYS = frozenset(
    [
        *("blobfuse", "blobfuse2", "gcsfuse", "geesefs", "goofys", "juicefs", "mount-s3", "mountpoint-s3"),
        *("ossfs", "rclone", "s3backer", "s3fs", "s3ql", "tigrisfs"),
    ]
)
_OCTAL = re.compile(r"\\([0-7]{3})")

_COMMAND_SECONDS = 10.0

Command = Callable[[Sequence[str]], str]
"""Runs a command and returns its output; empty if the command is missing or fails."""

_MAXIMUM_DEPTH = 16
_NETWORK = frozenset(
    ["9p", "afs", "beegfs", "ceph", "cifs", "fhgfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "orangefs",
     "panfs", "pvfs2", "smb3", "smbfs", "virtiofs", "wekafs"]
)  # fmt: skip
# FS-Cache of NFS and CephFS caches reads on a disk of the client.
_KEPT_ON_A_DISK = "fsc"
# Datasets of Lustre's persistent client cache, one file per mount; empty if there are none.
_CACHES_OF_LUSTRE = "sys/kernel/debug/lustre/llite/*/pcc"
_MEMORY_DEVICES = re.compile(r"(zram|ram|nullb)\d+")
# The kernel's mark of a file that has been unlinked.
_GONE = " (deleted)"
_NETWORK_DEVICES = re.compile(r"(nbd|rbd|drbd)\d+(p\d+)?")
_VIRTUAL_DISKS = re.compile(r"(vd|xvd)[a-z]+\d*")
_VIRTUAL_VENDORS = ("QEMU", "VMware", "Msft", "Google", "Virtuozzo", "VBOX")


@dataclass(frozen=True, kw_only=True, slots=True)
class Mount:
    """A mount: one line of /proc/self/mountinfo. ``device`` is the device number of the mount, as ``major:minor``."""

    mount_point: str
    file_system: str
    source: str
    options: str
    device: str = ""

    @property
    def is_local(self) -> bool:
        """Whether only this host can write to the mounted file system."""
        return self.file_system in _LOCAL

    @property
    def gate_kind(self) -> str:
        """The name of the gate table for this storage: posix-local, posix-shared or gateway."""
        if self.is_local:
            return "posix-local"
        is_gateway = self.file_system.removeprefix("fuse.").lower() in _GATEWAYS
        return "gateway" if is_gateway else "posix-shared"


def all_mounts(table: str | None = None) -> list[Mount]:
    """Return every mount in order of creation; ``table`` is the text of /proc/self/mountinfo."""
    text = os.fsdecode(Path("/proc/self/mountinfo").read_bytes()) if table is None else table
    mounts = []
    for line in filter(None, text.split("\n")):
        before, _, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        options = ",".join(dict.fromkeys((fields[5] + "," + rest[2]).split(",")))
        point, source = _unescape(fields[4]), _unescape(rest[1])
        mounts.append(Mount(mount_point=point, file_system=rest[0], source=source, options=options, device=fields[2]))
    return mounts


def mount_of(path: Path, table: str | None = None) -> Mount:
    """Return the mount that contains a path; ``table`` is the text of /proc/self/mountinfo."""
    return mount_among(all_mounts(table), path)


def mount_among(mounts: Iterable[Mount], path: Path) -> Mount:
    """Return the mount that contains a path; ``mounts`` are all mounts in order of creation."""
    wanted = os.fspath(path)
    best: Mount | None = None
    for mount in mounts:
        point = mount.mount_point
        inside = wanted == point or wanted.startswith(point.rstrip("/") + "/")
        # If several mounts have the same mount point, the last one is visible.
        if inside and (best is None or len(point) >= len(best.mount_point)):
            best = mount
    return best or Mount(mount_point="/", file_system="unknown", source="", options="")


def device_number(seen: os.stat_result) -> str:
    """Return the device number of a file's file system in the kernel's form ``major:minor``."""
    return f"{os.major(seen.st_dev)}:{os.minor(seen.st_dev)}"


def _unescape(text: str) -> str:
    """Decode the octal escapes of a path from the mount table, such as the escape for a space."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def output_of(command: Sequence[str]) -> str:
    """Return a command's output; empty if the command is missing, fails, or times out."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=_COMMAND_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def devices_of_pool(pool: str, run_command: Command = output_of) -> list[str]:
    """Return the paths of the devices and files of a ZFS pool, including its caches; empty if zpool lists none."""
    lines = run_command(("zpool", "list", "-v", "-H", "-P", "-L", pool)).splitlines()
    names = (line.strip("\t").partition("\t")[0] for line in lines)
    return [name for name in names if name.startswith("/")]


def ignores_fsync(dataset: str, run_command: Command = output_of) -> bool:
    """Return whether a ZFS dataset ignores fsync, because it has ``sync=disabled``."""
    return run_command(("zfs", "get", "-H", "-o", "value", "sync", dataset)).strip() == "disabled"


def storage_stack(
    path: Path, *, root: Path = Path("/"), mounts: str | None = None, run_command: Command = output_of
) -> StorageStack:
    """Return the layers of storage below an existing path: file systems, devices, files.

    ``root`` is the directory that contains ``sys``. ``mounts`` is the text of /proc/self/mountinfo. ``run_command`` is
    a function that runs a command and returns its output.
    """
    walk = _Walk(root=root, mounts=mounts, run_command=run_command)
    walk.path(path, 0)
    return StorageStack(
        host=socket.gethostname(),
        layers=tuple(walk.layers),
        files=tuple(dict.fromkeys(walk.files)),
        blind=tuple(dict.fromkeys(walk.blind)),
    )


def file_of_loop(device: Path) -> str:
    """Return the backing file of a loop device or of a partition on it; empty for other devices.

    ``device`` is the device's directory in sysfs.
    """
    return _backing_file(_complete_device(device)).removesuffix(_GONE)


@dataclass(kw_only=True, slots=True)
class _Walk:
    root: Path
    mounts: str | None
    run_command: Command
    layers: list[Layer] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    blind: list[str] = field(default_factory=list)

    def path(self, path: Path, depth: int) -> None:
        """Add the file system of a path, and the storage below this file system."""
        if depth > _MAXIMUM_DEPTH:
            self._add("unknown", "more layers", depth)
            return
        mount = mount_of(path, self.mounts)
        kind = mount.file_system
        options = dict(option.partition("=")[::2] for option in mount.options.split(","))
        if kind in MEMORY_KINDS:
            self._add("memory", f"{kind} (memory of this host)", depth)
        elif kind == "overlay":
            self._overlay(options, depth)
        elif kind.startswith("fuse") and kind != "fuseblk":
            self._process(mount, depth)
        elif kind in _NETWORK:
            self._add("network", f"{kind} of {mount.source}" if mount.source else kind, depth)
            if _KEPT_ON_A_DISK in options:
                self.blind.append(f"{kind} is mounted with '{_KEPT_ON_A_DISK}': a disk of this host caches reads")
            if kind == "lustre" and any(map(_read, self.root.glob(_CACHES_OF_LUSTRE))):
                self.blind.append("a disk of this host caches files of Lustre (persistent client cache)")
        elif kind == "btrfs":
            self._add("file system", kind, depth)
            self._several(self._devices_of_btrfs(mount.source), depth + 1)
        elif kind == "zfs":
            self._add("file system", f"zfs {mount.source}", depth)
            self._pool(mount.source.partition("/")[0], depth + 1)
            self.blind.append("ZFS keeps read data in its own cache (ARC), which is not part of the page cache")
        else:
            self._add("file system", kind, depth)
            self._of_number(mount, depth + 1)

    def _overlay(self, options: dict[str, str], depth: int) -> None:
        self._add("file system", "overlay", depth)
        upper = Path(options.get("upperdir", ""))
        if options.get("upperdir") and upper.is_dir():
            self.path(upper.resolve(), depth + 1)
        else:
            self._add("unknown", "an upper directory that is not visible here", depth + 1)

    def _process(self, mount: Mount, depth: int) -> None:
        """Add a layer for a FUSE file system.

        If the source of the mount is a directory of this host, add the storage below this directory too.
        """
        self._add("process", f"{mount.file_system} of {mount.source}" if mount.source else mount.file_system, depth)
        below = Path(mount.source)
        if below.is_absolute() and below.is_dir() and mount_of(below.resolve(), self.mounts) != mount:
            self.path(below.resolve(), depth + 1)

    def _of_number(self, mount: Mount, depth: int) -> None:
        device = self.root / "sys/dev/block" / mount.device
        if mount.device and device.exists():
            self._device(device.resolve(), depth)
        else:
            self._add("unknown", mount.source or "an unnamed device", depth)

    def _pool(self, pool: str, depth: int) -> None:
        """Add the devices and files of a ZFS pool, as listed by the zpool command."""
        paths = devices_of_pool(pool, self.run_command)
        if not paths:
            self._add("unknown", "devices of a pool that the kernel does not name", depth)
        for path in paths:
            device = self.root / "sys/class/block" / Path(path).name
            if path.startswith("/dev/") and device.exists():
                self._device(device.resolve(), depth)
            else:
                self._file(path, depth, is_gone=False)

    def _several(self, devices: list[Path], depth: int) -> None:
        for device in devices:
            self._device(device, depth)
        if not devices:
            self._add("unknown", "devices that the kernel does not name", depth)

    def _devices_of_btrfs(self, source: str) -> list[Path]:
        """Return all devices of the btrfs file system that contains the device ``source``.

        The result is empty if sysfs lists none.
        """
        name = Path(os.path.realpath(source)).name
        for devices in sorted((self.root / "sys/fs/btrfs").glob("*/devices")):
            entries = sorted(devices.iterdir())
            if name in {device.name for device in entries}:
                return [device.resolve() for device in entries]
        return []

    def _device(self, device: Path, depth: int) -> None:
        """Add a block device, given by its directory in sysfs, and the storage below this device."""
        if depth > _MAXIMUM_DEPTH:
            self._add("unknown", "more layers", depth)
            return
        name = device.name
        shown = (_read(device / "dm/name") and f"/dev/mapper/{_read(device / 'dm/name')}") or f"/dev/{name}"
        # Only a whole device has slaves; a partition of a RAID (md0p1) uses the slaves of its device.
        whole = _complete_device(device)
        slaves = sorted(p.resolve() for p in (whole / "slaves").iterdir()) if (whole / "slaves").is_dir() else []
        if slaves:
            self._add("device", shown, depth)
            self._several(slaves, depth + 1)
        elif backing := _backing_file(whole):
            self._add("device", shown, depth)
            self._file(backing.removesuffix(_GONE), depth + 1, is_gone=backing.endswith(_GONE))
        elif _MEMORY_DEVICES.fullmatch(whole.name):
            self._add("memory", f"{shown} (memory of this host)", depth)
        elif _NETWORK_DEVICES.fullmatch(name):
            self._add("network", shown, depth)
        elif self._is_virtual(whole):
            self._add("hypervisor", f"{shown} (virtual disk: the cache of its hypervisor is not visible)", depth)
        else:
            self._add("device", shown, depth)

    def _file(self, file: str, depth: int, *, is_gone: bool) -> None:
        self._add("file", f"the file {file}", depth)
        self.files.append(file)
        if is_gone or not Path(file).is_file():
            self._add("unknown", "a file system that is not visible here", depth + 1)
        else:
            self.path(Path(file).resolve(), depth + 1)

    def _is_virtual(self, device: Path) -> bool:
        vendor = _read(device / "device/vendor") + _read(device / "device/model")
        return bool(_VIRTUAL_DISKS.fullmatch(device.name)) or vendor.startswith(_VIRTUAL_VENDORS)

    def _add(self, kind: LayerKind, text: str, depth: int) -> None:
        self.layers.append(Layer(kind=kind, text=text, depth=depth))


def _complete_device(device: Path) -> Path:
    """Return the sysfs directory of a device. For a partition, return the sysfs directory of the whole device."""
    return device.parent if (device / "partition").exists() else device


def _backing_file(device: Path) -> str:
    return _read(device / "loop/backing_file")


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""

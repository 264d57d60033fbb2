"""Which file system a path is on, without touching it: from the kernel's table of mounts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# File systems that live in one host. Everything else, unknown ones too, is taken as shared by several.
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
# File systems in user space that stand before an object store: they take files, and keep to fewer promises.
_GATEWAYS = frozenset(
    [
        *("blobfuse", "blobfuse2", "gcsfuse", "geesefs", "goofys", "juicefs", "mount-s3", "mountpoint-s3"),
        *("ossfs", "rclone", "s3backer", "s3fs", "s3ql", "tigrisfs"),
    ]
)
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Mount:
    """One line of the table of mounts; ``device`` is its number, ``major:minor``."""

    mount_point: str
    file_system: str
    source: str
    options: str
    device: str = ""

    @property
    def is_local(self) -> bool:
        """Whether only this host can write to it."""
        return self.file_system in _LOCAL

    @property
    def gate_kind(self) -> str:
        """The name of the table of gates that fits it."""
        if self.is_local:
            return "posix-local"
        is_gateway = self.file_system.removeprefix("fuse.").lower() in _GATEWAYS
        return "gateway" if is_gateway else "posix-shared"


def all_mounts(table: str | None = None) -> list[Mount]:
    """Return every mount in the order they were made; ``table`` is the text of /proc/self/mountinfo."""
    text = os.fsdecode(Path("/proc/self/mountinfo").read_bytes()) if table is None else table
    found = []
    for line in filter(None, text.split("\n")):
        before, _, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        options = ",".join(dict.fromkeys((fields[5] + "," + rest[2]).split(",")))
        point, source = _unescape(fields[4]), _unescape(rest[1])
        found.append(Mount(mount_point=point, file_system=rest[0], source=source, options=options, device=fields[2]))
    return found


def mount_of(path: Path, table: str | None = None) -> Mount:
    """Return the mount that a path is on; ``table`` is the text of /proc/self/mountinfo."""
    return mount_among(all_mounts(table), path)


def mount_among(mounts: Iterable[Mount], path: Path) -> Mount:
    """Return the mount that a path is on, of all mounts in the order they were made."""
    wanted = os.fspath(path)
    best: Mount | None = None
    for mount in mounts:
        point = mount.mount_point
        inside = wanted == point or wanted.startswith(point.rstrip("/") + "/")
        # Of several mounts on one point the last one is seen.
        if inside and (best is None or len(point) >= len(best.mount_point)):
            best = mount
    return best or Mount(mount_point="/", file_system="unknown", source="", options="")


def _unescape(text: str) -> str:
    """Undo the octal escapes of the table: for space, tab, newline, backslash and number sign."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)

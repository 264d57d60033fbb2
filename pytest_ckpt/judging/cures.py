"""Known kinds of file systems: the checks that they fail with their defaults, the reason, and the cure. Pure.

Every row was measured: tests/file_systems mounts the file system, observes the failure, and its absence with the cure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownFailure:
    """Failures of one kind of file system that have one cause.

    ``kinds`` are its names in the kernel's table of mounts, ``checks`` the checks that fail, ``why`` the cause and its
    cost for a training job, ``cure`` the change that helps; empty if no option is known to help.
    """

    name: str
    kinds: tuple[str, ...]
    checks: tuple[str, ...]
    why: str
    cure: str = ""


_BY_PATH = (
    "it finds a file by its path, which a rename has just taken away: open says ENOENT although the name was never "
    "gone, so a reader of the latest pointer fails, or starts without a checkpoint"
)

KNOWN: tuple[KnownFailure, ...] = (
    KnownFailure(
        name="GlusterFS",
        kinds=("fuse.glusterfs",),
        checks=(
            "VISIBLE.read-after-close",
            "STALE.attributes",
            "STALE.names",
            "POINTER.overwrite-second-client",
        ),
        why="by default a client answers from its caches for 1 s: old bytes of a file that another host has rewritten "
        "and closed, old sizes, names that are gone",
        cure="Set the volume options performance.stat-prefetch off and performance.quick-read off, and the mount "
        "options attribute-timeout=0,entry-timeout=0,fopen-keep-cache=false: all five together. COMMIT.file may "
        "then fail: without these caches a rename comes between the look-up of a name and the open more often.",
    ),
    KnownFailure(
        name="GlusterFS",
        kinds=("fuse.glusterfs",),
        checks=("COMMIT.file", "COMMIT.file-second-client"),
        why="it looks a name up and then opens the file that it found: one that a rename has just replaced is gone, "
        "and is refused with ENOENT, or ESTALE again and again, so a reader of the latest pointer dies, or starts from "
        "nothing",
    ),
    KnownFailure(
        name="GlusterFS",
        kinds=("fuse.glusterfs",),
        checks=("EXCLUSIVE.create-second-client", "MKDIR.race-second-client"),
        why="of hundreds of races of two hosts for a name one has no winner: both are told EEXIST, and it is there",
    ),
    KnownFailure(
        name="sshfs",
        kinds=("fuse.sshfs",),
        checks=(
            "VISIBLE.read-after-close",
            "VISIBLE.append",
            "POINTER.overwrite-second-client",
            "STALE.attributes",
            "STALE.names",
            "NAMES.second-client",
        ),
        why="by default a client keeps sizes, names and listings for 20 s: a file that grew on another host is read "
        "cut off at its old length",
        cure="Mount it with dir_cache=no,attr_timeout=0,entry_timeout=0. COMMIT.directory may then fail: listings "
        "are no longer kept.",
    ),
    KnownFailure(
        name="sshfs",
        kinds=("fuse.sshfs",),
        checks=("EXCLUSIVE.create-second-client", "ERRORS.full", "FULL.mid-save", "COMMIT-FULL.each-phase"),
        why="sftp has one error for all that fails: who loses the race for a name is told EPERM, not EEXIST, and who "
        "fills the volume EIO, not ENOSPC",
    ),
    KnownFailure(
        name="sshfs",
        kinds=("fuse.sshfs",),
        checks=("COMMIT.file", "COMMIT.file-second-client"),
        why="it finds a file by its path and keeps its length for 20 s: while it is replaced, open says ENOENT "
        "although the name was never gone, or a reader gets new bytes cut off at the old length: bytes of no version",
    ),
    KnownFailure(
        name="sshfs",
        kinds=("fuse.sshfs",),
        checks=("COMMIT.directory", "COMMIT.directory-second-client"),
        why="it opens a directory by one path and lists it by another: one that is being renamed is listed empty, so a "
        "job finds a checkpoint without files",
    ),
    KnownFailure(name="bindfs", kinds=("fuse.bindfs",), checks=("COMMIT.file",), why=_BY_PATH),
    KnownFailure(
        name="gocryptfs",
        kinds=("fuse.gocryptfs",),
        checks=("COMMIT.file",),
        why="while a file is replaced a reader gets ENOENT, the length of another version, or bytes of two: a reader "
        "of the latest pointer dies, or starts from what nobody wrote",
    ),
    KnownFailure(
        name="gocryptfs",
        kinds=("fuse.gocryptfs",),
        checks=("COMMIT.directory",),
        why="a directory that is being renamed is listed without some of its files, or without any, so a job finds a "
        "checkpoint with files missing",
    ),
    KnownFailure(name="ZFS by FUSE (zfs-fuse)", kinds=("fuse.zfs",), checks=("COMMIT.file",), why=_BY_PATH),
    KnownFailure(
        name="mergerfs",
        kinds=("fuse.mergerfs",),
        checks=("COMMIT.directory",),
        why="it renames a directory branch by branch: meanwhile it is listed without some of its files, or without any",
    ),
    KnownFailure(name="exFAT or NTFS by FUSE", kinds=("fuseblk",), checks=("COMMIT.file",), why=_BY_PATH),
    KnownFailure(
        name="ext4 by FUSE (fuse2fs)",
        kinds=("fuse.ext4",),
        checks=("COMMIT.file",),
        why=_BY_PATH,
        cure="Mount it with the kernel's own driver: mount -t ext4.",
    ),
    KnownFailure(
        name="rclone mount",
        kinds=("fuse.rclone",),
        checks=("COMMIT.file", "DURABLE.rank-killed", "UNLINK.open-reader"),
        why="it uploads a file some time after it was closed and synced, by its name of that moment: what is renamed "
        "meanwhile is empty or cut short",
    ),
)

_NO_CURE = "No option of it is known to help: keep checkpoints on another file system."


def known_of(kind: str) -> Iterator[KnownFailure]:
    """Return the known facts about a kind of file system."""
    return (row for row in KNOWN if kind in row.kinds)


def remedy_of(row: KnownFailure) -> str:
    """Return the remedy, in a sentence."""
    return row.cure or _NO_CURE


def explain(kind: str, check: str) -> tuple[str, ...]:
    """Return the lines that explain a failed check on a kind of file system; empty if the cause is unknown."""
    return tuple(
        line
        for row in known_of(kind)
        if check in row.checks
        for line in (f"known of {row.name}: {row.why}", f"cure: {remedy_of(row)}")
    )

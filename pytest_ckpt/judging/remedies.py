"""Remedies: fixes for known failures of file systems, and the first action after an error of the target. Pure.

A test in tests/file_systems mounts the file system and observes each known failure. With the fix, the test observes
that the failure is absent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.facts.gate_tables import GATE_TABLES, Place

if TYPE_CHECKING:
    from pytest_ckpt.facts.failure import Failure, Phase


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownFailure:
    """Failures of checks on one kind of file system. The failures have the same cause.

    - ``kinds``: the file-system types in the kernel's table of mounts.
    - ``checks``: the checks that fail.
    - ``why``: the cause, and its cost for a training job.
    - ``cure``: the change that helps; empty if no option is known to help.
    """

    name: str
    kinds: tuple[str, ...]
    checks: tuple[str, ...]
    why: str
    cure: str = ""


_BY_PATH = (
    "the file system finds a file by its path: if a rename has just removed this path, open returns ENOENT although "
    "the name always existed, so a job that reads the latest pointer fails, or starts without a checkpoint"
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
        why="by default a client uses its caches for 1 s: it shows old bytes of a file that another host has rewritten "
        "and closed, old sizes and deleted names",
        cure="Set the volume options performance.stat-prefetch off and performance.quick-read off, and the mount "
        "options attribute-timeout=0,entry-timeout=0,fopen-keep-cache=false: all five together. COMMIT.file may "
        "then fail: without these caches a rename comes between the look-up of a name and the open more often.",
    ),
    KnownFailure(
        name="GlusterFS",
        kinds=("fuse.glusterfs",),
        checks=("COMMIT.file", "COMMIT.file-second-client"),
        why="a client looks up a name and then opens the file that it found: if a rename has just "
        "replaced that file, open fails with ENOENT, or repeatedly with ESTALE, so a job that reads the latest pointer "
        "fails, or starts without a checkpoint",
    ),
    KnownFailure(
        name="GlusterFS",
        kinds=("fuse.glusterfs",),
        checks=("EXCLUSIVE.create-second-client", "MKDIR.race-second-client"),
        why="in one of hundreds of races of two hosts for a name, no host wins: both hosts get EEXIST, and the name "
        "exists",
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
        why="by default a client caches sizes, names and listings for 20 s: if a file grew on another host, the client "
        "reads it only to its old length",
        cure="Mount sshfs with dir_cache=no,attr_timeout=0,entry_timeout=0. COMMIT.directory may then fail: listings "
        "are no longer cached.",
    ),
    KnownFailure(
        name="sshfs",
        kinds=("fuse.sshfs",),
        checks=("EXCLUSIVE.create-second-client", "ERRORS.full", "FULL.mid-save", "COMMIT-FULL.each-phase"),
        why="sftp has one error for all failures: a process that loses the race for a name gets EPERM, not EEXIST, and "
        "a process that fills the volume gets EIO, not ENOSPC",
    ),
    KnownFailure(
        name="sshfs",
        kinds=("fuse.sshfs",),
        checks=("COMMIT.file", "COMMIT.file-second-client"),
        why="a client finds a file by its path and caches its length for 20 s: while the file is replaced, "
        "open returns ENOENT although the name always existed, or a reader gets the new bytes cut off at the old "
        "length, which no version of the file has",
    ),
    KnownFailure(
        name="sshfs",
        kinds=("fuse.sshfs",),
        checks=("COMMIT.directory", "COMMIT.directory-second-client"),
        why="a client opens a directory by one path and lists it by another: during a rename a listing of the "
        "directory is empty, so a job finds a checkpoint without files",
    ),
    KnownFailure(name="bindfs", kinds=("fuse.bindfs",), checks=("COMMIT.file",), why=_BY_PATH),
    KnownFailure(
        name="gocryptfs",
        kinds=("fuse.gocryptfs",),
        checks=("COMMIT.file",),
        why="while a file is replaced, a reader gets ENOENT, the length of another version, or bytes of two versions: "
        "a job that reads the latest pointer fails, or starts from bytes that no process wrote",
    ),
    KnownFailure(
        name="gocryptfs",
        kinds=("fuse.gocryptfs",),
        checks=("COMMIT.directory",),
        why="during a rename a listing of the directory lacks some or all of its files, so a job finds a checkpoint "
        "with files missing",
    ),
    KnownFailure(name="ZFS by FUSE (zfs-fuse)", kinds=("fuse.zfs",), checks=("COMMIT.file",), why=_BY_PATH),
    KnownFailure(
        name="mergerfs",
        kinds=("fuse.mergerfs",),
        checks=("COMMIT.directory",),
        why="mergerfs renames a directory branch by branch: during the rename a listing of the directory lacks some or "
        "all of its files",
    ),
    KnownFailure(name="exFAT or NTFS by FUSE", kinds=("fuseblk",), checks=("COMMIT.file",), why=_BY_PATH),
    KnownFailure(
        name="ext4 by FUSE (fuse2fs)",
        kinds=("fuse.ext4",),
        checks=("COMMIT.file",),
        why=_BY_PATH,
        cure="Mount the file system with the kernel's own driver: mount -t ext4.",
    ),
    KnownFailure(
        name="rclone mount",
        kinds=("fuse.rclone",),
        checks=("COMMIT.file", "DURABLE.rank-killed", "UNLINK.open-reader"),
        why="rclone uploads a file some time after the file was closed and synced, under the name that the file has "
        "then: if the file is renamed before the upload, it is empty or cut short",
    ),
)

_NO_CURE = "No option is known to help: keep checkpoints on another file system."


def failures_of_kind(kind: str) -> Iterator[KnownFailure]:
    """Yield the known failures of a type of file system."""
    return (row for row in KNOWN if kind in row.kinds)


def remedy_of(row: KnownFailure) -> str:
    """Return the remedy of a known failure, as a sentence."""
    return row.cure or _NO_CURE


def explain(kind: str, check: str) -> tuple[str, ...]:
    """Return the lines that explain a failed check on a type of file system; empty if the cause is unknown."""
    return tuple(
        line
        for row in failures_of_kind(kind)
        if check in row.checks
        for line in (f"known of {row.name}: {row.why}", f"cure: {remedy_of(row)}")
    )


_READS: frozenset[Phase] = frozenset({"read", "residency probe", "fadvise"})


@dataclass(frozen=True, kw_only=True, slots=True)
class NextStep:
    """The user's first action after an error whose name is in ``errnos``.

    ``places`` are the kinds of storage to which the action applies. If ``reads`` is True, the action is only for reads.
    If it is False, the action is only for writes. If it is None, the action is for both.
    """

    errnos: tuple[str, ...]
    text: str
    places: tuple[Place, ...] = ("local", "shared", "objects")
    reads: bool | None = None


NEXT_STEPS: tuple[NextStep, ...] = (
    NextStep(
        errnos=("ENOSPC",),
        places=("local",),
        text="Compare free space and free inodes (df -h, df -i). If both are free, look for a project quota.",
    ),
    NextStep(
        errnos=("ENOSPC",),
        places=("shared",),
        text="Compare free space and free inodes (df -h, df -i). If both are free, one server may be full "
        "(Lustre: lfs df -h; Storage Scale: mmdf; Ceph: ceph df), or a quota of the directory applies.",
    ),
    NextStep(
        errnos=("ENOSPC",),
        places=("objects",),
        text="Look at the quota of the bucket, and at the free space of its store.",
    ),
    NextStep(
        errnos=("EDQUOT",),
        text="A quota is exhausted: look with quota -s, or the tool of the storage, and raise it for the test.",
    ),
    NextStep(
        errnos=("EIO", "EREMOTEIO"),
        places=("local",),
        reads=True,
        text="The device could not read what it had acknowledged: look at dmesg and smartctl -a of the device.",
    ),
    NextStep(
        errnos=("EIO", "EREMOTEIO"),
        places=("local",),
        reads=False,
        text="The device or file system lost a write: look at dmesg (I/O errors, shutdown of the file system).",
    ),
    NextStep(
        errnos=("EIO", "EREMOTEIO"),
        places=("shared",),
        text="The client gave up on a request: look at dmesg of the named host, then at the server's log of that time. "
        "A soft mount (NFS: soft) returns EIO when a hard mount waits.",
    ),
    NextStep(
        errnos=("EIO", "EREMOTEIO"),
        places=("objects",),
        text="Look at the store's log for the request at that time, and at proxies between host and store.",
    ),
    NextStep(
        errnos=("EROFS",),
        text="The file system became read-only after an error: look at dmesg for the first error, check it (fsck) and "
        "mount it again.",
    ),
    NextStep(
        errnos=("ENOTCONN", "ESHUTDOWN", "ECONNABORTED"),
        text="The client process of the mount has died (FUSE): look at its log and at dmesg (out of memory), then "
        "mount the target again.",
    ),
    NextStep(
        errnos=("ESTALE",),
        text="The server no longer knows the file: it was replaced, exported anew or failed over. Look at the server's "
        "exports and mount the target again.",
    ),
    NextStep(
        errnos=("ENODEV", "ENXIO", "ENOMEDIUM"),
        text="The device is gone: look at dmesg, and at the connection to the device.",
    ),
    NextStep(
        errnos=("ENOENT",),
        text="A file or the directory of the run is gone: look whether the target is still mounted (findmnt) and who "
        "removes files there.",
    ),
    NextStep(
        errnos=("EACCES", "EPERM"),
        text="The target refused access in the middle of the run: look at permissions, root squashing and the expiry "
        "of tickets or keys.",
    ),
    NextStep(
        errnos=("ETIMEDOUT", "EHOSTDOWN", "EHOSTUNREACH", "ENETUNREACH", "ENETDOWN"),
        text="The network to the storage failed: look at the link of the named host (ip -s link) and at the server.",
    ),
    NextStep(
        errnos=("ECONNREFUSED", "ECONNRESET", "EPIPE"),
        text="A connection to the storage was refused or cut: look whether its server or gateway runs, and at its log.",
    ),
    NextStep(
        errnos=("ENOMEM", "ENOBUFS"),
        text="The named host had no memory left for the request: look at free -h and dmesg there.",
    ),
    NextStep(
        errnos=("EMFILE", "ENFILE"),
        text="The named host ran out of file descriptors: raise the limit there (ulimit -n, fs.file-max).",
    ),
    NextStep(
        errnos=("EFBIG",),
        text="A file exceeds the largest size of the file system, or the limit of the user (ulimit -f).",
    ),
    NextStep(
        errnos=("EINVAL",),
        text="The file system refused the call: look whether it supports direct I/O of this size and alignment.",
    ),
)

HUNG = (
    "The storage did not answer: look at the stack above, at dmesg of the named host (not responding, blocked for more "
    "than 120 seconds), and at the server or the client process of the mount."
)


def next_of(errno: str, table: str, *, reads: bool) -> str:
    """Return the user's first action after the error ``errno`` of the target; empty if unknown.

    ``table`` is the gate table of the run, which implies the kind of storage. ``reads``: the error occurred in a read.
    """
    place = GATE_TABLES.get(table) or "shared"
    found = (
        step.text
        for step in NEXT_STEPS
        if errno in step.errnos and place in step.places and step.reads in (None, reads)
    )
    return next(found, "")


def next_of_failure(failure: Failure, table: str) -> str:
    """Return the user's first action after a failure of ranks; empty if unknown."""
    return HUNG if failure.kind == "hung" else next_of(failure.errno, table, reads=failure.phase in _READS)

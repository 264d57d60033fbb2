"""The first action after an error of the target: by the error, the operation, and the kind of target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.facts.gate_tables import GATE_TABLES, Place

if TYPE_CHECKING:
    from pytest_ckpt.facts.failure import Failure, Phase

_READS: frozenset[Phase] = frozenset({"read", "residency probe", "fadvise"})


@dataclass(frozen=True, kw_only=True, slots=True)
class NextStep:
    """A step for errors of these names; ``places`` and ``reads`` narrow it: to kinds of targets, to reading or not."""

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
        "A soft mount (NFS: soft) returns EIO where a hard one waits.",
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
    """Return the first action after an error of the target, by the error's name; empty without a remedy.

    ``table`` is the gate table of the run: it names the kind of the target.
    """
    place = GATE_TABLES.get(table) or "shared"
    found = (
        step.text
        for step in NEXT_STEPS
        if errno in step.errnos and place in step.places and step.reads in (None, reads)
    )
    return next(found, "")


def next_of_failure(failure: Failure, table: str) -> str:
    """Return the first action after a failure of ranks; empty without a remedy."""
    return HUNG if failure.kind == "hung" else next_of(failure.errno, table, reads=failure.phase in _READS)

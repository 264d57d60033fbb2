"""Proofs behind a time: uncached reads, compared bytes, durable calls, commits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pytest_ckpt.facts.bounds import Count, NotNegative, Share
from pytest_ckpt.facts.targets import StorageStack

Observer = Literal["store", "counted calls", "declared by the library", "unseen"]
CommitMethod = Literal["rename", "marker", "copy", "engine"]
ColdBasis = Literal["declared", "seen", "other client", "timed canary", "volume"]
FaultKind = Literal["flipped", "torn", "zeros", "stale", "misplaced", "foreign", "short", "unreadable"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheReading:
    """One published reading of the cache rule, applied to one host. ``requires_drop``: caches must be dropped."""

    rule: str
    host: str
    memory_bytes: Count
    bytes_compared: Count
    requires_drop: bool


COLD_BASES: Mapping[ColdBasis, str] = {
    "declared": "the target declares that its clients keep no cache of what they read",
    "seen": "the kernel counted how much of the files its page cache held",
    "other client": "a host that neither wrote nor read the files before loaded them",
    "timed canary": "timed reads of checkpoints saved for this show that no cache of the client serves them",
    "volume": "more was moved between a file's save and its load than the client's caches hold",
}
"""What a proof that loads came from the storage may rest on, strongest first, and what that means."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CanaryReads:
    """Timed reads of parts of checkpoints that were saved for this, on one host; seconds, one a part, same order.

    ``first_read_seconds``: after the save and the drop that comes before loads; ``reread_seconds``: right behind that;
    ``dropped_read_seconds``: after another drop; ``dropped_reread_seconds``: right behind that, empty in reports from
    before this was read; ``other_client_seconds``: then by another client, which ``client`` names; empty where there is
    none. ``client_own_seconds`` show how fast that client can be: a host with what it saved itself, a second
    mount with what it read just before. ``judged_seconds``: parts of the judged checkpoints, before all of these, after
    a drop; ``judged_reread_seconds``: right behind that; empty in reports from before these were read, and where what
    is judged lies otherwise (deltas, compressed files). ``bytes`` are those of a part. ``cache_growth_bytes`` is by
    how much more this host's page cache held at the first read than before the save. ``not_read_reason`` is why there
    are none.
    """

    host: str
    bytes: Count
    first_read_seconds: tuple[NotNegative, ...] = ()
    reread_seconds: tuple[NotNegative, ...] = ()
    dropped_read_seconds: tuple[NotNegative, ...] = ()
    dropped_reread_seconds: tuple[NotNegative, ...] = ()
    other_client_seconds: tuple[NotNegative, ...] = ()
    client: str = ""
    client_own_seconds: tuple[NotNegative, ...] = ()
    judged_seconds: tuple[NotNegative, ...] = ()
    judged_reread_seconds: tuple[NotNegative, ...] = ()
    cache_growth_bytes: Count = 0
    not_read_reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class MovedBytes:
    """How much one host saved and loaded between a checkpoint's save and its load, at least; and its memory. Bytes."""

    host: str
    memory_bytes: Count
    minimum_bytes: Count


def is_served_by_process(kind: str) -> bool:
    """Return whether a process serves a mount of this kind: the kernel drops and counts its own pages there, no others.

    What that process keeps of files, in memory or on a disk of its own, no probe shows.
    """
    return kind.startswith("fuse")


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheFacts:
    """What was done about the clients' page caches, and what was seen of it.

    ``probe`` is the call that counted resident pages; empty when a file that had just been read showed no
    resident page with any probe, so that residency cannot be known. ``resident_fraction`` is the largest over the
    loads, None when it could not be measured. ``is_declared_cold`` says that nothing was counted since the target
    declares that its clients keep no cache of what they read. The others are there where there is no probe, timed reads
    also where a probe does not count all and another client is there to compare with. ``by_other_hosts`` says that
    every file was loaded, once, by a host that had not written it. ``client_cache_bytes`` is what the user stated of
    caches on disks of a client, None where nothing was. ``storages`` is what lies below the target on each host.
    ``names_dropped``: before each load the kernels also dropped names and attributes of files; None if not tried.
    """

    required: bool
    readings: tuple[CacheReading, ...]
    policy: str
    method: str
    probe: str
    resident_fraction: Share | None
    detail: str = ""
    is_declared_cold: bool = False
    by_other_hosts: bool = False
    canaries: tuple[CanaryReads, ...] = ()
    moved: tuple[MovedBytes, ...] = ()
    client_cache_bytes: Count | None = None
    storages: tuple[StorageStack, ...] = ()
    names_dropped: bool | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A place where what was read is not what was written. ``offset`` is in bytes from the tensor's start."""

    kind: FaultKind
    rank: Count
    host: str
    checkpoint: Count
    file: str
    tensor: str
    offset: Count
    bytes: Count
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Integrity:
    """How much was compared. ``faults`` names the first ones, ``fault_count`` counts all."""

    bytes_expected: Count
    bytes_checked: Count
    fault_count: Count
    faults: tuple[Fault, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Durability:
    """Calls that were made and returned without error, counted over all ranks and saves.

    ``observed`` is the weakest of what their proofs rest on, ``commit_methods`` are the ways of their commits.
    ``acknowledged`` says what an object store told of the objects, in words; empty where files are fsynced.
    """

    files: Count
    files_synced: Count
    directories: Count
    directories_synced: Count
    saves: Count
    commits: Count
    observed: Observer = "store"
    commit_methods: tuple[CommitMethod, ...] = ("rename",)
    acknowledged: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A file or object that was finished. ``checksum`` is what the store acknowledged, with its method; empty: none."""

    name: str
    bytes: int
    checksum: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class DurabilityProof:
    """What was seen of one rank's durable calls in one save.

    ``observed`` says by whom: the store that made them, calls that were counted, a library that declares them, nobody.
    ``attempted`` counts what must become durable, from when it is begun; ``returned`` what a call that makes it durable
    returned for without error. ``acknowledged`` says in words what an object store told of what it holds.
    ``names_pending``: the files are durable and their names are not yet: one rank of each host fsyncs the directory for
    all ranks of the host.
    """

    files_attempted: int
    files_returned: int
    directories_attempted: int
    directories_returned: int
    observed: Observer = "store"
    acknowledged: tuple[str, ...] = ()
    names_pending: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class NamesProof:
    """Directories whose names one rank made durable for its host, counted before the calls and as they returned."""

    directories_attempted: int
    directories_returned: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitProof:
    """How a checkpoint was committed, with its durable calls, counted before they were made and as they returned."""

    method: CommitMethod
    directories_attempted: int = 0
    directories_returned: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class SaveTiming:
    """One save on one rank, in seconds from its own start; None: not reached.

    ``returned_seconds``: the job may go on; ``staged_seconds``: it may change its state; ``stored_seconds``: the bytes
    of this rank are durable; ``committed_seconds``: the checkpoint is (on the rank that commits).
    ``names_seconds`` this rank took for the fsync of the directory, for all ranks of its host; 0 on other ranks.
    ``waited_for_previous`` are the seconds that it waited for the save before, ``copying_seconds`` those in which the
    state was copied in memory, while the job waited. A save that blocks returns last, when all others are reached.
    """

    returned_seconds: float | None = None
    staged_seconds: float | None = None
    stored_seconds: float | None = None
    committed_seconds: float | None = None
    names_seconds: float = 0.0
    waited_for_previous: float = 0.0
    copying_seconds: float = 0.0
    staged_bytes: int = 0
    stored_bytes: int = 0
    phases: dict[str, float] = field(default_factory=dict)

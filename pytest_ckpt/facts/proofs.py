"""Proofs behind a time: uncached reads, compared bytes, durable calls, commits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Observer = Literal["store", "counted calls", "declared by the library", "unseen"]
CommitMethod = Literal["rename", "marker", "copy", "engine"]
FaultKind = Literal["flipped", "torn", "zeros", "stale", "misplaced", "foreign", "short", "unreadable"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheReading:
    """One published reading of the cache rule, applied to one host. ``requires_drop``: caches must be dropped."""

    rule: str
    host: str
    memory_bytes: int
    bytes_compared: int
    requires_drop: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheFacts:
    """What was done about the clients' page caches, and what was seen of it.

    ``gauge`` is the call that counted resident pages; empty when a file that had just been read showed no
    resident page with any gauge, so that residency cannot be known. ``resident_fraction`` is the largest over the
    loads, None when it could not be measured. ``is_declared_cold`` says that nothing was counted since the target
    declares that its clients keep no cache of what they read.
    """

    required: bool
    readings: tuple[CacheReading, ...]
    policy: str
    method: str
    gauge: str
    resident_fraction: float | None
    detail: str = ""
    is_declared_cold: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A place where what was read is not what was written. ``offset`` is in bytes from the tensor's start."""

    kind: FaultKind
    rank: int
    host: str
    checkpoint: int
    file: str
    tensor: str
    offset: int
    bytes: int
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Integrity:
    """How much was compared. ``faults`` names the first ones of each rank, ``fault_count`` counts all."""

    bytes_expected: int
    bytes_checked: int
    fault_count: int
    faults: tuple[Fault, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Durability:
    """Calls that were made and returned without error, counted over all ranks and saves.

    ``observed`` is the weakest of what their proofs rest on, ``commit_methods`` are the ways of their commits.
    """

    files: int
    files_synced: int
    directories: int
    directories_synced: int
    saves: int
    commits: int
    observed: Observer = "store"
    commit_methods: tuple[CommitMethod, ...] = ("rename",)


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
    returned for without error.
    """

    files_attempted: int
    files_returned: int
    folders_attempted: int
    folders_returned: int
    observed: Observer = "store"


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitProof:
    """How a checkpoint was committed, with its durable calls, counted before they were made and as they returned."""

    method: CommitMethod
    folders_attempted: int = 0
    folders_returned: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class SaveTiming:
    """One save on one rank, in seconds from its own start; None: not reached.

    ``returned``: the job may go on; ``staged``: it may change its state; ``stored``: this rank's bytes are durable;
    ``committed``: the checkpoint is (on the rank that commits). ``waited_for_previous`` are the seconds that it waited
    for the save before. A save that blocks returns last, when all others are reached.
    """

    returned: float | None
    staged: float | None
    stored: float | None
    committed: float | None
    waited_for_previous: float = 0.0
    staged_bytes: int = 0
    stored_bytes: int = 0
    phases: dict[str, float] = field(default_factory=dict)

"""What makes a time worth anything: caches seen empty, bytes compared, durable calls counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FaultKind = Literal["flipped", "torn", "zeros", "stale", "misplaced", "foreign", "short", "unreadable"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheReading:
    """One published reading of the cache rule, applied to one host. Bytes; ``asks`` says that it wants a drop."""

    rule: str
    host: str
    memory_bytes: int
    bytes_compared: int
    asks: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheFacts:
    """What was done about the clients' page caches, and what was seen of it.

    ``gauge`` is the call that counted resident pages; empty when a file that had just been read showed no
    resident page with any gauge, so that residency cannot be known. ``resident_fraction`` is the largest over the
    loads, None when it could not be measured.
    """

    required: bool
    readings: tuple[CacheReading, ...]
    policy: str
    method: str
    gauge: str
    resident_fraction: float | None
    detail: str = ""


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
    """Calls that were made and returned without error, counted over all ranks and saves."""

    files: int
    files_synced: int
    directories: int
    directories_synced: int
    saves: int
    commits: int

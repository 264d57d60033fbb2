"""The seam between a run and its storage: what a target, an area's store and a checkpoint's files can be asked for.

A `Target` belongs to the controller, a `Store` to whoever attaches to an area by its `AreaRef`: ranks, checks, a second
client, the cleaner. What crosses between processes is the reference, never a path that somebody joins.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pytest_ckpt.facts.proofs import CommitProof, DurabilityProof, Entry
from pytest_ckpt.facts.targets import AreaRef, CheckpointRef, TargetFacts

Buffer = Any
"""A writable or readable object with the buffer protocol: memoryview, bytearray, an array of numpy."""


class Phases(Protocol):
    """Whoever times the calls of one process: every call on storage is made inside a named phase."""

    def phase(self, name: str, file: str = "") -> AbstractContextManager[None]:
        """Add the seconds inside to the phase ``name`` and say which file it works on."""

    def moved(self, count: int) -> None:
        """Say that ``count`` more bytes went through: a sign of life for the watchdog."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Names:
    """What a run may have made in its area, of all ranks.

    ``files`` goes from subjects to the names of the files in their checkpoints, ``beside`` to those of the files that
    stand beside their checkpoints. In ``folders`` the run made everything.
    """

    files: Mapping[str, frozenset[str]] = field(default_factory=dict)
    beside: Mapping[str, frozenset[str]] = field(default_factory=dict)
    folders: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Leftover:
    """Something of an earlier run: what it is, which run left it, and the command that removes it (empty: none)."""

    what: str
    why: str
    command: str = ""


class Target(Protocol):
    """The storage under test, as the controller sees it; one kind a scheme (facts.targets.TARGETS)."""

    def describe(self) -> TargetFacts:
        """Return what can be said of it without touching it; its capacity is not known then."""

    def check(self) -> TargetFacts:
        """Return what it is; nothing is written. Raises UsageError when checkpoints cannot go there."""

    def create_area(self, run_id: str) -> AreaRef:
        """Make the area of a run, which says whose it is. Raises UsageError, and then leaves nothing."""

    def leftovers(self) -> Sequence[Leftover]:
        """Return areas of earlier runs whose controller is gone."""

    def clean(self, area: AreaRef, names: Names, deadline_seconds: float, *, keep_area: bool = False) -> list[str]:
        """Remove what a run made, in a process of its own; return what was left, one sentence each.

        With ``keep_area`` the area itself stays for another launch.
        """


class Sink(Protocol):
    """One file or object that is being written. ``alignment`` and ``part_bytes`` bind `write_at`.

    Offsets are multiples of ``alignment`` bytes; where ``part_bytes`` is set, writes are whole parts at
    multiples of it, but for the last one.
    """

    alignment: int
    part_bytes: int | None

    def write(self, data: Buffer) -> int:
        """Write all of ``data`` behind what was written; return its bytes."""

    def write_at(self, offset: int, data: Buffer) -> None:
        """Write at an offset: disjoint, once each, any order, any thread; ``data`` is free again on return."""

    def finish(self) -> Entry:
        """Make the file durable, as far as the store can, and close it."""

    def abort(self) -> None:
        """Close it and let go of what was written."""


class Draft(Protocol):
    """A checkpoint that one rank is saving; nobody sees it as a checkpoint before the commit."""

    def create(self, name: str, size: int | None) -> Sink:
        """Begin a file of ``size`` bytes; None: only `Sink.write` will be used and the size is not known."""

    def location(self) -> str:
        """Return the local folder for a library that writes itself. Raises NotImplementedError without "paths"."""

    def adopt(self, names: Collection[str]) -> None:
        """Take files that a library wrote into `location` as this draft's own."""

    def seal(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Make names durable, as far as the store can; return this rank's entries and the durable calls."""

    def abort(self) -> None:
        """Remove what this rank wrote of it."""


class Source(Protocol):
    """One file or object of a committed checkpoint, open for reading. ``size`` in bytes."""

    size: int

    def read_into(self, offset: int, buffer: Buffer) -> int:
        """Read until the buffer is full or the file ends; return the bytes. Safe from several threads."""

    def local_path(self) -> str | None:
        """Return its path for mmap and for libraries that open files; None where it has none."""

    def close(self) -> None:
        """Close it."""


class Committed(Protocol):
    """A committed checkpoint."""

    def source(self, name: str) -> Source:
        """Open a file of it. Raises OSError (ENOENT: it is not there)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resident:
    """How much of some files this client's cache holds. Bytes."""

    resident_bytes: int
    bytes: int


class Store(Protocol):
    """An area, attached. Calls of one store come from one process; none of them is collective.

    Any OSError of the storage is let through.
    """

    def begin(self, ref: CheckpointRef) -> Draft:
        """Begin this rank's part of a checkpoint; ranks of the same checkpoint begin in any order."""

    def commit(self, ref: CheckpointRef, entries: Sequence[Entry]) -> CommitProof:
        """Commit a checkpoint of which all ranks have sealed their drafts; called by rank 0, with all entries."""

    def put(self, name: str, data: bytes, when: Literal["always", "if absent"] = "always") -> bool:
        """Write a small file in the area's top (a pointer, a marker); return False where ``when`` forbade it."""

    def committed(self) -> Sequence[CheckpointRef]:
        """Return the checkpoints that are committed, oldest first."""

    def open(self, ref: CheckpointRef) -> Committed:
        """Open a committed checkpoint. Raises OSError (ENOENT: it is not committed)."""

    def delete(self, ref: CheckpointRef, names: Collection[str]) -> None:
        """Delete this rank's files of a checkpoint, committed or not."""

    def finish_delete(self, ref: CheckpointRef) -> None:
        """Remove what is left of a checkpoint when all ranks have deleted their files; called by rank 0."""

    def cached(self, ref: CheckpointRef, names: Collection[str]) -> Resident | None:
        """Return how much of files this client's cache holds; None where that cannot be seen here."""

    def evict(self, ref: CheckpointRef, names: Collection[str]) -> None:
        """Ask this client's cache to let go of files that are durable."""

    def close(self) -> None:
        """Let go of connections and descriptors."""

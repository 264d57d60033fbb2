"""The seam between a run and its storage: what a target, an area's store and a checkpoint's files can be asked for.

A `Target` belongs to the controller, a `Store` to whoever attaches to an area by its `AreaRef`: ranks, checks, a second
client, the cleaner. What crosses between processes is the reference, never a path that somebody joins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from pytest_ckpt.facts.across_hosts import HostMount, Marker
    from pytest_ckpt.facts.client_proofs import FsyncCounts
    from pytest_ckpt.facts.failure import Phase
    from pytest_ckpt.facts.pattern import Step
    from pytest_ckpt.facts.proofs import CommitProof, DurabilityProof, Entry, NamesProof
    from pytest_ckpt.facts.requests import Tallies
    from pytest_ckpt.facts.targets import AreaRef, Capability, CheckpointRef, Leftover, Names, StorageStack, TargetFacts
    from pytest_ckpt.sizing.files import ReplayedFile
    from pytest_ckpt.sizing.near_full import Volume

Buffer = Any
"""A writable or readable object with the buffer protocol: memoryview, bytearray, an array of numpy."""


class Phases(Protocol):
    """Whoever times one piece of work: its calls on storage are made inside named phases.

    The phases of a save are open, write, fsync, close, directory and commit, those of a load open, read and close.
    The store times its own calls; whoever writes through a `Sink` or reads through a `Source` times that as write or
    read, with what belongs to it.
    """

    def phase(self, name: Phase, file: str = "") -> AbstractContextManager[None]:
        """Add the seconds inside to the phase ``name`` and say which file it works on."""

    def moved(self, count: int) -> None:
        """Say that ``count`` more bytes went through: a sign of life for the watchdog."""


class Target(Protocol):
    """The storage under test, as the controller sees it; one kind a scheme (facts.targets.TARGETS)."""

    def describe(self) -> TargetFacts:
        """Return what can be said of it without touching it; its capacity is not known then."""

    def check(self) -> TargetFacts:
        """Return what it is; nothing is written. Raises UsageError when checkpoints cannot go there."""

    def place(self) -> AreaRef:
        """Return the target itself as a place: before a run has an area, its ranks ask whether they reach this."""

    def create_area(self, run_id: str) -> AreaRef:
        """Make the area of a run, which says whose it is. Raises UsageError, and then leaves nothing."""

    def leftovers(self) -> Sequence[Leftover]:
        """Return areas of earlier runs whose controller is gone."""

    def clean(self, area: AreaRef, names: Names, deadline_seconds: float, *, keep_area: bool = False) -> list[str]:
        """Remove what a run made, in a process of its own; return what was left, one sentence each.

        With ``keep_area`` the area itself stays for another launch.
        """


class Sink(Protocol):
    """One file or object that is being written.

    What is given to `write_at` begins at a multiple of ``alignment`` bytes and is filled up to one: what stands behind
    the file's size is cut off. Where ``part_bytes`` is set, it is whole parts at multiples of it, but for the last one.
    ``way`` says how requests pass the client's page cache, in words for the report.
    """

    alignment: int
    part_bytes: int | None

    @property
    def way(self) -> str:
        """How requests pass the client's page cache."""

    def write(self, data: Buffer) -> int:
        """Write all of ``data`` behind what was written; return its bytes."""

    def write_at(self, offset: int, data: Buffer) -> None:
        """Write at an offset: disjoint, once each, any order, any thread; ``data`` is free again on return."""

    def finish(self) -> Entry:
        """Make the file durable, as far as the store can, and close it."""

    def abort(self) -> None:
        """Close it; what was written is of no use."""


class CachedSink(Sink, Protocol):
    """A file whose bytes may wait in the client's page cache."""

    def start_writeback(self, offset: int, count: int) -> None:
        """Begin to write a range from the page cache; return before it is written."""


class Draft(Protocol):
    """A checkpoint that one rank is saving; nobody sees it as a checkpoint before the commit."""

    def create(self, name: str, size: int | None) -> Sink:
        """Begin a file of ``size`` bytes; None: only `Sink.write` will be used and the size is not known.

        It counts as one whose bytes must become durable from here on. Raises FileExistsError where it is there.
        """

    def location(self) -> str:
        """Return the local directory for a library that writes itself. Raises NotImplementedError without "paths"."""

    def adopt(self, names: Collection[str]) -> None:
        """Take files that a library wrote into `location` as this draft's own, and make them durable."""

    def written(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Return this rank's entries and the durable calls so far; names need not be durable yet."""

    def seal(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Make names durable, as far as the store can; return this rank's entries and the durable calls.

        For an engine that commits itself, on every rank before the commit: else one rank of each host makes names
        durable for all. Called again, it does nothing more and returns the same.
        """

    def commit(self, entries: Sequence[Entry]) -> CommitProof:
        """Commit the checkpoint, as `Store.commit` does: for an engine that commits itself, on one rank."""

    def abort(self) -> None:
        """Remove what this rank wrote of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectPlace:
    """Where a library of a job finds a checkpoint in a bucket. It holds no secret: the library finds keys by itself.

    ``endpoint`` is the URL that is asked, empty where the library finds it by itself; ``ca_bundle`` as of an `Access`;
    with ``is_open`` nobody is asked who he is.
    """

    url: str
    endpoint: str
    region: str
    ca_bundle: str
    is_open: bool


class ReplayedCalls(Protocol):
    """Makes the calls of a recorded job in a draft. Threads call it side by side, no two of them on one file."""

    def make(self, step: Step) -> None:
        """Make the calls of a step. Raises OSError of the storage."""

    def close(self) -> None:
        """Close what the job left open."""


class ReplayDraft(Draft, Protocol):
    """A draft of a target with paths, which a recorded job can be replayed in."""

    def replay(self, files: Mapping[int, ReplayedFile], data: Mapping[int, Buffer]) -> ReplayedCalls:
        """Begin a replay of ``files``, by their numbers; ``data`` is what each is to hold."""


class DraftOfObjects(Draft, Protocol):
    """A draft in a bucket, where a library may write its own objects; `adopt` then asks the store for them."""

    def place(self) -> ObjectPlace:
        """Return where they belong."""

    def in_our_words(self, error: BaseException, library: str, what: str, place: str) -> Exception:
        """Return what a library met as an OSError without its words, which may repeat keys.

        It is an EOFError where an object has no such bytes.
        """


class Source(Protocol):
    """One file or object of a committed checkpoint, open for reading. ``size`` in bytes, ``way`` as of a `Sink`."""

    size: int

    @property
    def way(self) -> str:
        """How requests pass the client's page cache."""

    def read_into(self, offset: int, buffer: Buffer) -> int:
        """Read until the buffer is full or the file ends; return the bytes. Safe from several threads."""

    def close(self) -> None:
        """Close it."""


class ReadableFile(Protocol):
    """A file of a committed checkpoint as a file object, for a library that reads in an order of its own.

    ``error`` is the first OSError that a call met: libraries turn what their file raises into errors of their own.
    """

    error: OSError | None

    @property
    def size(self) -> int:
        """Its size in bytes, as it is now."""

    def readinto(self, buffer: Buffer) -> int:
        """Read until ``buffer`` is full or the file ends."""

    def read(self, size: int = -1, /) -> bytes | None:
        """Read some bytes."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to a place."""

    def tell(self) -> int:
        """Return the place."""

    def close(self) -> None:
        """Close it."""


class CommittedCheckpoint(Protocol):
    """A committed checkpoint. Every file that is opened is opened, read and closed in phases of whoever opened it."""

    def entries(self) -> Sequence[Entry]:
        """Return all files of it."""

    def source(self, name: str, *, fresh: bool = False) -> Source:
        """Open a file of it for reads at offsets. Raises OSError (ENOENT: it is not there).

        ``fresh``: every read comes from the storage, as far as the store can see to it, also one of the same bytes.
        """

    def file(self, name: str) -> ReadableFile:
        """Open a file of it as a file object. Raises OSError (ENOENT: it is not there)."""

    def local_path(self, name: str) -> str | None:
        """Return where a file of it lies, for mmap and libraries that open files; None where it has no path."""


class CommittedObjects(CommittedCheckpoint, Protocol):
    """A committed checkpoint in a bucket, which a library may read by itself."""

    def place(self) -> ObjectPlace:
        """Return where its objects are."""

    def in_our_words(self, error: BaseException, library: str, what: str, place: str) -> Exception:
        """Return what a library met, as of a `DraftOfObjects`."""

    def sizes(self, names: Collection[str]) -> Mapping[str, int]:
        """Return the bytes of those of its objects that are there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CachedBytes:
    """How much of some files this client's cache holds. Bytes."""

    resident_bytes: int
    bytes: int


class Store(Protocol):
    """An area, attached. Calls of one store come from one process; none of them is collective.

    Any OSError of the storage is let through. ``capabilities`` are those of the target as this process has it.
    ``wants_entries`` says that a commit needs the entries of all ranks (a marker names them), and not only their end.
    ``of_each_host``: every host has one of its own, as a local tier; one rank of each host does there what rank 0 does.
    """

    capabilities: frozenset[Capability]
    wants_entries: bool
    of_each_host: bool

    def is_reachable(self) -> bool:
        """Return whether the area is there for this process."""

    def prepare(self, subject: str) -> None:
        """Make what all checkpoints of a subject need; called by every rank before the first of them."""

    def is_prepared(self, subject: str) -> bool:
        """Return whether this client sees what `prepare` made."""

    def begin(self, ref: CheckpointRef, phases: Phases) -> Draft:
        """Begin this rank's part of a checkpoint; ranks of the same checkpoint begin in any order."""

    def announce(self, ref: CheckpointRef) -> None:
        """Make what all ranks begin a checkpoint in, where there is such; called by rank 0, on several hosts alone."""

    def sees_draft(self, ref: CheckpointRef) -> bool:
        """Return whether this client sees what was announced."""

    def sees(self, ref: CheckpointRef, entries: Collection[Entry]) -> bool:
        """Return whether this client sees a committed checkpoint, and files of it with all of their bytes."""

    def commit(self, ref: CheckpointRef, entries: Sequence[Entry], phases: Phases) -> CommitProof:
        """Commit a checkpoint of which all ranks have sealed their drafts; called by rank 0."""

    def is_committed(self, ref: CheckpointRef) -> bool:
        """Return whether it stands there as a checkpoint, and no longer as a draft."""

    def put(self, name: str, data: bytes, when: Literal["always", "if absent"] = "always") -> bool:
        """Write a small file in the area's top (a pointer, a marker); return False where ``when`` forbade it."""

    def committed(self, subject: str) -> Sequence[int]:
        """Return the numbers of a subject's checkpoints that are committed, lowest first."""

    def open(self, ref: CheckpointRef, phases: Phases) -> CommittedCheckpoint:
        """Return a committed checkpoint. Raises OSError (ENOENT: there is none), at the first of its files at last."""

    def delete(self, ref: CheckpointRef, names: Collection[str]) -> None:
        """Delete this rank's files of a checkpoint, committed or not."""

    def finish_delete(self, ref: CheckpointRef) -> None:
        """Remove what is left of a checkpoint when all ranks have deleted their files; called by rank 0."""

    def clear(self, subject: str) -> None:
        """Remove what `prepare` made, when all checkpoints of the subject are deleted; called by rank 0."""

    def find_gauge(self, subject: str) -> str | None:
        """Find what counts how much of a file this client's cache holds; None where nothing tells the truth here."""

    def cached(self, ref: CheckpointRef, names: Collection[str], probe: str) -> CachedBytes:
        """Return how much of files this client's cache holds, by a probe that `find_gauge` found."""

    def evict(self, ref: CheckpointRef, names: Collection[str]) -> str:
        """Ask this client's cache to let go of files that are durable; return how."""

    def drop_cache(self) -> str | None:
        """Empty the cache of this whole host; return how, None where this process may not."""

    def drop_names(self) -> bool:
        """Drop names and attributes of files that this host remembers; return whether this process may."""

    def requests(self) -> Tallies:
        """Return what was counted of the requests that were sent over the network from here."""

    def close(self) -> None:
        """Let go of connections and descriptors."""


class StoreOnVolume(Store, Protocol):
    """A store with the capability "volume": it knows the space that it shares with others, and may fill it."""

    def volume(self, subject: str) -> Volume:
        """Return the volume as it is now."""

    def write_ballast(self, subject: str, name: str, pieces: Iterable[Buffer]) -> None:
        """Write a file that only takes space, durably; each piece is free again when the next one is requested.

        Raises OSError (ENOSPC, EDQUOT) if there is no space.
        """

    def delete_ballast(self, subject: str, name: str) -> None:
        """Remove such a file if it is there."""


class AreaView(Protocol):
    """The directory of an area, as this host sees it: whether it is the directory that other hosts see."""

    @property
    def is_directory(self) -> bool:
        """Whether there is a directory at all."""

    @property
    def mount(self) -> HostMount:
        """The mount that the directory is on."""

    @property
    def storage(self) -> StorageStack:
        """What lies below the directory, and why the count of cached pages misses a cache there."""

    @property
    def free_bytes(self) -> int:
        """The space that is free for this process; 0 where there is no directory."""

    @property
    def device(self) -> str:
        """The device of the directory's file system as the kernel numbers it, ``major:minor``. Raises OSError."""

    def shown(self, sign: Marker) -> AbstractContextManager[str]:
        """Make a file for other hosts, and remove it; give why that cannot be done, empty where it is done."""

    def instead_of(self, sign: Marker, seconds: float) -> str:
        """Look for a file that another host made, for so long; return what was there instead, empty if it is found."""


class StoreOfPaths(Store, Protocol):
    """A store whose area has a path, whose files become durable by fsync, and whose snapshots show in a directory."""

    def sync_names(self, ref: CheckpointRef, phases: Phases) -> NamesProof:
        """Make the names of files durable that ranks of this host have written and fsynced; called by one of them."""

    def sighting(self) -> AreaView:
        """Return the area's directory as this host sees it."""

    def fsync_counts(self, subject: str) -> FsyncCounts:
        """Fsync a file in the subject's directory, and return what the kernel counted. Raises OSError."""

    def replaced(self) -> str:
        """Return what has taken the place of the run's directory, in words; empty where nothing has."""

    def clone(self, stated: str) -> tuple[Store, str]:
        """Return the area as a snapshot in the directory ``stated`` shows it, and why this host sees none."""


class TierStore(Store, Protocol):
    """A store of which every host has one of its own."""

    def settle(self) -> None:
        """Make the area where this host has none yet; called by one rank of each host."""

    def leave(self, subjects: Collection[str]) -> None:
        """Remove the area that was made here, with all that is in it of these subjects."""

"""The interface between a run and its storage: targets, stores, and the files of checkpoints.

An area is the directory or prefix of one run on a target. It contains the checkpoints of each subject (a model and how
it is saved). Only the controller uses a `Target`. Ranks, checks, a second client and the clean-up open an area as a
`Store`, by its `AreaRef`. Processes exchange this reference; they do not construct paths.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from pytest_ckpt.facts.across_hosts import HostMount, Marker
    from pytest_ckpt.facts.failure import Phase
    from pytest_ckpt.facts.pattern import Step
    from pytest_ckpt.facts.proofs import CommitProof, DurabilityProof, Entry, FsyncCounts, NamesProof
    from pytest_ckpt.facts.requests import Tallies
    from pytest_ckpt.facts.targets import AreaRef, Capability, CheckpointRef, Leftover, Names, StorageStack, TargetFacts
    from pytest_ckpt.sizing.files import ReplayedFile
    from pytest_ckpt.sizing.near_full import Volume


Buffer = Any
"""A writable or readable object with the buffer protocol: memoryview, bytearray, an array of numpy."""


class Phases(Protocol):
    """A timer for the phases of an operation.

    A save has the phases open, write, fsync, close, directory and commit. A load has the phases open, read and close.
    The store times its own calls. The user of a `Sink` or a `Source` times its calls as write or read, including
    related work such as serialisation.
    """

    def phase(self, name: Phase, file: str = "") -> AbstractContextManager[None]:
        """During a ``with`` block, measure the time as phase ``name``, and record ``file`` as the current file."""

    def moved(self, count: int) -> None:
        """Report ``count`` more transferred bytes. The watchdog counts them as progress."""


class Target(Protocol):
    """The storage under test, as the controller uses it. Each scheme has its own class (facts.targets.TARGETS)."""

    def describe(self) -> TargetFacts:
        """Return the facts that are known without access to the target. They do not include its capacity."""

    def check(self) -> TargetFacts:
        """Return the facts of the target; nothing is written.

        Raises UsageError if checkpoints cannot be stored there.
        """

    def place(self) -> AreaRef:
        """Return the target itself as an area.

        Ranks use it to test whether they reach the target, before a run has an area.
        """

    def create_area(self, run_id: str) -> AreaRef:
        """Create the area of a run, with its owner's record. If this fails, remove the area and raise UsageError."""

    def leftovers(self) -> Sequence[Leftover]:
        """Return areas of earlier runs whose controller has ended or is on another host."""

    def clean(self, area: AreaRef, names: Names, deadline_seconds: float, *, keep_area: bool = False) -> list[str]:
        """Remove the run's files, in a separate process. Return one sentence for each file that remains.

        With ``keep_area``, the area itself is kept for another launch.
        """


class Sink(Protocol):
    """A file or object that is being written.

    `write_at` writes at multiples of ``alignment`` bytes. The caller pads the data to such a multiple; `finish` removes
    the padding. If ``part_bytes`` is set, `write_at` writes complete parts of this size; only the last part may be
    smaller.
    """

    alignment: int
    part_bytes: int | None

    @property
    def io_mode(self) -> str:
        """The I/O mode, as text for the report: direct, or through the client's page cache."""

    def write(self, data: Buffer) -> int:
        """Append all of ``data``; return the number of its bytes."""

    def write_at(self, offset: int, data: Buffer) -> None:
        """Write ``data`` at an offset, and return when its memory can be reused.

        Each range is written once, in any order, by any thread.
        """

    def finish(self) -> Entry:
        """Make the file durable, as far as the store can, and close it; return its entry."""

    def abort(self) -> None:
        """Close the file without completing it. The written bytes are not used."""


class CachedSink(Sink, Protocol):
    """A file whose bytes may stay in the client's page cache for some time."""

    def start_writeback(self, offset: int, count: int) -> None:
        """Let the kernel start to write a range from the page cache to the storage, without waiting for the end."""


class Draft(Protocol):
    """The files that one rank saves for a checkpoint. The commit turns the drafts of all ranks into a checkpoint."""

    def create(self, name: str, size: int | None) -> Sink:
        """Begin a file of ``size`` bytes. None: the size is unknown, and only `Sink.write` is used.

        From this call on, the proof of durability counts the file. Raises FileExistsError if it exists.
        """

    def location(self) -> str:
        """Return the local directory for a library that writes files itself.

        Raises NotImplementedError if the target does not have the capability "paths".
        """

    def adopt(self, names: Collection[str]) -> None:
        """Add files that a library wrote into `location` to this draft, and make them durable."""

    def written(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Return this rank's entries, and a proof of the fsyncs so far. Names need not be durable yet."""

    def seal(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Make names durable, as far as the store can. Return this rank's entries, and a proof of the fsyncs.

        If the engine's library commits, every rank calls this method before the commit. If not, one rank of each host
        makes the names of all ranks of the host durable (`StoreOfPaths.sync_names`). Repeated calls return the same
        result.
        """

    def commit(self, entries: Sequence[Entry]) -> CommitProof:
        """Commit the checkpoint, for an engine whose library commits.

        One rank calls this method; see `Store.commit`.
        """

    def abort(self) -> None:
        """Remove this rank's files of the draft."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectPlace:
    """The location of a checkpoint in a bucket, for a job's library. It contains no credentials.

    ``endpoint`` is the URL for requests; empty if the library finds the URL itself. ``ca_bundle`` is the same as in an
    `Access`. With ``is_open``, requests are anonymous.
    """

    url: str
    endpoint: str
    region: str
    ca_bundle: str
    is_open: bool


class ReplayedCalls(Protocol):
    """Performs the calls of a recorded job in a draft. Several threads may use it concurrently, for different files."""

    def make(self, step: Step) -> None:
        """Perform the calls of a step. Raises OSError of the storage."""

    def close(self) -> None:
        """Close the descriptors that the job left open."""


class ReplayDraft(Draft, Protocol):
    """A draft on a target with paths, in which the calls of a recorded job can be replayed."""

    def replay(self, files: Mapping[int, ReplayedFile], data: Mapping[int, Buffer]) -> ReplayedCalls:
        """Begin a replay of ``files``, by file number; ``data`` contains the content of each file."""


class DraftOfObjects(Draft, Protocol):
    """A draft in a bucket, in which a library may write its own objects. `adopt` then queries the store for them."""

    def place(self) -> ObjectPlace:
        """Return the place of the draft's objects, for a library that writes them itself."""

    def translate_error(self, error: BaseException, library: str, what: str, place: str) -> Exception:
        """Return a library's error as an OSError, without the library's text, which may contain access keys.

        If the stored object is too short for the requested range, the result is an EOFError.
        """


class Source(Protocol):
    """A file or object of a committed checkpoint, open for reading. ``size`` is in bytes."""

    size: int

    @property
    def io_mode(self) -> str:
        """The I/O mode, as text for the report: direct, or through the client's page cache."""

    def read_into(self, offset: int, buffer: Buffer) -> int:
        """Read until the buffer is full or the file ends; return the number of bytes. Safe for several threads."""

    def close(self) -> None:
        """Close the file."""


class ReadableFile(Protocol):
    """A file of a committed checkpoint as a file object, for a library that reads files itself.

    ``error`` is the last OSError of a read, because libraries raise other errors instead of it.
    """

    error: OSError | None

    @property
    def size(self) -> int:
        """The current size in bytes."""

    def readinto(self, buffer: Buffer) -> int:
        """Read until ``buffer`` is full or the file ends."""

    def read(self, size: int = -1, /) -> bytes | None:
        """Read some bytes."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Set the position."""

    def tell(self) -> int:
        """Return the position."""

    def close(self) -> None:
        """Close the file."""


class CommittedCheckpoint(Protocol):
    """A committed checkpoint. The ``phases`` given to `Store.open` time the calls on its files."""

    def entries(self) -> Sequence[Entry]:
        """Return all files of the checkpoint."""

    def source(self, name: str, *, fresh: bool = False) -> Source:
        """Open a file of the checkpoint for reads at offsets. Raises OSError (ENOENT if the file does not exist).

        With ``fresh``, every read comes from the storage, as far as the store can ensure this. Repeated reads of the
        same bytes do too.
        """

    def file(self, name: str) -> ReadableFile:
        """Open a file of the checkpoint as a file object. Raises OSError (ENOENT if the file does not exist)."""

    def local_path(self, name: str) -> str | None:
        """Return the path of a file, for mmap and for libraries that open files; None if there is no path."""


class CommittedObjects(CommittedCheckpoint, Protocol):
    """A committed checkpoint in a bucket, which a library may read itself."""

    def place(self) -> ObjectPlace:
        """Return the place of the checkpoint's objects, for a library that reads them itself."""

    def translate_error(self, error: BaseException, library: str, what: str, place: str) -> Exception:
        """Return a library's error as in `DraftOfObjects.translate_error`."""

    def sizes(self, names: Collection[str]) -> Mapping[str, int]:
        """Return {name: size in bytes} of the objects that exist."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CachedBytes:
    """Bytes of some files: in this client's cache (``resident_bytes``), and in total (``bytes``)."""

    resident_bytes: int
    bytes: int


class Store(Protocol):
    """An open area, used by one process. Its calls are not collective: no call waits for other processes.

    An OSError of the storage is passed to the caller. ``capabilities`` are the target's capabilities for this process.
    With ``wants_entries``, a commit needs the entries of all ranks, because a marker lists them. With ``of_each_host``,
    every host has a separate area, as in a local tier. One rank of each host then does the work of rank 0.
    """

    capabilities: frozenset[Capability]
    wants_entries: bool
    of_each_host: bool

    def is_reachable(self) -> bool:
        """Return whether this process sees the area."""

    def prepare(self, subject: str) -> None:
        """Create the directories that all checkpoints of a subject share.

        Every rank calls this method before the first checkpoint.
        """

    def is_prepared(self, subject: str) -> bool:
        """Return whether this client sees the result of `prepare`."""

    def begin(self, ref: CheckpointRef, phases: Phases) -> Draft:
        """Return a draft in which this rank writes its files of a checkpoint. Ranks may begin in any order."""

    def announce(self, ref: CheckpointRef) -> None:
        """Create the directory of a checkpoint, if the store has directories.

        Rank 0 calls this method if there are several hosts.
        """

    def shows_draft(self, ref: CheckpointRef) -> bool:
        """Return whether this client sees the directory that `announce` created."""

    def sees(self, ref: CheckpointRef, entries: Collection[Entry]) -> bool:
        """Return whether this client sees a committed checkpoint, with all ``entries`` at their sizes."""

    def commit(self, ref: CheckpointRef, entries: Sequence[Entry], phases: Phases) -> CommitProof:
        """Commit a checkpoint. Rank 0 calls this method when the files of all ranks are durable."""

    def is_committed(self, ref: CheckpointRef) -> bool:
        """Return whether this client sees the checkpoint as committed. A draft next to it must no longer be visible."""

    def put(self, name: str, data: bytes, when: Literal["always", "if absent"] = "always") -> bool:
        """Write a small file (a pointer, a marker) at the top of the area.

        If ``when`` is "if absent" and the file exists, return False.
        """

    def committed(self, subject: str) -> Sequence[int]:
        """Return the numbers of a subject's committed checkpoints, lowest first."""

    def open(self, ref: CheckpointRef, phases: Phases) -> CommittedCheckpoint:
        """Return a committed checkpoint.

        If it does not exist, this call or the opening of a file raises OSError (ENOENT).
        """

    def delete(self, ref: CheckpointRef, names: Collection[str]) -> None:
        """Delete this rank's files of a checkpoint, committed or not."""

    def finish_delete(self, ref: CheckpointRef) -> None:
        """Remove the directory of a checkpoint. Rank 0 calls this method when all ranks have deleted their files."""

    def clear(self, subject: str) -> None:
        """Remove the directories that `prepare` created.

        Rank 0 calls this method when all checkpoints of the subject are deleted.
        """

    def find_cache_probe(self, subject: str) -> str | None:
        """Return the name of a method that counts cached bytes correctly on this client; None if there is none."""

    def cached(self, ref: CheckpointRef, names: Collection[str], probe: str) -> CachedBytes:
        """Return how many bytes of files are in this client's cache. ``probe`` is a method from `find_cache_probe`."""

    def evict(self, ref: CheckpointRef, names: Collection[str]) -> str:
        """Drop files from this client's cache; return the method. The files must be durable."""

    def drop_cache(self) -> str | None:
        """Drop the cache of the whole host; return the method, None if this process has no permission."""

    def drop_names(self) -> bool:
        """Drop this host's cached names and attributes of files; return whether this process has permission."""

    def requests(self) -> Tallies:
        """Return the counts of this process's network requests, by endpoint and operation."""

    def close(self) -> None:
        """Close connections and descriptors."""


class StoreOnVolume(Store, Protocol):
    """A store with the capability "volume": it reports the free space of its volume, and can fill the volume."""

    def volume(self, subject: str) -> Volume:
        """Return the used and the free space of the volume at this moment."""

    def write_ballast(self, subject: str, name: str, pieces: Iterable[Buffer]) -> None:
        """Write a durable file that only occupies space.

        A piece is no longer used when the next piece is requested. Raises OSError (ENOSPC, EDQUOT) if space is
        exhausted.
        """

    def delete_ballast(self, subject: str, name: str) -> None:
        """Remove a file that `write_ballast` wrote, if it exists."""


class AreaView(Protocol):
    """The directory of an area, as this host sees it. A run checks that all hosts see the same directory."""

    @property
    def is_directory(self) -> bool:
        """Whether the directory exists."""

    @property
    def mount(self) -> HostMount:
        """The mount that contains the directory."""

    @property
    def storage(self) -> StorageStack:
        """The layers of storage below the directory, and the caches whose pages cannot be counted."""

    @property
    def free_bytes(self) -> int:
        """The free space for this process in bytes; 0 if the directory does not exist."""

    @property
    def device(self) -> str:
        """The device of the directory's file system in the kernel's form ``major:minor``. Raises OSError."""

    def shown(self, sign: Marker) -> AbstractContextManager[str]:
        """During a ``with`` block, show a file to other hosts.

        Yield an empty text, or the reason if this is impossible.
        """

    def instead_of(self, sign: Marker, seconds: float) -> str:
        """Look for another host's file for at most ``seconds``.

        Return an empty text, or the reason why it was not found.
        """


class NamesDirectory(Protocol):
    """A directory for many empty files. Paths are relative to it; an empty path is the directory itself.

    Every method is one call on the target. It raises OSError.
    """

    def make_directory(self, path: str) -> None:
        """Create a directory, which must not exist."""

    def create(self, path: str) -> None:
        """Create an empty file, which must not exist, and close it."""

    def has_name(self, path: str) -> bool:
        """Return whether the target finds a path."""

    def names(self, path: str) -> Iterable[str]:
        """Yield the names in a directory. A name that the target lists twice is yielded twice."""

    def unlink(self, path: str) -> None:
        """Remove a file."""

    def remove_directory(self, path: str = "") -> None:
        """Remove an empty directory."""


class StoreOfPaths(Store, Protocol):
    """A store with paths: its files become durable by fsync, and its snapshots are directories."""

    def sync_names(self, ref: CheckpointRef, phases: Phases) -> NamesProof:
        """Fsync the checkpoint's directory, so that the names of this host's files become durable.

        One rank of each host calls this method when all ranks of the host have fsynced their files.
        """

    def host_view(self) -> AreaView:
        """Return a view of the area's directory from this host."""

    def names_directory(self, name: str) -> NamesDirectory:
        """Return a directory at the top of the area, which need not exist yet."""

    def fsync_counts(self, subject: str) -> FsyncCounts:
        """Fsync a new test file; return how many of its bytes were not on the device before and after the fsync.

        The counts come from the kernel. Raises OSError.
        """

    def replaced(self) -> str:
        """Return a sentence if another directory has replaced the run's directory; empty if not."""

    def clone(self, stated: str) -> tuple[Store, str]:
        """Return the area in the snapshot directory ``stated``, and the reason why it is not a snapshot on this host.

        The reason is empty for a snapshot.
        """


class TierStore(Store, Protocol):
    """A store with a separate area on every host."""

    def settle(self) -> None:
        """Create the area, unless it exists on this host. One rank of each host calls this method."""

    def leave(self, subjects: Collection[str]) -> None:
        """Remove this host's area if `settle` created it, with all files of these subjects."""


class WrappedDraft:
    """Base of drafts with their own way to create files. Another draft, ``draft``, seals, commits and aborts."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def written(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Return this rank's entries, and a proof of the fsyncs so far."""
        return self._draft.written()

    def seal(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Make names durable; return this rank's entries, and a proof of the fsyncs."""
        return self._draft.seal()

    def commit(self, entries: Sequence[Entry]) -> CommitProof:
        """Commit the checkpoint."""
        return self._draft.commit(entries)

    def abort(self) -> None:
        """Remove this rank's files of the checkpoint."""
        self._draft.abort()

"""The interface between a run and its storage: targets, stores, and the files of checkpoints.

An area is the directory or prefix of one run on a target. The area contains the checkpoints of each subject (a model
and how it is saved). Only the controller uses a `Target`. Ranks, checks, a second client and the clean-up open an area
as a `Store`, by an `AreaRef`. Processes send an `AreaRef` to each other; they do not construct paths.
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

    A save has the phases open, write, fsync, close, directory and commit. A load has the phases open, read and close. A
    store times its own system calls or requests. The caller of a `Sink` or a `Source` measures the phase write or read,
    which includes related work such as serialization.
    """

    def phase(self, name: Phase, file: str = "") -> AbstractContextManager[None]:
        """Count the time of the ``with`` block as phase ``name``, and record ``file`` as the current file."""

    def moved(self, count: int) -> None:
        """Report ``count`` more transferred bytes. The watchdog counts them as progress."""


class Target(Protocol):
    """The storage under test, as the controller uses it. Each URL scheme has its own class (facts.targets.TARGETS)."""

    def describe(self) -> TargetFacts:
        """Return the facts that are known without access to the target. The capacity is not one of these facts."""

    def check(self) -> TargetFacts:
        """Return the facts of the target; nothing is written.

        Raises UsageError if the target cannot store checkpoints.
        """

    def place(self) -> AreaRef:
        """Return the target itself as an area.

        Before a run has an area, ranks use this area to test whether they reach the target.
        """

    def create_area(self, run_id: str) -> AreaRef:
        """Create the area of a run, with its owner's record. If this fails, remove the area and raise UsageError."""

    def leftovers(self) -> Sequence[Leftover]:
        """Return the areas of earlier runs whose controller has ended or ran on another host."""

    def clean(self, area: AreaRef, names: Names, deadline_seconds: float, *, keep_area: bool = False) -> list[str]:
        """Remove the run's files, in a separate process. Return one sentence for each file that remains.

        If ``keep_area`` is true, the area itself is kept for another launch of the run.
        """


class Sink(Protocol):
    """A file or object that is being written.

    `write_at` writes at multiples of ``alignment`` bytes. The caller pads the data to a multiple of ``alignment``;
    `finish` removes the padding. If ``part_bytes`` is set, each call of `write_at` writes one complete part of this
    size. Only the last part may be smaller.
    """

    alignment: int
    part_bytes: int | None

    @property
    def io_mode(self) -> str:
        """The I/O mode, as text for the report: direct, or through the client's page cache."""

    def write(self, data: Buffer) -> int:
        """Append all of ``data``; return the number of its bytes."""

    def write_at(self, offset: int, data: Buffer) -> None:
        """Write ``data`` at an offset. After the return, the caller may reuse the memory of ``data``.

        Each range is written once. Ranges may be written in any order and by any thread.
        """

    def finish(self) -> Entry:
        """Make the file durable, as far as the store can, and close it; return its entry."""

    def abort(self) -> None:
        """Close the file without completing it. The written bytes are not used."""


class CachedSink(Sink, Protocol):
    """A file whose written bytes may remain in the client's page cache for some time."""

    def start_writeback(self, offset: int, count: int) -> None:
        """Start to write a range from the page cache to the storage; do not wait for the end."""


class Draft(Protocol):
    """The files that one rank saves for a checkpoint. The commit turns the drafts of all ranks into a checkpoint."""

    def create(self, name: str, size: int | None) -> Sink:
        """Create a file of ``size`` bytes and return it. None: the size is unknown, and only `Sink.write` may be used.

        From this call on, the proof of durability counts the file. Raises FileExistsError if the file exists.
        """

    def location(self) -> str:
        """Return the path of a local directory, for a library that writes files itself.

        Raises NotImplementedError if the target does not have the capability "paths".
        """

    def adopt(self, names: Collection[str]) -> None:
        """Add files that a library wrote to the directory `location`, and make the files durable."""

    def written(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Return this rank's entries, and a proof of the fsyncs so far. The files' names may not be durable yet."""

    def seal(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Make the files' names durable, as far as the store can; return this rank's entries and a proof of the fsyncs.

        If the engine's library commits, every rank calls this method before the commit. Otherwise one rank of each host
        makes the names of all files of its host durable (`StoreOfPaths.sync_names`). Repeated calls return the same
        result.
        """

    def commit(self, entries: Sequence[Entry]) -> CommitProof:
        """Commit the checkpoint. This method is only for engines whose library commits.

        One rank calls it. For other engines, rank 0 calls `Store.commit`.
        """

    def abort(self) -> None:
        """Remove this rank's files of the draft."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectPlace:
    """The location of a checkpoint in a bucket, for the library of a job. It contains no credentials.

    ``endpoint`` is the URL for requests. It is empty if the library chooses the URL. ``ca_bundle`` has the meaning that
    it has in `Access`. If ``is_open`` is true, requests are anonymous.
    """

    url: str
    endpoint: str
    region: str
    ca_bundle: str
    is_open: bool


class ReplayedCalls(Protocol):
    """Performs the calls of a recorded job in a draft. Several threads may use it concurrently, for different files."""

    def make(self, step: Step) -> None:
        """Perform the system calls of a recorded step. Raises the OSError that the storage returns."""

    def close(self) -> None:
        """Close the descriptors that the recorded job left open."""


class ReplayDraft(Draft, Protocol):
    """A draft on a target with paths, in which the calls of a recorded job can be replayed."""

    def replay(self, files: Mapping[int, ReplayedFile], data: Mapping[int, Buffer]) -> ReplayedCalls:
        """Begin a replay of a recorded job. ``files`` is {file number: file}; ``data`` is {file number: content}."""


class DraftOfObjects(Draft, Protocol):
    """A draft in a bucket, in which a library may write its own objects.

    The method `adopt` then queries the store for these objects.
    """

    def place(self) -> ObjectPlace:
        """Return the place of the draft's objects, for a library that writes them itself."""

    def translate_error(self, error: BaseException, library: str, what: str, place: str) -> Exception:
        """Return a library's error as an OSError. It omits the library's text, which may contain access keys.

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

    ``error`` is the most recent OSError of a read. It is kept because libraries replace this OSError by other errors.
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
    """A committed checkpoint. Calls on its files are timed by the ``phases`` that `Store.open` received."""

    def entries(self) -> Sequence[Entry]:
        """Return all files of the checkpoint."""

    def source(self, name: str, *, fresh: bool = False) -> Source:
        """Open a file of the checkpoint for reads at offsets. Raises OSError (ENOENT if the file does not exist).

        If ``fresh`` is true, every read comes from the storage, as far as the store can ensure this. A repeated read of
        the same bytes also comes from the storage.
        """

    def file(self, name: str) -> ReadableFile:
        """Open a file of the checkpoint as a file object. Raises OSError (ENOENT if the file does not exist)."""

    def local_path(self, name: str) -> str | None:
        """Return the path of a file, for mmap and for libraries that open files. None if the target has no paths."""


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
    If ``wants_entries`` is true, a commit needs the entries of all ranks, because a marker lists all entries. If
    ``of_each_host`` is true, every host has a separate area, as in a local tier. One rank of each host then performs
    the calls that otherwise only rank 0 performs.
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
        """Return whether this client sees the directories that `prepare` created."""

    def begin(self, ref: CheckpointRef, phases: Phases) -> Draft:
        """Return a draft in which this rank writes its files of a checkpoint. Ranks may begin in any order."""

    def announce(self, ref: CheckpointRef) -> None:
        """Create the directory of a checkpoint, if the store has directories.

        Rank 0 calls this method if there are several hosts.
        """

    def shows_draft(self, ref: CheckpointRef) -> bool:
        """Return whether this client sees the directory that `announce` created."""

    def sees(self, ref: CheckpointRef, entries: Collection[Entry]) -> bool:
        """Return whether this client sees a committed checkpoint with all ``entries``, each with the stated size."""

    def commit(self, ref: CheckpointRef, entries: Sequence[Entry], phases: Phases) -> CommitProof:
        """Commit a checkpoint. Rank 0 calls this method when the files of all ranks are durable."""

    def is_committed(self, ref: CheckpointRef) -> bool:
        """Return whether this client sees the checkpoint as committed, and no longer sees a draft of it."""

    def put(self, name: str, data: bytes, when: Literal["always", "if absent"] = "always") -> bool:
        """Write a small file (a pointer to a checkpoint, a marker) at the top of the area.

        If ``when`` is "if absent" and the file exists, the result is False.
        """

    def committed(self, subject: str) -> Sequence[int]:
        """Return the numbers of a subject's committed checkpoints, lowest first."""

    def open(self, ref: CheckpointRef, phases: Phases) -> CommittedCheckpoint:
        """Return a committed checkpoint.

        If the checkpoint does not exist, this call or the opening of a file raises OSError (ENOENT).
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
        """Return the name of a method that counts cached bytes correctly on this client; None if no method does."""

    def cached(self, ref: CheckpointRef, names: Collection[str], probe: str) -> CachedBytes:
        """Return how many bytes of files are in this client's cache. ``probe`` is the result of `find_cache_probe`."""

    def evict(self, ref: CheckpointRef, names: Collection[str]) -> str:
        """Drop files from this client's cache; return the method. The files must be durable."""

    def drop_cache(self) -> str | None:
        """Drop the cache of the whole host; return the method. None if this process has no permission."""

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

        The caller may reuse the memory of a piece when this method requests the next piece. Raises OSError (ENOSPC,
        EDQUOT) if the space is exhausted.
        """

    def delete_ballast(self, subject: str, name: str) -> None:
        """Remove a file that `write_ballast` wrote, if it exists."""


class AreaView(Protocol):
    """The directory of an area, as one host sees it. A run checks that all hosts see the same directory."""

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
        """Show the marker file ``sign`` to other hosts during a ``with`` block.

        Yield an empty text, or the reason why the file cannot be created.
        """

    def instead_of(self, sign: Marker, seconds: float) -> str:
        """Look for another host's marker file ``sign`` for at most ``seconds``.

        Return an empty text if the file was found, otherwise the reason.
        """


class NamesDirectory(Protocol):
    """A directory for many empty files. Paths are relative to the directory; an empty path is the directory itself.

    Every method is one call on the target, and may raise OSError.
    """

    def make_directory(self, path: str) -> None:
        """Create a directory. The directory must not exist."""

    def create(self, path: str) -> None:
        """Create an empty file, and close it. The file must not exist."""

    def has_name(self, path: str) -> bool:
        """Return whether the target finds a path."""

    def names(self, path: str) -> Iterable[str]:
        """Yield the names in a directory. A name that the target lists twice is yielded twice."""

    def unlink(self, path: str) -> None:
        """Remove a file."""

    def remove_directory(self, path: str = "") -> None:
        """Remove an empty directory."""


class StoreOfPaths(Store, Protocol):
    """A store whose files have paths. Files become durable by fsync, and snapshots are directories."""

    def sync_names(self, ref: CheckpointRef, phases: Phases) -> NamesProof:
        """Fsync the checkpoint's directory, so that the names of this host's files become durable.

        One rank of each host calls this method when all ranks of the host have fsynced their files.
        """

    def host_view(self) -> AreaView:
        """Return a view of the area's directory from this host."""

    def names_directory(self, name: str) -> NamesDirectory:
        """Return a `NamesDirectory` for the directory ``name`` in the area. The directory may not exist yet."""

    def fsync_counts(self, subject: str) -> FsyncCounts:
        """Fsync a new test file; return how many of its bytes were not on the device before and after the fsync.

        The counts are based on counters of the kernel. Raises OSError.
        """

    def replaced(self) -> str:
        """Return a sentence if another directory has replaced the run's directory; return an empty text if not."""

    def clone(self, stated: str) -> tuple[Store, str]:
        """Return (the area in the snapshot directory ``stated``, reason).

        The reason states why ``stated`` is not a snapshot on this host. It is empty if ``stated`` is a snapshot.
        """


class TierStore(Store, Protocol):
    """A store with a separate area on every host."""

    def settle(self) -> None:
        """Create the area, unless it exists on this host. One rank of each host calls this method."""

    def leave(self, subjects: Collection[str]) -> None:
        """If `settle` created this host's area, remove it with all files of ``subjects``."""


class WrappedDraft:
    """Base class of drafts that create files in their own way. Another draft, ``draft``, seals, commits and aborts."""

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

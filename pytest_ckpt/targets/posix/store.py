"""The area of a run on a mounted file system: a directory on the target or in a local tier.

The area contains a directory for each subject (such as a model). A subject's directory contains one directory for each
checkpoint. The name of a checkpoint's directory consists of the numbers of checkpoint and attempt, so no name is used
twice. Every file is fsynced before the commit. When all ranks of a host have fsynced their files, one of them fsyncs
the directory, which makes the names durable. Rank 0 then renames the directory to commit the checkpoint (`commit`). If
a target refuses to rename directories, `PosixStoreByMarker` commits by a marker file. A local tier has the same path on
each host, but each host sees only its own tier.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, cast

from pytest_ckpt.facts.proofs import CommitProof, Entry, FsyncCounts, NamesProof
from pytest_ckpt.facts.requests import Tallies
from pytest_ckpt.facts.targets import AreaRef, Capability, CheckpointRef
from pytest_ckpt.sizing.near_full import Volume
from pytest_ckpt.support.own_names import own_name
from pytest_ckpt.targets.posix.checkpoint import (
    DirectorySyncs,
    PosixCommitted,
    PosixDraft,
    make_directory,
    retry_until_visible,
    sync_directory,
    unlink,
)
from pytest_ckpt.targets.posix.commit import BY_MARKER, BY_RENAME, Commit
from pytest_ckpt.targets.posix.direct_io import DirectSupport
from pytest_ckpt.targets.posix.fsync_effect import fsync_counts
from pytest_ckpt.targets.posix.names import MARKER, checkpoint_name, checkpoint_number
from pytest_ckpt.targets.posix.page_cache import (
    FileBelow,
    Probe,
    drop_all,
    drop_names,
    evict,
    find_cache_probe_for_all_files,
    resident_bytes,
)
from pytest_ckpt.targets.posix.run_directory import (
    PREFIX,
    DirectoryIdentity,
    PosixAreaView,
    RunDirectory,
    describe_change,
    directory_identity,
    is_of_area,
    remove,
)
from pytest_ckpt.targets.protocol import Buffer, CachedBytes, Phases

_SYNC_BYTES = 256 << 20
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY

CAPABILITIES: frozenset[Capability] = frozenset(
    {"paths", "free offsets", "rename", "locks", "page cache", "volume", "second mount"}
)

TIER_OPENER = "pytest_ckpt.targets.posix.store:open_tier"


def clone_of(stated: str, own: Path) -> tuple[Path, str]:
    """Return (the run's directory in the snapshot, reason).

    The reason states why ``stated`` is not a snapshot of ``own``. It is empty if ``stated`` is a snapshot. ``stated``
    is the path that the snapshot command printed.
    """
    clone = Path(stated) / own.name
    if not stated.startswith("/"):
        return clone, "is not the absolute path of a directory"
    try:
        if not clone.is_dir():
            return clone, f"does not show the directory {own.name} of the target"
        if clone.samefile(own) or _shows_new_file(clone, own):
            return clone, "is another way to the target itself, and no snapshot of it"
    except OSError as error:
        return clone, f"cannot be looked at: {error.strerror}"
    return clone, ""


def _shows_new_file(clone: Path, own: Path) -> bool:
    """Create a file in the run's directory ``own``; return whether ``clone`` shows this file.

    A snapshot does not show the file.
    """
    name = f"after-{secrets.token_hex(8)}"
    new = own / name
    descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        os.fsync(descriptor)
        return (clone / name).exists()
    finally:
        os.close(descriptor)
        new.unlink()


def volume_of(directory: Path) -> Volume:
    """Return the used and the free space of a directory's volume, as df shows them.

    Space that is reserved for root does not count as free.
    """
    space = os.statvfs(directory)
    used = (space.f_blocks - space.f_bfree) * space.f_frsize
    return Volume(used_bytes=used, free_bytes=space.f_bavail * space.f_frsize)


def write_ballast(path: Path, pieces: Iterable[Buffer]) -> None:
    """Write a new file, fsync it, and advise the kernel to drop its cached pages.

    If this raises OSError, the file remains with the bytes written so far.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        unsynced = 0
        for piece in pieces:
            view = memoryview(piece).cast("B")
            unsynced += len(view)
            while view:
                view = view[os.write(descriptor, view) :]
            if unsynced >= _SYNC_BYTES:
                _sync(descriptor)
                unsynced = 0
        _sync(descriptor)
    finally:
        os.close(descriptor)


def _sync(descriptor: int) -> None:
    """Fsync a file, so that its space is allocated, and advise the kernel to drop its cached pages."""
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def open_store(area: AreaRef) -> PosixStore:
    """Return the store of an area."""
    return PosixStore(Path(area.location), area)


class PosixStore:
    """The directory of a run on a mounted file system, as a store."""

    by: Commit = BY_RENAME
    capabilities = CAPABILITIES
    wants_entries = False
    of_each_host = False

    def __init__(self, directory: Path, area: AreaRef | None = None) -> None:
        self._directory = directory
        self._area = area
        self._standing: DirectoryIdentity | None = None
        self._way = DirectSupport()
        self._below: FileBelow | None = None
        self._has_looked_below = False

    def is_reachable(self) -> bool:
        """Return whether this process sees the directory."""
        return self._directory.is_dir()

    def replaced(self) -> str:
        """Return a sentence if another directory has replaced the run's directory; return an empty text if not."""
        now = directory_identity(self._directory)
        if self._standing is None:
            self._standing = now
            if self._area and not is_of_area(now, self._area):
                return f"the run's directory had inode {self._area.identity[1]}; this is {now.describe()}"
        return describe_change(self._standing, now)

    def host_view(self) -> PosixAreaView:
        """Return a view of the directory from this host."""
        return PosixAreaView(self._directory)

    def prepare(self, subject: str) -> None:
        """Create the subject's directory, unless another rank has created it."""
        make_directory(self._directory / subject)

    def is_prepared(self, subject: str) -> bool:
        """Return whether this client sees the subject's directory."""
        return _size(self._directory / subject) is not None

    def begin(self, ref: CheckpointRef, phases: Phases) -> PosixDraft:
        """Create the checkpoint's directory, unless another rank has created it; return a draft in this directory.

        The draft contains this rank's files before the commit. If the commit is a rename, the directory has a temporary
        name.
        """

        def publish(entries: Sequence[Entry]) -> CommitProof:
            return self.commit(ref, entries, phases)

        return PosixDraft(self._partial(ref), self._way, phases, publish)

    def sync_names(self, ref: CheckpointRef, phases: Phases) -> NamesProof:
        """Fsync the checkpoint's directory, so that the names of this host's files become durable."""
        directory, directories = self._partial(ref), DirectorySyncs()
        directories.count_required()
        with phases.phase("directory", directory.name):
            directories.sync(directory)
        return NamesProof(directories_attempted=directories.attempted, directories_returned=directories.returned)

    def commit(self, ref: CheckpointRef, entries: Sequence[Entry], phases: Phases) -> CommitProof:
        """Commit the checkpoint durably. The saved files are not checked."""
        final, directories = self._final(ref), DirectorySyncs()
        for _ in self.by.synced_by(final):
            directories.count_required()
        with phases.phase("commit", self.by.evidence_of(final).name):
            self.by.perform(final, _CountedCommitCalls(directories))
        return CommitProof(
            method=self.by.method,
            directories_attempted=directories.attempted,
            directories_returned=directories.returned,
        )

    def announce(self, ref: CheckpointRef) -> None:
        """Create the directory of a checkpoint before its files are written."""
        make_directory(self._partial(ref))

    def shows_draft(self, ref: CheckpointRef) -> bool:
        """Return whether this client sees the directory that `announce` created."""
        return _size(self._partial(ref)) is not None

    def sees(self, ref: CheckpointRef, entries: Collection[Entry]) -> bool:
        """Return whether this client sees the checkpoint's directory under its final name, with all ``entries``.

        The size of each file must be the size in its entry.
        """
        directory = self._final(ref)
        return _size(directory) is not None and all(_size(directory / entry.name) == entry.bytes for entry in entries)

    def is_committed(self, ref: CheckpointRef) -> bool:
        """Return whether this client sees the commit, and no longer sees the temporary directory."""
        final, draft = self._final(ref), self._partial(ref)
        return self.by.is_committed(final) and (draft == final or not draft.exists())

    def put(self, name: str, data: bytes, when: Literal["always", "if absent"] = "always") -> bool:
        """Write a file durably: create it under a temporary name, then atomically give it its final name.

        If ``when`` is "always", an existing file is replaced. If ``when`` is "if absent" and the file exists, the
        result is False.
        """
        place, made = self._directory / name, self._directory / f".{name}.{own_name()}"
        _write_new(made, data)
        try:
            if when == "always":
                made.replace(place)
            else:
                place.hardlink_to(made)
                made.unlink()
        except FileExistsError:
            made.unlink()
            return False
        sync_directory(self._directory)
        return True

    def committed(self, subject: str) -> Sequence[int]:
        """Return the numbers of the subject's checkpoints whose directories have a final name."""
        names = (entry.name for entry in (self._directory / subject).iterdir())
        return sorted(number for number in map(checkpoint_number, names) if number is not None)

    def open(self, ref: CheckpointRef, phases: Phases) -> PosixCommitted:
        """Return the checkpoint whose directory has the final name.

        If the directory does not exist, a later call raises OSError.
        """
        return PosixCommitted(self._final(ref), self._way, phases)

    def clone(self, stated: str) -> tuple[PosixStore, str]:
        """Return (the area in the snapshot directory ``stated``, reason).

        The reason states why ``stated`` is not a snapshot. It is empty if ``stated`` is a snapshot.
        """
        directory, why = clone_of(stated, self._directory)
        return type(self)(directory), why

    def delete(self, ref: CheckpointRef, names: Collection[str]) -> None:
        """Remove this rank's files. A symbolic link in place of the directory raises OSError."""
        try:
            unlink(self._final(ref), names)
        except FileNotFoundError:
            if self._final(ref).exists():
                raise
            unlink(self._partial(ref), names)

    def finish_delete(self, ref: CheckpointRef) -> None:
        """Remove the checkpoint's empty directory.

        After FileNotFoundError the removal is retried, because this client may not see the directory yet.
        """

        def remove() -> None:
            try:
                self._final(ref).rmdir()
            except FileNotFoundError:
                self._partial(ref).rmdir()

        retry_until_visible(remove)

    def clear(self, subject: str) -> None:
        """Remove the subject's empty directory."""
        (self._directory / subject).rmdir()

    def names_directory(self, name: str) -> PosixNames:
        """Return a `PosixNames` for the directory ``name`` in the area. The directory may not exist yet."""
        return PosixNames(self._directory / name)

    def fsync_counts(self, subject: str) -> FsyncCounts:
        """Fsync a new test file; return how many of its bytes were not on the device before and after the fsync."""
        return fsync_counts(self._directory / subject)

    def find_cache_probe(self, subject: str) -> str | None:
        """Return the system call that counts cached pages correctly; None if no call does.

        To test the calls, a file is written and read.
        """
        return find_cache_probe_for_all_files(self._directory / subject)

    def cached(self, ref: CheckpointRef, names: Collection[str], probe: str) -> CachedBytes:
        """Return how many bytes of files are in this host's page cache.

        If the target is on a loop device, cached pages of the backing file count too.
        """
        counts = [(path, *resident_bytes(path, cast("Probe", probe))) for path in (self._final(ref) / n for n in names)]
        below = self._file_below()
        cached = below.cached_bytes([(path, size) for path, _, size in counts]) if below else 0
        resident = max(cached, sum(of_file for _, of_file, _ in counts))
        return CachedBytes(resident_bytes=resident, bytes=sum(size for _, _, size in counts))

    def evict(self, ref: CheckpointRef, names: Collection[str]) -> str:
        """Advise the kernel to drop the cached pages of files; return the method.

        If the target is on a loop device, cached pages of the backing file are dropped too.
        """
        evict(self._final(ref) / name for name in names)
        if below := self._file_below():
            below.evict()
        return "posix_fadvise(DONTNEED) on every file after its fsync"

    def drop_cache(self) -> str | None:
        """Drop this host's page cache; return the method. None without permission."""
        return drop_all()

    def drop_names(self) -> bool:
        """Drop this host's cached names and attributes of files; return whether this process has permission."""
        return drop_names()

    def _file_below(self) -> FileBelow | None:
        """Return the files of this host that contain the target's bytes, such as a loop device's backing file.

        None if there is no such file, or if its pages cannot be counted.
        """
        if not self._has_looked_below:
            stack = self.host_view().storage
            self._below = FileBelow(stack) if stack.files and not stack.blind else None
            self._has_looked_below = True
        return self._below

    def requests(self) -> Tallies:
        """Return an empty dict, because the kernel sends the requests of a file system."""
        return {}

    def close(self) -> None:
        """Do nothing, because nothing is open between calls."""

    def volume(self, subject: str) -> Volume:
        """Return used and free space of the volume that contains the subject's directory."""
        return volume_of(self._directory / subject)

    def write_ballast(self, subject: str, name: str, pieces: Iterable[Buffer]) -> None:
        """Write a file in the subject's directory."""
        write_ballast(self._directory / subject / name, pieces)

    def delete_ballast(self, subject: str, name: str) -> None:
        """Remove the ballast file, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            (self._directory / subject / name).unlink()

    def _final(self, ref: CheckpointRef) -> Path:
        return self._directory / ref.subject / checkpoint_name(ref.number, ref.attempt)

    def _partial(self, ref: CheckpointRef) -> Path:
        return self.by.draft_of(self._final(ref))


class _CountedCommitCalls:
    """The system calls by which rank 0 commits a checkpoint. Directory fsyncs are counted."""

    def __init__(self, directories: DirectorySyncs) -> None:
        self._directories = directories

    def rename(self, old: Path, new: Path) -> None:
        """Rename a directory."""
        old.rename(new)

    def write_new(self, path: Path, data: bytes) -> None:
        """Write a new file and make its bytes durable."""
        _write_new(path, data)

    def sync_directory(self, directory: Path) -> None:
        """Fsync a directory and count the fsync."""
        self._directories.sync(directory)


def _size(path: Path) -> int | None:
    """Return a file's size as seen by this client; None if this client does not see the file.

    The error ESTALE (the client's handle refers to a removed file) also gives None.
    """
    try:
        return path.lstat().st_size
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESTALE):
            raise
        return None


def _write_new(path: Path, data: bytes) -> None:
    """Write a new file and make its bytes durable. Raises FileExistsError if the file exists."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def open_by_marker(area: AreaRef) -> PosixStoreByMarker:
    """Return the store of an area on a file system that cannot rename directories."""
    return PosixStoreByMarker(Path(area.location), area)


class PosixStoreByMarker(PosixStore):
    """The directory of a run on a file system that cannot rename directories. A marker file commits a checkpoint."""

    by = BY_MARKER
    capabilities = CAPABILITIES - {"rename"}

    def sees(self, ref: CheckpointRef, entries: Collection[Entry]) -> bool:
        """Return whether this client sees the checkpoint's complete marker file and all ``entries``.

        The size of each file must be the size in its entry.
        """
        return self.is_committed(ref) and super().sees(ref, entries)

    def committed(self, subject: str) -> Sequence[int]:
        """Return the numbers of the subject's checkpoints that have a marker file.

        The content of the marker file is not checked.
        """
        names = (entry.parent.name for entry in (self._directory / subject).glob(f"*/{MARKER}"))
        return sorted(number for number in map(checkpoint_number, names) if number is not None)

    def open(self, ref: CheckpointRef, phases: Phases) -> PosixCommitted:
        """Return the checkpoint. Raises FileNotFoundError if there is no complete marker file."""
        with phases.phase("open", MARKER):
            if not self.is_committed(ref):
                raise FileNotFoundError(errno.ENOENT, "no complete marker commits it", str(self._final(ref) / MARKER))
        return super().open(ref, phases)

    def delete(self, ref: CheckpointRef, names: Collection[str]) -> None:
        """Remove the marker file, unless another rank has removed it; then remove this rank's files."""
        with contextlib.suppress(FileNotFoundError):
            unlink(self._final(ref), [MARKER])
        super().delete(ref, names)


def open_tier(area: AreaRef) -> PosixTier:
    """Return the store of an area in a local tier."""
    return PosixTier(Path(area.location))


class PosixTier(PosixStore):
    """The directory of a run in this host's local tier.

    One rank of each host creates and removes the directory. On the controller's host, the controller does this.
    """

    of_each_host = True

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._made: RunDirectory | None = None

    def settle(self) -> None:
        """Create the directory, unless it exists on this host.

        One rank of each host calls this method. Raises UsageError.
        """
        if not self._directory.exists():
            made = RunDirectory(self._directory.parent, self._directory.name.removeprefix(PREFIX))
            made.create()
            self._made = made

    def leave(self, subjects: Collection[str]) -> None:
        """If `settle` created the directory, remove it with all files of ``subjects``."""
        if self._made:
            remove(self._made.path, self._made.identity, [f"{subject}/" for subject in subjects])
            self._made = None


class PosixNames:
    """Creates, lists and removes empty files in a directory. Paths are relative to the directory.

    Paths are strings, because creating a `Path` object would take longer than some of the system calls. An empty path
    is the directory itself.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)

    def make_directory(self, path: str) -> None:
        """Create a directory."""
        os.mkdir(f"{self._directory}/{path}", 0o700)  # noqa: PTH102 - see the class

    def create(self, path: str) -> None:
        """Create an empty file, and close it."""
        os.close(os.open(f"{self._directory}/{path}", _NEW, 0o600))

    def has_name(self, path: str) -> bool:
        """Return whether the system call stat finds a path."""
        try:
            os.stat(f"{self._directory}/{path}", follow_symlinks=False)  # noqa: PTH116 - see the class
        except FileNotFoundError:
            return False
        return True

    def names(self, path: str) -> Iterator[str]:
        """Yield the names in a directory as the target lists them. A name that is listed twice is yielded twice."""
        with os.scandir(f"{self._directory}/{path}") as entries:
            for entry in entries:
                yield entry.name

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(f"{self._directory}/{path}")  # noqa: PTH108 - see the class

    def remove_directory(self, path: str = "") -> None:
        """Remove an empty directory."""
        os.rmdir(f"{self._directory}/{path}")  # noqa: PTH106 - see the class

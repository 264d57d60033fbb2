"""The files of a checkpoint on a mounted file system: writing them, committing them, and reading them."""

from __future__ import annotations

import ctypes
import errno
import io
import os
import stat
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from pytest_ckpt.facts.across_hosts import VISIBLE_WITHIN_SECONDS
from pytest_ckpt.facts.pattern import Step, Synchronous
from pytest_ckpt.facts.proofs import CommitProof, DurabilityProof, Entry
from pytest_ckpt.sizing.files import ReplayedFile
from pytest_ckpt.targets.posix.direct_io import BLOCK_BYTES, NOT_OFFERED, DirectFile, DirectSupport
from pytest_ckpt.targets.posix.names import MARKER
from pytest_ckpt.targets.protocol import Buffer, Phases, Sink

# Large enough for a negligible cost, small enough that a slow target shows progress.
_PIECE_BYTES = 64 << 20

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

Finished = Callable[[Entry], None]

_OPEN_FLAGS = {
    "create": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
    "create new": os.O_RDWR | os.O_CREAT | os.O_EXCL,
    "truncate and open": os.O_RDWR | os.O_TRUNC,
    "open": os.O_RDWR,
    "open to read": os.O_RDONLY,
}
_SYNCHRONOUS: Mapping[Synchronous, int] = {"": 0, "O_DSYNC": os.O_DSYNC, "O_SYNC": os.O_SYNC}

_POLL_SECONDS = 0.001


class DirectorySyncs:
    """Counts the directory fsyncs that were required (``attempted``) and that succeeded (``returned``).

    An fsync is required whenever a name in a directory is created or changed. If an fsync is omitted or fails,
    ``returned`` remains less than ``attempted``.
    """

    def __init__(self) -> None:
        self.attempted = 0
        self.returned = 0

    def count_required(self) -> None:
        """Count one required fsync. Call this before a name in the directory is changed."""
        self.attempted += 1

    def sync(self, directory: Path) -> None:
        """Fsync a directory, and count the successful fsync."""
        sync_directory(directory)
        self.returned += 1


def sync_directory(directory: Path) -> None:
    """Fsync a directory, which makes the names in it durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def start_writeback(descriptor: int, offset: int, count: int) -> None:
    """Start to write a range of a file from the page cache to the storage; do not wait for the end."""
    # Python has no sync_file_range; the kernel writes dirty pages before it drops them.
    os.posix_fadvise(descriptor, offset, count, os.POSIX_FADV_DONTNEED)


class SinkAtOffsets:
    """A file of known size that is being written. Its space is reserved at creation, if the file system supports this.

    Requests use direct I/O if the target supports it.
    """

    alignment = BLOCK_BYTES
    part_bytes: int | None = None

    def __init__(self, path: Path, size: int, direct: DirectSupport, phases: Phases, finished: Finished) -> None:
        self._name, self._size, self._phases, self._finished = path.name, size, phases, finished
        self._end = 0
        with phases.phase("open", path.name):
            self._file = DirectFile(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, direct, phases)
        try:
            with phases.phase("open", path.name):
                _allocate(self._file.descriptor, size)
        except BaseException:
            self.abort()
            raise

    @property
    def io_mode(self) -> str:
        """The I/O mode, as text for the report: direct, or through the client's page cache."""
        return self._file.io_mode

    def write(self, data: Buffer) -> int:
        """Append all of ``data`` to the file; return the number of its bytes."""
        count = memoryview(data).nbytes
        self.write_at(self._end, data)
        self._end += count
        return count

    def write_at(self, offset: int, data: Buffer) -> None:
        """Write complete blocks at an offset. `finish` truncates the padding of the last block."""
        wanted = memoryview(data).nbytes
        if self._file.transfer(os.pwrite, data, offset, wanted) < wanted:
            raise OSError(errno.EIO, "the target accepts no more bytes and returns no error")

    def start_writeback(self, offset: int, count: int) -> None:
        """Start to write a range from the page cache to the storage, if writes are buffered."""
        if not self._file.direct:
            start_writeback(self._file.descriptor, offset, count)

    def finish(self) -> Entry:
        """Truncate the file to its size, fsync and close it; return its entry."""
        descriptor, entry = self._file.descriptor, Entry(name=self._name, bytes=self._size)
        try:
            with self._phases.phase("write", self._name):
                # A direct request is a whole number of blocks.
                os.ftruncate(descriptor, self._size)
            with self._phases.phase("fsync", self._name):
                self._file.sync()
                self._finished(entry)
        finally:
            # Some file systems report a failed write only here.
            self.abort()
        return entry

    def abort(self) -> None:
        """Close the file."""
        with self._phases.phase("close", self._name):
            self._file.close()


class SinkInOrder(io.FileIO):
    """A file of unknown size that is being written sequentially, through the page cache."""

    alignment = 1
    part_bytes: int | None = None
    io_mode = "through the client's page cache"

    def __init__(self, path: Path, phases: Phases, finished: Finished) -> None:
        with phases.phase("open", path.name):
            super().__init__(path, "xb")
        self._base_name, self._phases, self._finished = path.name, phases, finished

    def write(self, data: Buffer) -> int:
        """Append all of ``data``, with several system calls if one call writes only some of the bytes."""
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            step = super().write(view[done : done + _PIECE_BYTES]) or 0
            done += step
            self._phases.moved(step)
        return done

    def write_at(self, offset: int, data: Buffer) -> None:
        """Raise ValueError, because this file is written sequentially."""
        raise ValueError("a file of unknown size is written in order")

    def start_writeback(self, offset: int, count: int) -> None:
        """Start to write a range from the page cache to the storage."""
        start_writeback(self.fileno(), offset, count)

    def finish(self) -> Entry:
        """Fsync and close the file; return its entry."""
        entry = Entry(name=self._base_name, bytes=self.tell())
        try:
            with self._phases.phase("fsync", self._base_name):
                os.fsync(self.fileno())
                self._finished(entry)
        finally:
            self.abort()
        return entry

    def abort(self) -> None:
        """Close the file."""
        # Some file systems report a failed write only here.
        with self._phases.phase("close", self._base_name):
            self.close()


def _allocate(descriptor: int, size: int) -> None:
    """Reserve the space of a file, so that concurrent writes do not wait for each other to extend it."""
    if _libc.fallocate(descriptor, 0, 0, size) != 0:
        number = ctypes.get_errno()
        if number not in NOT_OFFERED:
            raise OSError(number, os.strerror(number))


def _sync_file_system(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if _libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(directory))
    finally:
        os.close(descriptor)


class PosixCalls:
    """Replays a recorded save in ``directory``. ``data`` is {file number: content}.

    Several threads may use one object concurrently, for different files.
    """

    def __init__(
        self, directory: Path, files: Mapping[int, ReplayedFile], data: Mapping[int, Buffer], phases: Phases
    ) -> None:
        self._directory, self._files, self._data, self._phases = directory, files, data, phases
        self._renames = {number: file.renames for number, file in files.items()}
        # A job may have several descriptors of one file; read-only descriptors are closed first.
        self._open: dict[int, list[int]] = {number: [] for number in files}
        self._to_read: dict[int, list[int]] = {number: [] for number in files}
        self._make: Mapping[str, Callable[[Step, ReplayedFile], None]] = {
            **dict.fromkeys(_OPEN_FLAGS, self._begin),
            "write": self._write,
            "read": self._read,
            "allocate": lambda step, file: os.posix_fallocate(
                self._top(step), file.at(step.offset), max(file.at(step.offset + step.bytes) - file.at(step.offset), 1)
            ),
            "set size": lambda step, file: os.ftruncate(self._top(step), file.at(step.bytes)),
            "fsync": lambda step, _: os.fsync(self._top(step)),
            "fdatasync": lambda step, _: os.fdatasync(self._top(step)),
            "close": lambda step, _: os.close((self._to_read[step.file] or self._open[step.file]).pop()),
            "rename": self._rename,
            "unlink": lambda step, _: self._path(step.file).unlink(),
        }

    def make(self, step: Step) -> None:
        """Perform the system calls of a recorded step."""
        if step.call == "fsync directory":
            sync_directory(self._directory)
        elif step.call == "syncfs":
            _sync_file_system(self._directory)
        else:
            self._make[step.call](step, self._files[step.file])

    def close(self) -> None:
        """Close the descriptors that the recorded job left open."""
        for handles in (*self._open.values(), *self._to_read.values()):
            while handles:
                os.close(handles.pop())

    def _path(self, number: int) -> Path:
        return self._directory / self._files[number].name_before(self._renames[number])

    def _top(self, step: Step) -> int:
        return (self._open[step.file] or self._to_read[step.file])[-1]

    def _begin(self, step: Step, file: ReplayedFile) -> None:
        flags = _OPEN_FLAGS[step.call] | _SYNCHRONOUS[file.synchronous] | os.O_CLOEXEC | os.O_NOFOLLOW
        opened = self._to_read if step.call == "open to read" else self._open
        opened[step.file].append(os.open(self._path(step.file), flags, 0o644))

    def _write(self, step: Step, file: ReplayedFile) -> None:
        descriptor, data = self._top(step), memoryview(self._data[step.file])
        for number in range(step.count):
            at, stop = (file.at(step.offset + n * step.bytes) for n in (number, number + 1))
            while True:
                done = os.pwrite(descriptor, data[at : min(stop, at + _PIECE_BYTES)], at)
                if not done and at < stop:
                    raise OSError(errno.EIO, f"write: 0 bytes of {stop - at} were taken", str(self._path(step.file)))
                self._phases.moved(done)
                at += done
                if at >= stop:
                    break

    def _read(self, step: Step, file: ReplayedFile) -> None:
        descriptor = self._top(step)
        for number in range(step.count):
            at, stop = (file.at(step.offset + n * step.bytes) for n in (number, number + 1))
            into = memoryview(bytearray(stop - at))
            # A job may read less than requested at the end of a file; a short read before the end is continued.
            while into and (done := os.preadv(descriptor, [into], at)):
                into, at = into[done:], at + done

    def _rename(self, step: Step, file: ReplayedFile) -> None:
        left = self._renames[step.file] - 1
        self._path(step.file).rename(self._directory / file.name_before(left))
        self._renames[step.file] = left


class PosixDraft:
    """This rank's files of a checkpoint that is being saved in ``directory``.

    The function ``publish`` receives the entries of all ranks and commits the checkpoint.
    """

    def __init__(
        self, directory: Path, direct: DirectSupport, phases: Phases, publish: Callable[[Sequence[Entry]], CommitProof]
    ) -> None:
        self._directory, self._direct, self._phases, self._publish = directory, direct, phases, publish
        self._names: list[str] = []
        self._finished: list[Entry] = []
        self._directories = DirectorySyncs()
        with phases.phase("open", directory.name):
            make_directory(directory)

    def create(self, name: str, size: int | None) -> Sink:
        """Create a file and return it for writing. If ``size`` is None, the file can only be written sequentially."""
        self._names.append(name)
        path = self._directory / name
        if size is None:
            return SinkInOrder(path, self._phases, self._finished.append)
        return SinkAtOffsets(path, size, self._direct, self._phases, self._finished.append)

    def location(self) -> str:
        """Return the path of the directory."""
        return str(self._directory)

    def replay(self, files: Mapping[int, ReplayedFile], data: Mapping[int, Buffer]) -> PosixCalls:
        """Begin a replay of a recorded job in the directory; return the object that performs the calls of the job.

        ``files`` is {file number: file}; ``data`` is {file number: content}.
        """
        return PosixCalls(self._directory, files, data, self._phases)

    def adopt(self, names: Collection[str]) -> None:
        """Fsync files that a library wrote to the directory, and add the files to this rank's entries."""
        for name in names:
            self._names.append(name)
            with self._phases.phase("fsync", name):
                size = sync(self._directory / name)
            self._finished.append(Entry(name=name, bytes=size))

    def written(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Return the entries of this rank's fsynced files, and the proof of the fsyncs so far."""
        proof = DurabilityProof(
            files_attempted=len(self._names),
            files_returned=len(self._finished),
            directories_attempted=self._directories.attempted,
            directories_returned=self._directories.returned,
            names_pending=not self._directories.attempted,
        )
        return tuple(self._finished), proof

    def seal(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Fsync the directory at the first call; return this rank's entries and the proof of all fsyncs."""
        if not self._directories.attempted:
            self._directories.count_required()
            with self._phases.phase("directory", self._directory.name):
                self._directories.sync(self._directory)
        return self.written()

    def commit(self, entries: Sequence[Entry]) -> CommitProof:
        """Commit the checkpoint, by a rename of the directory or by a marker file."""
        return self._publish(entries)

    def abort(self) -> None:
        """Remove this rank's files. The directory remains, because other ranks may use it."""
        unlink(self._directory, self._names)


def make_directory(directory: Path) -> None:
    """Create a directory, unless another rank has created it. Raises FileExistsError for a symbolic link or a file.

    If another host has just created the parent directory, this client may not see the parent directory yet. The
    creation is therefore retried, at most for the time limit of the requirement STALE.
    """

    def create() -> None:
        try:
            directory.mkdir()
        except FileExistsError:
            if not stat.S_ISDIR(directory.lstat().st_mode):
                raise

    retry_until_visible(create)


def retry_until_visible(act: Callable[[], None]) -> None:
    """Call a function; repeat the call after FileNotFoundError, at most for the time limit of the requirement STALE.

    A file that another host has created may become visible to this client only later.
    """
    end = time.monotonic() + VISIBLE_WITHIN_SECONDS
    while True:
        try:
            return act()
        except FileNotFoundError:
            if time.monotonic() > end:
                raise
            time.sleep(_POLL_SECONDS)


def sync(file: Path) -> int:
    """Fsync a file that a library has written and closed; return its size."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def unlink(directory: Path, names: Collection[str]) -> None:
    """Remove files from a directory. If the directory is a symbolic link, OSError is raised."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for name in names:
            os.unlink(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)


# Large enough for a negligible cost, small enough that a slow target shows progress.
_READ_BYTES = 64 << 20


class PosixCommitted:
    """The files of a committed checkpoint in a directory. ``phases`` records the times of reads."""

    def __init__(self, directory: Path, direct: DirectSupport, phases: Phases) -> None:
        self._directory, self._direct, self._phases = directory, direct, phases

    def entries(self) -> Sequence[Entry]:
        """Return all files of the checkpoint except the marker file."""
        with os.scandir(self._directory) as scan:
            files = [e for e in scan if e.name != MARKER]
            return sorted(
                (Entry(name=e.name, bytes=e.stat(follow_symlinks=False).st_size) for e in files), key=lambda e: e.name
            )

    def source(self, name: str, *, fresh: bool = False) -> SourceAtOffsets:
        """Open a file for reads at offsets, with direct I/O if the target supports it."""
        kind = FreshSource if fresh else SourceAtOffsets
        return kind(self._directory / name, self._direct, self._phases)

    def file(self, name: str) -> CountedFile:
        """Open a file as a file object, through the page cache."""
        return CountedFile(self._directory / name, self._phases)

    def local_path(self, name: str) -> str:
        """Return the path of a file."""
        return str(self._directory / name)


class SourceAtOffsets:
    """An open file for reads at offsets."""

    def __init__(self, path: Path, direct: DirectSupport, phases: Phases) -> None:
        self._name, self._phases = path.name, phases
        with phases.phase("open", path.name):
            self._file = DirectFile(path, os.O_RDONLY, direct, phases)

    @property
    def size(self) -> int:
        """The current size in bytes."""
        return os.fstat(self._file.descriptor).st_size

    @property
    def io_mode(self) -> str:
        """The I/O mode, as text for the report: direct, or through the client's page cache."""
        return self._file.io_mode

    @property
    def is_direct(self) -> bool:
        """Whether the file is read with direct I/O."""
        return self._file.direct

    def read_into(self, offset: int, buffer: Buffer) -> int:
        """Read until the buffer is full or the file ends; return the number of bytes.

        The file's size is not queried before a read, because checkpoint loaders do not query it either. Some clients
        cache an old size until a process queries the size. A query would therefore hide a truncated read.
        """

        def read(descriptor: int, part: memoryview, at: int) -> int:
            return os.preadv(descriptor, [part], at)

        wanted = memoryview(buffer).nbytes
        return self._file.transfer(read, buffer, offset, wanted, is_end=lambda at: at >= self.size)

    def close(self) -> None:
        """Close the file."""
        with self._phases.phase("close", self._name):
            self._file.close()


class FreshSource(SourceAtOffsets):
    """An open file for repeated reads of the same bytes. Each read should come from the storage.

    If direct I/O is not used, the kernel is advised to drop the read pages from its cache after each read.
    """

    def __init__(self, path: Path, direct: DirectSupport, phases: Phases) -> None:
        super().__init__(path, direct, phases)
        if not self.is_direct:
            os.posix_fadvise(self._file.descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    @property
    def io_mode(self) -> str:
        """The I/O mode, as text for the report."""
        if self.is_direct:
            return "around the client's page cache"
        return "through the client's page cache, advised to drop it"

    def read_into(self, offset: int, buffer: Buffer) -> int:
        """Read until the buffer is full or the file ends; return the number of bytes."""
        count = super().read_into(offset, buffer)
        if not self.is_direct:
            os.posix_fadvise(self._file.descriptor, offset, count, os.POSIX_FADV_DONTNEED)
        return count


class CountedFile(io.FileIO):
    """A file object that reads through the page cache and counts the bytes.

    One system call reads at most 2 GiB. A short read is therefore continued.
    """

    def __init__(self, path: Path, phases: Phases) -> None:
        with phases.phase("open", path.name):
            super().__init__(path, "rb")
        self._base_name, self._phases = path.name, phases
        self.error: OSError | None = None

    @property
    def size(self) -> int:
        """The current size in bytes."""
        return os.fstat(self.fileno()).st_size

    def readinto(self, buffer: Buffer) -> int:
        """Read until ``buffer`` is full or the file ends; return the number of bytes."""
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view):
            try:
                step = super().readinto(view[done : done + _READ_BYTES]) or 0
            except OSError as error:
                self.error = error
                raise
            if not step:
                break
            done += step
            self._phases.moved(step)
        return done

    def close(self) -> None:
        """Close the file."""
        if self.closed:
            return
        with self._phases.phase("close", self._base_name):
            super().close()

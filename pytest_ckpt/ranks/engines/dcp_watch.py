"""Watches the storage calls of torch.distributed.checkpoint: times them, counts bytes and records errors.

The library's writer and reader use the file system of this module, which makes the same calls in the same order. Only a
call with more than 64 MiB is divided into several calls, so that progress is visible on a slow target.
"""

from __future__ import annotations

import io
import os
import threading
import zlib
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from torch.distributed.checkpoint.filesystem import FileSystem

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator

    from pytest_ckpt.facts.failure import Phase
    from pytest_ckpt.ranks.engines.protocol import Clock
    from pytest_ckpt.targets.protocol import Buffer

    FilePath = str | os.PathLike[str]

_PIECE_BYTES = 64 << 20


class LibraryOperation:
    """One save or load of one rank through the library. Storage calls are timed; waits for other ranks are not timed.

    ``error`` is the first OSError of a call. It is recorded, because torch does not always report it. ``sizes`` is
    {file name: size in bytes when the file was opened}. ``checksum`` is the CRC-32 of a file named in ``summed``,
    as written or read; None without such a file.
    """

    def __init__(self, clock: Clock, summed: Collection[str]) -> None:
        super().__init__()
        self._clock, self._summed = clock, summed
        # If several threads write concurrently, the clock times them as one piece of work.
        self._lock, self._inside, self._piece = threading.Lock(), 0, ExitStack()
        self.error: OSError | None = None
        self.sizes: dict[str, int] = {}
        self.checksum: int | None = None

    def moved(self, count: int) -> None:
        """Count ``count`` more transferred bytes."""
        self._clock.moved(count)

    @contextmanager
    def keeping_errors(self) -> Iterator[None]:
        """In the ``with`` block, record the first OSError. All errors are raised again."""
        try:
            yield
        except OSError as error:
            self.error = self.error or error
            raise

    @contextmanager
    def call(self, phase: Phase, name: str) -> Iterator[None]:
        """Time a short call in the ``with`` block as the phase ``phase``. ``name`` is the file.

        If a thread is inside `work`, the call is not timed separately, because the time of `work` includes it.
        """
        with self._lock, ExitStack() as piece, self.keeping_errors():
            if not self._inside:
                piece.enter_context(self._clock.activity.work())
                piece.enter_context(self._clock.phase(phase, name))
            yield

    @contextmanager
    def work(self, phase: Phase, name: str) -> Iterator[None]:
        """Time the work of a thread in the ``with`` block as the phase ``phase``. ``name`` is the file.

        If several threads work concurrently, the time from the first start to the last end counts once.
        """
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._piece.enter_context(self._clock.activity.work())
                self._piece.enter_context(self._clock.phase(phase, name))
        try:
            yield
        except BaseException:
            # The failure names this thread's file, not the file of the thread that began first.
            with self._clock.activity.in_phase(phase, name):
                raise
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._piece.close()


class WatchedFiles(LibraryOperation, FileSystem):
    """A file system for the library that watches the calls on files, during one save or load of one rank."""

    @contextmanager
    def create_stream(self, path: FilePath, mode: str) -> Generator[io.IOBase, None, None]:
        """Open a file for the library's writer or reader.

        The size of the file's buffer is the block size of the file system.
        """
        name = Path(path).name
        with self.call("open", name):
            raw = _WatchedFile(path, mode, self, summed=name in self._summed)
            about = os.fstat(raw.fileno())
        self.sizes[name] = about.st_size
        buffer_bytes = about.st_blksize if about.st_blksize > 1 else io.DEFAULT_BUFFER_SIZE
        phase: Phase = "write" if raw.writable() else "read"
        with self.work(phase, name):
            stream = io.BufferedWriter(raw, buffer_bytes) if raw.writable() else io.BufferedReader(raw, buffer_bytes)
            with stream:
                yield stream

    def open(self, path: FilePath, mode: str = "r") -> IO[Any]:
        """Open a file like the built-in `open`, and time each call on the file.

        This method is for library code that does not use a file system object.
        """
        name = Path(path).name
        with self.call("open", name):
            raw = _FileOfCalls(path, mode, self, summed=name in self._summed)
        kind = io.BufferedRandom if "+" in mode else io.BufferedWriter if raw.writable() else io.BufferedReader
        stream: IO[Any] = kind(raw)
        return stream if "b" in mode else io.TextIOWrapper(stream, encoding="utf-8")

    def mkdir(self, path: FilePath) -> None:
        """Create a directory."""
        with self.call("open", Path(path).name):
            super().mkdir(path)

    def exists(self, path: FilePath) -> bool:
        """Return whether a path exists."""
        with self.call("open", Path(path).name):
            return super().exists(path)

    def rename(self, path: FilePath, new_path: FilePath) -> None:
        """Rename a file, timed as phase "write"."""
        with self.call("write", Path(path).name):
            super().rename(path, new_path)


class _WatchedFile(io.FileIO):
    """An unbuffered file: each call reaches the storage and is watched."""

    def __init__(self, path: FilePath, mode: str, watch: WatchedFiles, *, summed: bool) -> None:
        super().__init__(path, mode)
        self._watch, self._is_summed = watch, summed
        if summed:
            watch.checksum = 0

    def write(self, data: Buffer) -> int:
        """Write at most 64 MiB of ``data``. Return the number of bytes written.

        The caller writes the remaining bytes.
        """
        view = memoryview(data).cast("B")[:_PIECE_BYTES]
        with self._watch.keeping_errors():
            count = super().write(view)
        self._passed(view[:count])
        return count

    def readinto(self, buffer: Buffer) -> int:
        """Read at most 64 MiB into ``buffer``. Return the number of bytes read."""
        view = memoryview(buffer).cast("B")[:_PIECE_BYTES]
        with self._watch.keeping_errors():
            count = super().readinto(view) or 0
        self._passed(view[:count])
        return count

    def _passed(self, data: memoryview) -> None:
        self._watch.moved(len(data))
        if self._is_summed:
            self._watch.checksum = zlib.crc32(data, self._watch.checksum or 0)


class _FileOfCalls(_WatchedFile):
    """A watched file whose calls are timed one by one, because the file remains open while other files are used."""

    def write(self, data: Buffer) -> int:
        """Write at most 64 MiB of ``data`` as a timed call. Return the number of bytes written."""
        with self._watch.call("write", self._name):
            return super().write(data)

    def readinto(self, buffer: Buffer) -> int:
        """Read at most 64 MiB into ``buffer`` as a timed call. Return the number of bytes read."""
        with self._watch.call("read", self._name):
            return super().readinto(buffer)

    @property
    def _name(self) -> str:
        return Path(str(self.name)).name

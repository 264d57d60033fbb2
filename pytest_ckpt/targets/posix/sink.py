"""Files of a draft as they are written: at offsets around the page cache, or in order through it."""

from __future__ import annotations

import ctypes
import errno
import io
import os
from collections.abc import Callable
from pathlib import Path

from pytest_ckpt.facts.proofs import Entry
from pytest_ckpt.targets.posix.direct_io import BLOCK_BYTES, NOT_OFFERED, DirectFile, DirectWay
from pytest_ckpt.targets.protocol import Buffer, Phases

# Large enough to cost nothing, small enough that a slow target is seen to make progress.
_PIECE_BYTES = 64 << 20

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)

Finished = Callable[[Entry], None]


class SinkAtOffsets:
    """A file of a known size: its space is taken at once, requests go around the page cache."""

    alignment = BLOCK_BYTES
    part_bytes: int | None = None

    def __init__(self, path: Path, size: int, way: DirectWay, phases: Phases, finished: Finished) -> None:
        self._name, self._size, self._phases, self._finished = path.name, size, phases, finished
        self._end = 0
        with phases.phase("open", path.name):
            self._file = DirectFile(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, way, phases)
        try:
            with phases.phase("open", path.name):
                _allocate(self._file.descriptor, size)
        except BaseException:
            self.abort()
            raise

    @property
    def way(self) -> str:
        """How requests pass the client's page cache."""
        return self._file.way

    def write(self, data: Buffer) -> int:
        """Write all of ``data`` behind what was written; return its bytes."""
        count = memoryview(data).nbytes
        self.write_at(self._end, data)
        self._end += count
        return count

    def write_at(self, offset: int, data: Buffer) -> None:
        """Write whole blocks; what stands behind the file's size is cut off in the end."""
        wanted = memoryview(data).nbytes
        if self._file.transfer(os.pwrite, data, offset, wanted) < wanted:
            raise OSError(errno.EIO, "the target takes no more bytes and says no error")

    def finish(self) -> Entry:
        """Cut the file to its size, fsync and close it."""
        descriptor, entry = self._file.descriptor, Entry(name=self._name, bytes=self._size)
        try:
            with self._phases.phase("write", self._name):
                # A direct request is a whole number of blocks.
                os.ftruncate(descriptor, self._size)
            with self._phases.phase("fsync", self._name):
                os.fsync(descriptor)
                self._finished(entry)
        finally:
            # Some file systems report a failed write only here.
            self.abort()
        return entry

    def abort(self) -> None:
        """Close it."""
        with self._phases.phase("close", self._name):
            os.close(self._file.descriptor)


class SinkInOrder(io.FileIO):
    """A file of unknown size that is written from its start to its end, through the page cache."""

    alignment = 1
    part_bytes: int | None = None
    way = "through the client's page cache"

    def __init__(self, path: Path, phases: Phases, finished: Finished) -> None:
        with phases.phase("open", path.name):
            super().__init__(path, "xb")
        self._base_name, self._phases, self._finished = path.name, phases, finished

    def write(self, data: Buffer) -> int:
        """Write all of ``data``; a call writes less than 2 GiB, and may write less than it was given."""
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            step = super().write(view[done : done + _PIECE_BYTES]) or 0
            done += step
            self._phases.moved(step)
        return done

    def write_at(self, offset: int, data: Buffer) -> None:
        """Raise ValueError: this file takes bytes in order only."""
        raise ValueError("a file of unknown size is written in order")

    def finish(self) -> Entry:
        """Fsync and close it."""
        entry = Entry(name=self._base_name, bytes=self.tell())
        try:
            with self._phases.phase("fsync", self._base_name):
                os.fsync(self.fileno())
                self._finished(entry)
        finally:
            self.abort()
        return entry

    def abort(self) -> None:
        """Close it."""
        # Some file systems report a failed write only here.
        with self._phases.phase("close", self._base_name):
            self.close()


def _allocate(descriptor: int, size: int) -> None:
    """Take the file's space at once, so that requests side by side need not wait for each other to extend it."""
    if _libc.fallocate(descriptor, 0, 0, size) != 0:
        number = ctypes.get_errno()
        if number not in NOT_OFFERED:
            raise OSError(number, os.strerror(number))

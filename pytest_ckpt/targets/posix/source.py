"""A committed checkpoint on a mounted file system, and its files as they are read."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path

from pytest_ckpt.facts.proofs import Entry
from pytest_ckpt.targets.posix.direct_io import DirectFile, DirectSupport
from pytest_ckpt.targets.protocol import Buffer, Phases

# Large enough to cost nothing, small enough that a slow target is seen to make progress.
_PIECE_BYTES = 64 << 20


class PosixCommitted:
    """The files in a folder, read in the phases of whoever opened them."""

    def __init__(self, folder: Path, way: DirectSupport, phases: Phases) -> None:
        self._folder, self._way, self._phases = folder, way, phases

    def entries(self) -> Sequence[Entry]:
        """Return all files of it."""
        with os.scandir(self._folder) as found:
            return sorted(
                (Entry(name=e.name, bytes=e.stat(follow_symlinks=False).st_size) for e in found), key=lambda e: e.name
            )

    def source(self, name: str, *, fresh: bool = False) -> SourceAtOffsets:
        """Open a file for reads at offsets, around the page cache where the target takes that."""
        kind = FreshSource if fresh else SourceAtOffsets
        return kind(self._folder / name, self._way, self._phases)

    def file(self, name: str) -> CountedFile:
        """Open a file as a file object, through the page cache."""
        return CountedFile(self._folder / name, self._phases)

    def local_path(self, name: str) -> str:
        """Return where a file lies."""
        return str(self._folder / name)


class SourceAtOffsets:
    """A file that is open for reads at offsets."""

    def __init__(self, path: Path, way: DirectSupport, phases: Phases) -> None:
        self._name, self._phases = path.name, phases
        with phases.phase("open", path.name):
            self._file = DirectFile(path, os.O_RDONLY, way, phases)

    @property
    def size(self) -> int:
        """Its size in bytes, as it is now."""
        return os.fstat(self._file.descriptor).st_size

    @property
    def way(self) -> str:
        """How requests pass the client's page cache."""
        return self._file.way

    @property
    def is_direct(self) -> bool:
        """Whether it is read around the page cache."""
        return self._file.direct

    def read_into(self, offset: int, buffer: Buffer) -> int:
        """Read until the buffer is full or the file ends.

        The end is where reads end and not what the size says before: some clients remember an old size until they are
        asked for it, and a reader of checkpoints reads first.
        """

        def read(descriptor: int, part: memoryview, at: int) -> int:
            return os.preadv(descriptor, [part], at)

        wanted = memoryview(buffer).nbytes
        return self._file.transfer(read, buffer, offset, wanted, is_end=lambda at: at >= self.size)

    def close(self) -> None:
        """Close it."""
        with self._phases.phase("close", self._name):
            os.close(self._file.descriptor)


class FreshSource(SourceAtOffsets):
    """A file whose bytes come from the storage again each time: the page cache is asked to drop what it took."""

    def __init__(self, path: Path, way: DirectSupport, phases: Phases) -> None:
        super().__init__(path, way, phases)
        if not self.is_direct:
            os.posix_fadvise(self._file.descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    @property
    def way(self) -> str:
        """How requests pass the client's page cache."""
        if self.is_direct:
            return "around the client's page cache"
        return "through the client's page cache, advised to drop it"

    def read_into(self, offset: int, buffer: Buffer) -> int:
        """Read until the buffer is full or the file ends."""
        count = super().read_into(offset, buffer)
        if not self.is_direct:
            os.posix_fadvise(self._file.descriptor, offset, count, os.POSIX_FADV_DONTNEED)
        return count


class CountedFile(io.FileIO):
    """A file object that counts its bytes as they pass, and goes on after a short read (2 GiB in one call)."""

    def __init__(self, path: Path, phases: Phases) -> None:
        with phases.phase("open", path.name):
            super().__init__(path, "rb")
        self._base_name, self._phases = path.name, phases
        self.error: OSError | None = None

    @property
    def size(self) -> int:
        """Its size in bytes, as it is now."""
        return os.fstat(self.fileno()).st_size

    def readinto(self, buffer: Buffer) -> int:
        """Read until ``buffer`` is full or the file ends."""
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view):
            try:
                step = super().readinto(view[done : done + _PIECE_BYTES]) or 0
            except OSError as error:
                self.error = error
                raise
            if not step:
                break
            done += step
            self._phases.moved(step)
        return done

    def close(self) -> None:
        """Close it."""
        if self.closed:
            return
        with self._phases.phase("close", self._base_name):
            super().close()

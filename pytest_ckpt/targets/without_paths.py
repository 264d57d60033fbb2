"""Parts of stores that have neither local paths nor a cache on their clients."""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Sequence

from pytest_ckpt.facts.proofs import DurabilityProof, Entry
from pytest_ckpt.facts.targets import CheckpointRef
from pytest_ckpt.targets.protocol import Buffer, CachedBytes, Source


class SourceFile(io.RawIOBase):
    """Reads a source at a current position; ``error`` is the first OSError of a read."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source
        self._place = 0
        self.error: OSError | None = None

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self._source.size

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """Read until ``buffer`` is full or the file ends."""
        try:
            count = self._source.read_into(self._place, buffer)
        except OSError as error:
            self.error = error
            raise
        self._place += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a place."""
        self._place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self.size}[whence]
        return self._place

    def tell(self) -> int:
        """Return the place."""
        return self._place

    def close(self) -> None:
        """Close the source."""
        if not self.closed:
            self._source.close()
            super().close()


class StoreWithoutCache:
    """The cache functions of a `Store` for a target whose clients have no cache, and do not cache names either."""

    def is_prepared(self, subject: str) -> bool:
        """The target has no directories."""
        return True

    def announce(self, ref: CheckpointRef) -> None:
        """The target has no directories."""

    def sees_draft(self, ref: CheckpointRef) -> bool:
        """The target has no directories."""
        return True

    def sees(self, ref: CheckpointRef, entries: Collection[Entry]) -> bool:
        """The store answers every request, and immediately shows committed objects, or is faulty."""
        return True

    def find_gauge(self, subject: str) -> str | None:
        """Cached pages cannot be counted."""
        return None

    def cached(self, ref: CheckpointRef, names: Collection[str], probe: str) -> CachedBytes:
        """The target has no cache."""
        raise NotImplementedError

    def evict(self, ref: CheckpointRef, names: Collection[str]) -> str:
        """The target has no cache."""
        raise NotImplementedError

    def drop_cache(self) -> str | None:
        """The target has no cache."""
        raise NotImplementedError

    def drop_names(self) -> bool:
        """The target has no cache."""
        raise NotImplementedError


class DraftWithoutPaths:
    """The functions of a `Draft` for libraries that write files themselves, on a target without files."""

    def location(self) -> str:
        """The target has no paths."""
        raise NotImplementedError

    def adopt(self, names: Collection[str]) -> None:
        """The target has no paths."""
        raise NotImplementedError

    def written(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Return this rank's entries and the durable calls: without directories, names are durable with the objects."""
        return self.seal()

    def seal(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Return this rank's entries and the durable calls."""
        raise NotImplementedError

"""Parts of stores that have neither local paths nor a cache on their clients."""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Sequence

from pytest_ckpt.facts.proofs import DurabilityProof, Entry
from pytest_ckpt.facts.targets import CheckpointRef
from pytest_ckpt.targets.protocol import Buffer, CachedBytes, Source


class SourceFile(io.RawIOBase):
    """Reads a source from a place that moves; ``error`` is the first OSError that a read met."""

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
    """The part of a `Store` that is about the cache of this client, where there is none: nor does it remember names."""

    def is_prepared(self, subject: str) -> bool:
        """There are no directories."""
        return True

    def announce(self, ref: CheckpointRef) -> None:
        """There are no directories."""

    def sees_draft(self, ref: CheckpointRef) -> bool:
        """There are no directories."""
        return True

    def sees(self, ref: CheckpointRef, entries: Collection[Entry]) -> bool:
        """Every request is answered by the store, which shows what is committed at once, or is wrong."""
        return True

    def find_gauge(self, subject: str) -> str | None:
        """There is nothing to count."""
        return None

    def cached(self, ref: CheckpointRef, names: Collection[str], probe: str) -> CachedBytes:
        """There is no cache."""
        raise NotImplementedError

    def evict(self, ref: CheckpointRef, names: Collection[str]) -> str:
        """There is no cache."""
        raise NotImplementedError

    def drop_cache(self) -> str | None:
        """There is no cache."""
        raise NotImplementedError

    def drop_names(self) -> bool:
        """There is no cache."""
        raise NotImplementedError


class DraftWithoutPaths:
    """The part of a `Draft` that is about a library which writes files itself, where it cannot."""

    def location(self) -> str:
        """There are no paths."""
        raise NotImplementedError

    def adopt(self, names: Collection[str]) -> None:
        """There are no paths."""
        raise NotImplementedError

    def written(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Return this rank's entries and the durable calls: without directories, names are durable with the objects."""
        return self.seal()

    def seal(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Return this rank's entries and the durable calls."""
        raise NotImplementedError

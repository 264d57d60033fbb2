"""Base classes for stores without local paths and without client caches."""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Sequence

from pytest_ckpt.facts.proofs import DurabilityProof, Entry
from pytest_ckpt.facts.targets import CheckpointRef
from pytest_ckpt.targets.protocol import Buffer, CachedBytes, Source


class SourceFile(io.RawIOBase):
    """A file object that reads from a source. ``error`` is the last OSError of a read."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source
        self._place = 0
        self.error: OSError | None = None

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self._source.size

    def readable(self) -> bool:
        """Return True, because the file is open for reading."""
        return True

    def seekable(self) -> bool:
        """Return True, because a source is read at any offset."""
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
        """Set the position."""
        self._place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self.size}[whence]
        return self._place

    def tell(self) -> int:
        """Return the position."""
        return self._place

    def close(self) -> None:
        """Close the source."""
        if not self.closed:
            self._source.close()
            super().close()


class StoreWithoutCache:
    """Base class of stores that have no directories and whose clients cache neither data nor names."""

    def is_prepared(self, subject: str) -> bool:
        """Return True, because the target has no directories."""
        return True

    def announce(self, ref: CheckpointRef) -> None:
        """Do nothing, because the target has no directories."""

    def shows_draft(self, ref: CheckpointRef) -> bool:
        """Return True, because the target has no directories."""
        return True

    def sees(self, ref: CheckpointRef, entries: Collection[Entry]) -> bool:
        """Return True, because a correct store shows committed objects immediately."""
        return True

    def find_cache_probe(self, subject: str) -> str | None:
        """Return None, because the client has no cached pages to count."""
        return None

    def cached(self, ref: CheckpointRef, names: Collection[str], probe: str) -> CachedBytes:
        """Raise NotImplementedError, because the client has no cache."""
        raise NotImplementedError

    def evict(self, ref: CheckpointRef, names: Collection[str]) -> str:
        """Raise NotImplementedError, because the client has no cache."""
        raise NotImplementedError

    def drop_cache(self) -> str | None:
        """Raise NotImplementedError, because the client has no cache."""
        raise NotImplementedError

    def drop_names(self) -> bool:
        """Raise NotImplementedError, because the client has no cache."""
        raise NotImplementedError


class DraftWithoutPaths:
    """Base class of drafts on targets without local paths. Libraries cannot write files in such a draft."""

    def location(self) -> str:
        """Raise NotImplementedError, because the target has no paths."""
        raise NotImplementedError

    def adopt(self, names: Collection[str]) -> None:
        """Raise NotImplementedError, because the target has no paths."""
        raise NotImplementedError

    def written(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Return this rank's entries, and a proof of durability.

        Names become durable together with the objects, because there are no directories.
        """
        return self.seal()

    def seal(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Return this rank's entries, and a proof of durability."""
        raise NotImplementedError

"""A file object over a `Source`, for stores whose files no library can open by itself."""

from __future__ import annotations

import io
import os

from pytest_ckpt.targets.protocol import Buffer, Source


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

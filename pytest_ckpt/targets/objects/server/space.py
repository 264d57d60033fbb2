"""Where the bytes of all objects lie: one file without a name, which goes with the process, however that ends."""

from __future__ import annotations

import ctypes
import errno
import os
import tempfile
import threading
from collections.abc import Iterator
from typing import IO, cast

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_BLOCK_BYTES = 4096
_READ_BYTES = 1 << 20


class Space:
    """Bytes at offsets; what is given back is no longer kept by the disk, where its file system can forget a part."""

    def __init__(self) -> None:
        # It is open as long as this process is there.
        self.file = cast("IO[bytes]", tempfile.TemporaryFile(buffering=0))  # noqa: SIM115
        self._lock = threading.Lock()
        self._end = 0
        self._fallocate = ctypes.CDLL(None, use_errno=True).fallocate
        self._fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)

    def take(self, size: int) -> int:
        """Return the offset of so many bytes that nobody else has."""
        with self._lock:
            offset, self._end = self._end, self._end + -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
        return offset

    def write(self, offset: int, data: bytes) -> None:
        """Write all of ``data``."""
        done = 0
        while done < len(data):
            done += os.pwrite(self.file.fileno(), data[done:], offset + done)

    def read(self, offset: int, size: int) -> Iterator[bytes]:
        """Yield all bytes of a range, each a copy.

        To send the file itself (sendfile) would hand its pages to the connection, and a part of a page that is given
        back before the client has read it is zeros there.
        """
        end = offset + size
        while offset < end:
            data = os.pread(self.file.fileno(), min(_READ_BYTES, end - offset), offset)
            if not data:
                raise OSError(errno.EIO, "the bytes of an object end too early")
            yield data
            offset += len(data)

    def give_back(self, offset: int, size: int) -> None:
        """Forget bytes that nobody reads any more."""
        if size and not self.file.closed:
            whole = -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
            self._fallocate(self.file.fileno(), _KEEP_SIZE | _PUNCH_HOLE, offset, whole)

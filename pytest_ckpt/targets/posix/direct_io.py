"""Direct I/O, which bypasses the client's page cache. If the target refuses direct I/O, buffered I/O is used."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pytest_ckpt.facts.engines import NOT_DIRECT
from pytest_ckpt.support.own_names import own_name
from pytest_ckpt.support.units import format_percent
from pytest_ckpt.targets.protocol import Buffer, Phases

BLOCK_BYTES = 4096

NOT_OFFERED = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)
"""The errors that mean that a file system does not support a direct open, a direct request or a reservation of space.

The kernel returns EINVAL if it has no direct I/O, or not at this alignment. Network and stacked file systems return
EOPNOTSUPP (on Linux equal to ENOTSUP). User-space servers that do not know the request return ENOSYS. If an error has
another cause, the following buffered call reports it again.
"""


_LARGEST_BLOCK_BYTES = 64 << 10
"""No known file system requires a larger alignment. So a refused request with this alignment has another cause."""

_LARGEST_BUFFERED_SHARE = 0.01
"""The end of a file that does not fill a block passes through the page cache. I/O counts as direct if at most this
share of the bytes was buffered."""

# include/uapi/linux/stat.h, from Linux 6.1 on.
_AT_EMPTY_PATH, _AT_STATX_DONT_SYNC = 0x1000, 0x4000
_STATX_DIOALIGN = 0x2000
_STATX_BYTES, _OFFSET_ALIGNMENT = 256, 156
_statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)


def stated_alignment(descriptor: int) -> int | None:
    """Return the alignment in bytes that the kernel states for direct I/O on a file.

    0: the file does not support direct I/O, and the kernel uses the page cache in spite of O_DIRECT. None: neither the
    kernel nor the file system states a value. The server is not queried, because a query would also refresh a cached
    file size.
    """
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    flags = _AT_EMPTY_PATH | _AT_STATX_DONT_SYNC
    if _statx is None or _statx(descriptor, b"", flags, _STATX_DIOALIGN, buffer):
        return None
    (mask,) = struct.unpack_from("I", buffer)
    (alignment,) = struct.unpack_from("I", buffer, _OFFSET_ALIGNMENT)
    return alignment if mask & _STATX_DIOALIGN else None


@dataclass(slots=True)
class DirectSupport:
    """Counts the bytes of direct and of buffered requests on a target, and records why a request was not direct.

    ``refused`` is this reason; it is empty if the target accepted every request as a direct request. The reason may
    apply to one file only. The size of a direct request is a multiple of ``block_bytes``. If the target refuses a
    request of this alignment, ``block_bytes`` is increased.
    """

    refused: str = ""
    block_bytes: int = 1
    direct_bytes: int = 0
    buffered_bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def moved(self, count: int, *, direct: bool) -> None:
        """Add ``count`` bytes of a request, to the direct or to the buffered bytes. Safe for several threads."""
        with self._lock:
            if direct:
                self.direct_bytes += count
            else:
                self.buffered_bytes += count

    def refuse_block(self, block_bytes: int) -> None:
        """Record that the target refused a request aligned to ``block_bytes``. Safe for several threads."""
        with self._lock:
            self.block_bytes = max(self.block_bytes, 2 * block_bytes)

    @property
    def io_mode(self) -> str:
        """The I/O mode of the requests, as text for the report."""
        if not self.refused:
            return "O_DIRECT, around the client's page cache"
        if not self.direct_bytes:
            return f"{NOT_DIRECT}: {self.refused}; files are read without read-ahead (POSIX_FADV_RANDOM)"
        share = self.direct_bytes / (self.direct_bytes + self.buffered_bytes)
        mode = "O_DIRECT" if share >= 1 - _LARGEST_BUFFERED_SHARE else f"{NOT_DIRECT} throughout: O_DIRECT"
        return (
            f"{mode} for {format_percent(share)} of the bytes; the others through the client's page cache, "
            f"read without read-ahead (POSIX_FADV_RANDOM): {self.refused}"
        )


class DirectFile:
    """A file that is open for direct I/O.

    The required alignment is stated by the kernel, or learned from requests that the target refuses. If the last part
    of a request does not fill a block, this part is buffered. If the target refuses O_DIRECT or an aligned request, all
    later requests on the file are buffered.
    """

    def __init__(self, path: Path, flags: int, support: DirectSupport, phases: Phases) -> None:
        self._path, self._flags = path, flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC)
        self._support = support
        self._phases = phases
        self._lock = threading.Lock()
        # The descriptor for requests that are too small for direct I/O on the target.
        self._buffered: int | None = None
        self._is_direct = True
        # Set before the descriptor changes, because another thread's request may then already use the cache.
        self._leaves = False
        self._stated_bytes = 1
        try:
            self.descriptor = os.open(path, flags | os.O_DIRECT, 0o600)
        except OSError as error:
            if error.errno not in NOT_OFFERED:
                raise
            support.refused = f"the target refuses O_DIRECT: {error.strerror}"
            self._is_direct = False
            # Some file systems create the file before they refuse the open.
            self.descriptor = self._open_buffered(flags & ~os.O_EXCL)
        else:
            self._use_stated_alignment()

    @property
    def direct(self) -> bool:
        """Whether all requests so far were direct."""
        return self._is_direct and self._buffered is None

    @property
    def io_mode(self) -> str:
        """The I/O mode of all requests on the target so far, as text for the report."""
        return self._support.io_mode

    def sync(self) -> None:
        """Fsync the file through each of its descriptors.

        A user-space server may buffer the writes of each descriptor separately.
        """
        os.fsync(self.descriptor)
        if self._buffered is not None:
            os.fsync(self._buffered)

    def close(self) -> None:
        """Close both descriptors, even if closing one raises OSError."""
        try:
            os.close(self.descriptor)
        finally:
            if self._buffered is not None:
                os.close(self._buffered)

    def transfer(
        self,
        call: Callable[[int, memoryview, int], int],
        data: Buffer,
        offset: int,
        wanted: int,
        *,
        is_end: Callable[[int], bool] | None = None,
    ) -> int:
        """Repeat ``call`` until ``wanted`` bytes are transferred or the file ends; return the number of bytes.

        If the target refuses direct I/O, buffered I/O is used from then on. If a direct read returns part of a block,
        the file may end at this offset. If ``is_end`` is given, a buffered read of the next byte shows whether the file
        ends. If the buffered read fails, ``is_end`` is called with the offset and returns whether the file ends.
        """
        view, done = memoryview(data).cast("B"), 0
        while done < wanted:
            # Another thread may have switched to buffered I/O while this request was refused.
            is_file_direct = self._is_direct
            fitting = self._fitting(offset + done, wanted - done) if is_file_direct else 0
            was_direct, count = fitting > 0, fitting or wanted - done
            try:
                descriptor = self._buffered_descriptor() if is_file_direct and not was_direct else self.descriptor
                step = call(descriptor, view[done : done + count], offset + done)
            except OSError as error:
                if error.errno not in NOT_OFFERED or not was_direct:
                    raise
                reason = f"the target refuses a direct request: {error.strerror}"
                block = _block_of((offset + done) | count)
                if error.errno == errno.EINVAL and block < _LARGEST_BLOCK_BYTES:
                    self._support.refuse_block(block)
                    self._support.refused = reason
                else:
                    self._leave_direct(reason)
                continue
            if not step:
                break
            done += step
            self._phases.moved(step)
            self._support.moved(step, direct=was_direct and not self._leaves)
            if step < count and done % BLOCK_BYTES and was_direct:
                if is_end and self._ends_at(offset + done, is_end):
                    break
                # The remaining part is no longer aligned.
                self._leave_direct("the target ended a direct request inside a block")
        return done

    def _use_stated_alignment(self) -> None:
        """Use the alignment that the kernel states for direct I/O.

        If the kernel states that the file does not support direct I/O, switch to buffered I/O.
        """
        stated = stated_alignment(self.descriptor)
        if stated == 0:
            self._leave_direct("the kernel states that the file has no direct I/O")
        elif stated:
            self._stated_bytes = stated

    def _fitting(self, offset: int, wanted: int) -> int:
        """Return how many of the next ``wanted`` bytes can be transferred by direct I/O.

        Only complete blocks are counted. If the offset is not a multiple of the block size, the result is 0.
        """
        block = max(self._stated_bytes, self._support.block_bytes)
        fitting = 0 if offset % block else wanted - wanted % block
        if fitting < wanted and not self._support.refused:
            self._support.refused = f"direct requests are multiples of {block:,} bytes"
        return fitting

    def _ends_at(self, offset: int, is_end: Callable[[int], bool]) -> bool:
        """Return whether the file ends at an offset within a block, tested by a buffered read of the next byte.

        If the read fails, the result of ``is_end`` is returned. The file's size is not queried, because a query makes
        some clients refresh the size that they cache. Checkpoint loaders do not query the size and may receive a
        truncated file; a refresh would hide this defect.
        """
        try:
            flags = fcntl.fcntl(self.descriptor, fcntl.F_GETFL)
            fcntl.fcntl(self.descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
            try:
                return os.preadv(self.descriptor, [bytearray(1)], offset) == 0
            finally:
                fcntl.fcntl(self.descriptor, fcntl.F_SETFL, flags)
        except OSError:
            return is_end(offset)

    def _leave_direct(self, reason: str) -> None:
        self._support.refused = reason
        self._leaves = True
        # Opened again instead of changed by fcntl, because a user-space file system may itself have opened the file
        # directly.
        again = self._open_buffered(self._flags)
        try:
            os.dup2(again, self.descriptor, inheritable=False)
        finally:
            os.close(again)
        self._is_direct = False

    def _buffered_descriptor(self) -> int:
        with self._lock:
            if self._buffered is None:
                self._buffered = self._open_buffered(self._flags)
            return self._buffered

    def _open_buffered(self, flags: int) -> int:
        """Open the file for buffered I/O, without readahead for reads; return the descriptor."""
        descriptor = os.open(self._path, flags, 0o600)
        if flags & os.O_ACCMODE == os.O_RDONLY:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        return descriptor


def _block_of(number: int) -> int:
    """Return the largest power of two that divides ``number``, but at most the largest block size."""
    number |= _LARGEST_BLOCK_BYTES
    return number & -number


def try_direct(directory: str) -> None:
    """Write one page with direct I/O to a test file, then remove the file.

    Raises OSError if direct I/O is not possible. `pytest-ckpt doctor` calls this function in a child process.
    """
    file = Path(directory) / f"pytest-ckpt-doctor-{own_name()}"
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_DIRECT, 0o600)
        try:
            with mmap.mmap(-1, mmap.PAGESIZE) as page:
                page.write(b"\xa5" * mmap.PAGESIZE)
                os.pwrite(descriptor, page, 0)
        finally:
            os.close(descriptor)
    finally:
        file.unlink(missing_ok=True)

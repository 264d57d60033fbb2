"""Pages of a target that the page cache holds a second time: those of the file that a loop device reads and writes.

Dropping the pages of a file on the loop device leaves its bytes in memory, as pages of the file below. Where the file's
bytes lie on the device is what FIEMAP tells; at the same places they lie in the file below.
"""

from __future__ import annotations

import array
import dataclasses
import errno
import fcntl
import itertools
import mmap
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.targets.posix.page_cache import drop_all
from pytest_ckpt.targets.posix.residency import (
    CANARY_BYTES,
    SEEN,
    TRIES,
    Gauge,
    canary_in,
    evict,
    find_gauge,
    page_counts,
    read_whole,
)
from pytest_ckpt.targets.posix.storage_stack import storage_stack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ckpt.facts.targets import StorageStack

_FS_IOC_FIEMAP = 0xC020660B
_FIEMAP_HEAD = struct.Struct("=QQIIII")
_FIEMAP_EXTENT = struct.Struct("=QQQQQIIII")
_EXTENTS_AT_ONCE = 512
_LAST = 0x1
_NOT_PLACED = 0x2 | 0x4 | 0x8 | 0x80 | 0x100  # FIEMAP_EXTENT_UNKNOWN, DELALLOC, ENCODED, ENCRYPTED, NOT_ALIGNED
_IN_A_BLOCK_OF_OTHERS = 0x200 | 0x400  # FIEMAP_EXTENT_DATA_INLINE, DATA_TAIL
# Their FIEMAP tells places on the device; btrfs tells places in a space of its own.
_PLACING = frozenset(["ext2", "ext3", "ext4", "xfs"])
_WHOLE = (1 << 64) - 1
_LOOP_GET_STATUS64 = 0x4C05
_LOOP_STATUS_BYTES = 232
_LOOP_STATUS_HEAD = struct.Struct("=QQQQQIIII")  # device, inode, own number, offset, size limit; then flags at the end
_LO_FLAGS_DIRECT_IO = 16
_DEVICE = "/dev/loop"
_FILE_LAYER = 2  # below the file system and the loop device
# What a file system may keep in the cache of its device besides the bytes of files.
_OWN_SHARE, _OWN_BYTES = 0.01, 8 << 20


def seen_storage(folder: Path) -> StorageStack:
    """Return what lies below a folder; ``blind`` also names a file below whose cached pages cannot be counted."""
    stack = storage_stack(folder.resolve())
    if not stack.files:
        return stack
    try:
        FileBelow(stack)
    except OSError as error:
        why = (
            f"the page cache may contain its bytes a second time, as pages of {stack.files[0]}, and these cannot be "
            f"counted ({error.strerror or error})"
        )
        return dataclasses.replace(stack, blind=(*stack.blind, why))
    return stack


def find_gauge_to_the_end(folder: Path) -> Gauge | None:
    """Find a call that counts cached pages of files in a folder, and of files of this host below them; None: none does.

    A file is written and read, and must then be seen in the cache: on the target and, where the bytes are in a file of
    this host, there too. A cache between both that a drop does not reach would hide the reads from the file below.
    """
    stack = seen_storage(folder)
    gauge = None if stack.blind else find_gauge(folder)
    if gauge is None or not stack.files:
        return gauge
    return gauge if FileBelow(stack).counts_reads(folder) else None


class FileBelow:
    """The files of this host below a target, whose pages are counted. Raises OSError where they cannot be.

    ``is_placed``: it is one file, and the file system tells where in it the bytes of a file of the target lie.
    """

    def __init__(self, stack: StorageStack) -> None:
        pairs = list(itertools.pairwise(stack.layers))
        devices = [above.text for above, below in pairs if below.kind == "file"]
        if not devices or not all(device.startswith(_DEVICE) for device in devices):
            raise OSError(errno.ENOTSUP, "the devices above it are not loop devices")
        self._paths = [Path(file) for file in stack.files]
        loops = [_loop(device, path) for device, path in zip(devices, self._paths, strict=True)]
        for path in self._paths:
            _cached_pages(path)
        is_direct = len(self._paths) == 1 and stack.layers[_FILE_LAYER].kind == "file"
        self.is_placed = is_direct and stack.layers[0].text in _PLACING
        self._offset = loops[0].offset
        self._is_direct = all(loop.is_direct for loop in loops)

    def evict(self) -> None:
        """Write dirty pages of the files back, and ask the kernel to drop all of them; the uppermost first."""
        for path in self._paths:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)

    def counts_reads(self, folder: Path) -> bool:
        """Return whether a file that is read from the target after a drop is then cached below.

        The drop is the one that is there for loads: of these files, or else of the whole host. A loop device with
        direct I/O leaves nothing in the cache below.
        """
        if self._is_direct:
            return True
        with canary_in(folder) as canary:
            return any(self._counts_a_read(canary, whole_host=bool(number % 2)) for number in range(TRIES))

    def _counts_a_read(self, canary: Path, *, whole_host: bool) -> bool:
        if not whole_host or drop_all() is None:
            evict([canary])
            self.evict()
        before = self._cached_pages()
        read_whole(canary)
        if self.is_placed:
            return self._placed(canary, CANARY_BYTES) >= SEEN * CANARY_BYTES
        return (self._cached_pages() - before) * mmap.PAGESIZE >= SEEN * CANARY_BYTES

    def _cached_pages(self) -> int:
        return sum(map(_cached_pages, self._paths))

    def cached_bytes(self, files: Sequence[tuple[Path, int]]) -> int:
        """Return how many bytes of files of the target, each with its size, are in the page cache a second time.

        Where they are not placed, all cached pages below count, less what the file system keeps there of its own
        (names, attributes, maps of free space). For files of less than 16 MiB that may be half of their size.
        """
        size = sum(of_file for _, of_file in files)
        if self.is_placed:
            return sum(self._placed(file, of_file) for file, of_file in files)
        cached = self._cached_pages() * mmap.PAGESIZE
        own = min(max(_OWN_SHARE * size, _OWN_BYTES), size / 2)
        return 0 if cached <= own else min(size, cached)

    def _placed(self, file: Path, size: int) -> int:
        """What the file system does not place counts as cached."""
        descriptor, below = os.open(file, os.O_RDONLY), os.open(self._paths[0], os.O_RDONLY)
        try:
            cached = sum(
                length if place is None else page_counts(below, self._offset + place, length).cached * mmap.PAGESIZE
                for place, length in _extents(descriptor)
            )
            return min(size, cached)
        finally:
            os.close(descriptor)
            os.close(below)


def _cached_pages(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return page_counts(descriptor).cached
    finally:
        os.close(descriptor)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Loop:
    """Where a loop device begins in its file, in bytes; ``is_direct``: it reads and writes around the page cache."""

    offset: int
    is_direct: bool


def _loop(device: str, path: Path) -> _Loop:
    """Return the state of a loop device; the file of that path has to be the one that the kernel has."""
    descriptor = os.open(device, os.O_RDONLY)
    try:
        status = bytearray(_LOOP_STATUS_BYTES)
        fcntl.ioctl(descriptor, _LOOP_GET_STATUS64, status)
    finally:
        os.close(descriptor)
    number, inode, _, offset, *_, flags = _LOOP_STATUS_HEAD.unpack_from(status)
    seen = path.stat()
    if (seen.st_ino, seen.st_dev) != (inode, number):
        raise OSError(errno.ESTALE, "another file has its name here", str(path))
    return _Loop(offset=int(offset), is_direct=bool(flags & _LO_FLAGS_DIRECT_IO))


def _extents(descriptor: int) -> Iterator[tuple[int | None, int]]:
    """Yield place and length of each extent of a file on its device, in bytes; None for one that has no place."""
    start = 0
    while True:
        room = _FIEMAP_HEAD.size + _EXTENTS_AT_ONCE * _FIEMAP_EXTENT.size
        answer = array.array("B", bytes(room))
        _FIEMAP_HEAD.pack_into(answer, 0, start, _WHOLE - start, 0, 0, _EXTENTS_AT_ONCE, 0)
        fcntl.ioctl(descriptor, _FS_IOC_FIEMAP, answer)
        mapped = _FIEMAP_HEAD.unpack_from(answer)[3]
        for number in range(mapped):
            at = _FIEMAP_HEAD.size + number * _FIEMAP_EXTENT.size
            logical, physical, length, _, _, flags, *_ = _FIEMAP_EXTENT.unpack_from(answer, at)
            if not flags & _IN_A_BLOCK_OF_OTHERS:
                yield None if flags & _NOT_PLACED else physical, length
            start = logical + length
            if flags & _LAST:
                return
        if mapped == 0:
            return

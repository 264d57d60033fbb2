"""Pages of a target that the page cache holds a second time: those of the file that a loop device reads and writes.

Dropping the pages of a file on the loop device leaves its bytes in memory, as pages of the file below. Where the file's
bytes lie on the device is what FIEMAP tells; at the same places they lie in the file below.
"""

from __future__ import annotations

import array
import dataclasses
import errno
import fcntl
import mmap
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.targets.posix.residency import page_counts
from pytest_ckpt.targets.posix.storage_stack import storage_stack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ckpt.facts.storage_stack import StorageStack

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
_DEVICE = "/dev/loop"
_LAYERS_ABOVE = 2  # the file system and the loop device


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


class FileBelow:
    """The file below a loop device whose file system is the target's. Raises OSError where it cannot be told."""

    def __init__(self, stack: StorageStack) -> None:
        device = stack.layers[1].text if len(stack.layers) > _LAYERS_ABOVE else ""
        is_direct = device.startswith(_DEVICE) and stack.layers[_LAYERS_ABOVE].kind == "file"
        if len(stack.files) != 1 or not is_direct or stack.layers[0].text not in _PLACING:
            raise OSError(errno.EOPNOTSUPP, "the places of its files below are not known")
        self._path = Path(stack.files[0])
        self._offset = _offset_of(device, self._path)

    def evict(self) -> None:
        """Write the file's dirty pages back, and ask the kernel to drop all of them."""
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)

    def cached_bytes(self, file: Path) -> int:
        """Return how many bytes of a file of the target are in the page cache as pages of the file below.

        What the file system does not place counts as cached.
        """
        descriptor, below = os.open(file, os.O_RDONLY), os.open(self._path, os.O_RDONLY)
        try:
            cached = sum(
                length if place is None else page_counts(below, self._offset + place, length).cached * mmap.PAGESIZE
                for place, length in _extents(descriptor)
            )
            return min(os.fstat(descriptor).st_size, cached)
        finally:
            os.close(descriptor)
            os.close(below)


def _offset_of(device: str, path: Path) -> int:
    """Return where a loop device begins in its file; the file of that path has to be the one that the kernel has."""
    descriptor = os.open(device, os.O_RDONLY)
    try:
        status = bytearray(_LOOP_STATUS_BYTES)
        fcntl.ioctl(descriptor, _LOOP_GET_STATUS64, status)
    finally:
        os.close(descriptor)
    number, inode, _, offset = struct.unpack_from("=QQQQ", status)
    seen = path.stat()
    if (seen.st_ino, seen.st_dev) != (inode, number):
        raise OSError(errno.ESTALE, "another file has its name here", str(path))
    return int(offset)


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

"""The page cache of this host: counts the cached pages of files and drops them. Counts use cachestat(2) or mincore(2).

If the target is on a loop device, its bytes may be cached twice: as pages of its files, and of the backing file.
Dropping the pages of the target's files leaves the pages of the backing file in memory. FIEMAP reports the offsets of a
target's file on the device. The same offsets, plus the offset of the device, apply in the backing file.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import dataclasses
import errno
import fcntl
import itertools
import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_ckpt.support.own_names import own_name
from pytest_ckpt.targets.posix.storage_stack import storage_stack

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_ckpt.facts.targets import StorageStack

_DROP_CACHES = Path("/proc/sys/vm/drop_caches")

Probe = Literal["cachestat", "mincore"]

_SYS_CACHESTAT = 451  # the same number on every architecture; Linux 6.5 and later
CANARY_BYTES = 4 << 20
SEEN = 0.9  # a probe does not work here if it finds less than this share of a file that was just read
# Tests are repeated, because another job may drop this host's caches between a read and a count.
TRIES = 8

# Only the lowest bit of a page's byte has a meaning.
_IS_RESIDENT = bytes(value & 1 for value in range(256))

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
)  # fmt: skip
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)

_FS_IOC_FIEMAP = 0xC020660B
_FIEMAP_HEAD = struct.Struct("=QQIIII")
_FIEMAP_EXTENT = struct.Struct("=QQQQQIIII")
_EXTENTS_AT_ONCE = 512
_LAST = 0x1
_NOT_PLACED = 0x2 | 0x4 | 0x8 | 0x80 | 0x100  # FIEMAP_EXTENT_UNKNOWN, DELALLOC, ENCODED, ENCRYPTED, NOT_ALIGNED
_IN_A_BLOCK_OF_OTHERS = 0x200 | 0x400  # FIEMAP_EXTENT_DATA_INLINE, DATA_TAIL
# File systems whose FIEMAP returns offsets on the device; btrfs returns offsets in a logical space.
_PLACING = frozenset(["ext2", "ext3", "ext4", "xfs"])
_WHOLE = (1 << 64) - 1
_LOOP_GET_STATUS64 = 0x4C05
_LOOP_STATUS_BYTES = 232
_LOOP_STATUS_HEAD = struct.Struct("=QQQQQIIII")  # device, inode, own number, offset, size limit; then flags at the end
_LO_FLAGS_DIRECT_IO = 16
_DEVICE = "/dev/loop"
_FILE_LAYER = 2  # below the file system and the loop device
# Metadata that a file system may keep in the cache of its device.
_OWN_SHARE, _OWN_BYTES = 0.01, 8 << 20


def drop_all() -> str | None:
    """Drop all clean pages, names and attributes from this host's cache; return the method. None without permission."""
    return f"{_DROP_CACHES} = 3" if _written("3") else None


def drop_names() -> bool:
    """Drop the kernel's cached names and attributes of files; return whether this process has permission."""
    return _written("2")


def _written(word: str) -> bool:
    try:
        _DROP_CACHES.write_text(word)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT):
            return False
        raise
    return True


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Counts(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("cache", "dirty", "writeback", "evicted", "recently_evicted"))


def resident_bytes(path: Path, probe: Probe) -> tuple[int, int]:
    """Return (bytes in the page cache, size) of a file. Raises OSError if ``probe`` cannot count them."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        if size == 0:
            return 0, 0
        pages = page_counts(descriptor).cached if probe == "cachestat" else _mincore(descriptor, size)
        return min(size, pages * mmap.PAGESIZE), size
    finally:
        os.close(descriptor)


def find_cache_probe(directory: Path) -> Probe | None:
    """Return the system call that counts cached pages correctly on this file system; None if no call does.

    Some file systems (overlays, file systems with their own caches) cache data that the kernel does not count. To test
    a call, a test file is written and read. The call is accepted only if it then reports the test file as cached.
    """
    with canary_in(directory) as canary:
        tries = (_cache_probe_that_works(canary) for _ in range(TRIES))
        return next((probe for probe in tries if probe), None)


@contextlib.contextmanager
def canary_in(directory: Path) -> Iterator[Path]:
    """Create and fsync a test file of some MiB in a directory, and yield its path.

    The file is removed at the end of the ``with`` block.
    """
    canary = directory / f"canary-{own_name()}"
    try:
        descriptor = os.open(canary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(descriptor, os.urandom(CANARY_BYTES))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        yield canary
    finally:
        canary.unlink(missing_ok=True)


def read_into_cache(path: Path) -> None:
    """Read a complete file, to bring it into the page cache."""
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 20):
            pass


def _cache_probe_that_works(path: Path) -> Probe | None:
    """Read a file; return the first system call that then reports the file as cached. None if no call does."""
    read_into_cache(path)
    probes: tuple[Probe, ...] = ("cachestat", "mincore")
    for probe in probes:
        try:
            resident, size = resident_bytes(path, probe)
        except OSError:
            continue
        if size and resident >= SEEN * size:
            return probe
    return None


def evict(paths: Iterable[Path]) -> None:
    """Advise the kernel to drop the cached pages of files. Fsync the files first; dirty pages are not dropped."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


@dataclass(frozen=True, kw_only=True, slots=True)
class PageCounts:
    """Numbers of a file's pages in this host's page cache: all pages, and pages not yet written to the storage."""

    cached: int
    unwritten: int


def page_counts(descriptor: int, offset: int = 0, length: int = 0) -> PageCounts:
    """Count the cached pages in a range of an open file by cachestat(2).

    ``length`` 0 extends the range to the file's end. Raises OSError; on kernels before 6.5, with ENOSYS.
    """
    counts = _Counts()
    span = _Range(offset, length)
    if _libc.syscall(_SYS_CACHESTAT, descriptor, ctypes.byref(span), ctypes.byref(counts), 0) != 0:
        raise OSError(ctypes.get_errno(), "cachestat")
    return PageCounts(cached=int(counts.cache), unwritten=int(counts.dirty) + int(counts.writeback))


def _mincore(descriptor: int, size: int) -> int:
    address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "mmap")
    try:
        vector = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        if _libc.mincore(address, size, vector) != 0:
            raise OSError(ctypes.get_errno(), "mincore")
        return bytes(vector).translate(_IS_RESIDENT).count(1)
    finally:
        _libc.munmap(address, size)


def inspect_storage(directory: Path) -> StorageStack:
    """Return the layers of storage below a directory.

    A layer may be a file of this host, such as a loop device's backing file. If the cached pages of such a file cannot
    be counted, the field ``blind`` of the result contains the reason.
    """
    stack = storage_stack(directory.resolve())
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


def find_cache_probe_for_all_files(directory: Path) -> Probe | None:
    """Return the system call that counts all cached pages of a directory's files; None if no call does.

    If the directory is on a loop device, the pages of the backing file are counted too. In this case a test file is
    read. Its bytes must then also be cached as pages of the backing file. If these pages are missing, another cache
    between the two files may have served the read. Dropping this host's page cache would not empty that other cache.
    """
    stack = inspect_storage(directory)
    probe = None if stack.blind else find_cache_probe(directory)
    if probe is None or not stack.files:
        return probe
    return probe if FileBelow(stack).counts_reads(directory) else None


def try_cache_probe(directory: str) -> Probe | None:
    """Return the result of `find_cache_probe_for_all_files`. The controller calls this function in a child process."""
    return find_cache_probe_for_all_files(Path(directory))


class FileBelow:
    """The lower files: files of this host that contain the target's bytes, such as a loop device's backing file.

    The constructor raises OSError if the cached pages of the lower files cannot be counted. ``is_placed`` is true if
    there is only one lower file and the offsets of the target's files in it are known.
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
        """Fsync the lower files, then advise the kernel to drop their pages. Start with the uppermost file."""
        for path in self._paths:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)

    def counts_reads(self, directory: Path) -> bool:
        """Return whether reads from the target appear in the page cache as pages of the lower files.

        For the test, a file is written, dropped from the cache, and read. A load may drop the whole cache of the host,
        or only the file and the lower files; the test alternates between these two methods. One success is sufficient.
        A loop device with direct I/O caches no pages of its backing file; the result is then True without a test.
        """
        if self._is_direct:
            return True
        with canary_in(directory) as canary:
            return any(self._counts_a_read(canary, whole_host=bool(number % 2)) for number in range(TRIES))

    def _counts_a_read(self, canary: Path, *, whole_host: bool) -> bool:
        if not whole_host or drop_all() is None:
            evict([canary])
            self.evict()
        before = self._cached_pages()
        read_into_cache(canary)
        if self.is_placed:
            return self._placed(canary, CANARY_BYTES) >= SEEN * CANARY_BYTES
        return (self._cached_pages() - before) * mmap.PAGESIZE >= SEEN * CANARY_BYTES

    def _cached_pages(self) -> int:
        return sum(map(_cached_pages, self._paths))

    def cached_bytes(self, files: Sequence[tuple[Path, int]]) -> int:
        """Return how many bytes of the target's files are cached as pages of the lower files.

        ``files`` are (path, size). If their offsets in the lower files are unknown, all cached pages of the lower files
        are counted, but at most the total size of ``files``. In this case a few cached pages may be metadata of the
        file system. The result is therefore 0 up to a limit: 1 % of the total size, but at least 8 MiB. If half of the
        total size is less, this half is the limit.
        """
        size = sum(of_file for _, of_file in files)
        if self.is_placed:
            return sum(self._placed(file, of_file) for file, of_file in files)
        cached = self._cached_pages() * mmap.PAGESIZE
        own = min(max(_OWN_SHARE * size, _OWN_BYTES), size / 2)
        return 0 if cached <= own else min(size, cached)

    def _placed(self, file: Path, size: int) -> int:
        """Return how many bytes of a file are cached in the lower file.

        Extents without a known offset count as cached.
        """
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
class _LoopDevice:
    """A loop device: where it begins in the backing file (``offset``, in bytes), and whether it uses direct I/O."""

    offset: int
    is_direct: bool


def _loop(device: str, path: Path) -> _LoopDevice:
    """Return the offset and the I/O mode of a loop device. Raises OSError if ``path`` is not its backing file."""
    descriptor = os.open(device, os.O_RDONLY)
    try:
        status = bytearray(_LOOP_STATUS_BYTES)
        fcntl.ioctl(descriptor, _LOOP_GET_STATUS64, status)
    finally:
        os.close(descriptor)
    number, inode, _, offset, *_, flags = _LOOP_STATUS_HEAD.unpack_from(status)
    status_of_path = path.stat()
    if (status_of_path.st_ino, status_of_path.st_dev) != (inode, number):
        raise OSError(errno.ESTALE, "another file has its name here", str(path))
    return _LoopDevice(offset=int(offset), is_direct=bool(flags & _LO_FLAGS_DIRECT_IO))


def _extents(descriptor: int) -> Iterator[tuple[int | None, int]]:
    """Yield (offset on the device, length) in bytes of each extent of a file.

    The offset is None if the file system does not report it.
    """
    start = 0
    while True:
        request_bytes = _FIEMAP_HEAD.size + _EXTENTS_AT_ONCE * _FIEMAP_EXTENT.size
        answer = array.array("B", bytes(request_bytes))
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

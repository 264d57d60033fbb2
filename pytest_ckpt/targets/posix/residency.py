"""How much of a file is in the page cache of this host: cachestat(2), else mincore(2)."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_ckpt.support.own_names import own_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

Gauge = Literal["cachestat", "mincore"]

_SYS_CACHESTAT = 451  # the same number on every architecture; Linux 6.5 and later
CANARY_BYTES = 4 << 20
SEEN = 0.9  # a gauge that sees less than this of a file just read is blind here
# Another job may drop the caches of this host between a read and a look; of a slow target, a read takes long.
TRIES = 8

# Of a page's byte only the lowest bit says anything.
_IS_RESIDENT = bytes(value & 1 for value in range(256))

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
)  # fmt: skip
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Counts(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("cache", "dirty", "writeback", "evicted", "recently_evicted"))


def resident_bytes(path: Path, gauge: Gauge) -> tuple[int, int]:
    """Return (resident, size) of a file in bytes. Raises OSError when the gauge cannot be read."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        if size == 0:
            return 0, 0
        pages = page_counts(descriptor).cached if gauge == "cachestat" else _mincore(descriptor, size)
        return min(size, pages * mmap.PAGESIZE), size
    finally:
        os.close(descriptor)


def find_gauge(folder: Path) -> Gauge | None:
    """Find a call that tells the truth on this file system, or None.

    Not every file system keeps its data where the kernel counts it (overlays, file systems with caches of their
    own): so a file is written, read, and must then be seen in the cache before a gauge is believed.
    """
    with canary_in(folder) as canary:
        tries = (_gauge_that_sees(canary) for _ in range(TRIES))
        return next((gauge for gauge in tries if gauge), None)


@contextlib.contextmanager
def canary_in(folder: Path) -> Iterator[Path]:
    """Write a file of some MiB in a folder and fsync it; it is removed at the end."""
    canary = folder / f"canary-{own_name()}"
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


def read_whole(path: Path) -> None:
    """Read a file from its beginning to its end."""
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 20):
            pass


def _gauge_that_sees(path: Path) -> Gauge | None:
    """Read a file and return the first gauge that sees it in the page cache."""
    read_whole(path)
    gauges: tuple[Gauge, ...] = ("cachestat", "mincore")
    for gauge in gauges:
        try:
            resident, size = resident_bytes(path, gauge)
        except OSError:
            continue
        if size and resident >= SEEN * size:
            return gauge
    return None


def evict(paths: Iterable[Path]) -> None:
    """Ask the kernel to drop the pages of files that were fsynced before: dirty pages would stay."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


@dataclass(frozen=True, kw_only=True, slots=True)
class PageCounts:
    """Pages of a file in this host's page cache: all of them, and those whose bytes the storage does not have yet."""

    cached: int
    unwritten: int


def page_counts(descriptor: int, offset: int = 0, length: int = 0) -> PageCounts:
    """Count the pages of a range of an open file by cachestat(2); a length of 0 reaches to the end of the file.

    Raises OSError (ENOSYS: kernels before 6.5).
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

"""Tests whether fsync has an effect: write a file through the page cache, fsync it, and count its dirty pages.

If a preloaded library, the mount (overlay's ``volatile``) or a kernel module ignores fsync, pages remain dirty. The
count proves an effect only if pages were dirty before the fsync. On tmpfs, overlay, write-through file systems and
``sync`` mounts, the kernel counts no dirty pages.
"""

from __future__ import annotations

import errno
import mmap
import os
from dataclasses import replace
from pathlib import Path

from pytest_ckpt.facts.proofs import FsyncCounts, unsafe_options
from pytest_ckpt.support.own_names import own_name
from pytest_ckpt.targets.posix.page_cache import page_counts
from pytest_ckpt.targets.posix.storage_stack import Mount, device_number, ignores_fsync, mount_of

# Pages are counted exactly, so one page is sufficient, which slow storage writes within the deadline. Device counters
# include writes of other processes, so a test with these counters writes more.
_CANARY_BYTES = mmap.PAGESIZE
_CANARY_BYTES_OF_COUNTERS = 128 << 10
_SECTOR_BYTES = 512
_DEVICES = Path("/sys/dev/block")
_SECTORS_WRITTEN = 6  # of the fields of a device's stat: Documentation/block/stat.rst
_NO_CACHESTAT = (errno.ENOSYS, errno.EPERM, errno.ENOTSUP)


def fsync_counts(directory: Path, devices: Path = _DEVICES) -> FsyncCounts:
    """Write and fsync a test file; return how many of its bytes were not on the device before and after the fsync.

    The kernel supplies the counts, or the counter from which they are calculated. The file is removed. Raises OSError.
    """
    file = directory / f"canary-{own_name()}"
    mount = mount_of(directory.resolve())
    unsafe = next(iter(unsafe_options(_options(mount))), "")
    if not unsafe and mount.file_system == "zfs" and ignores_fsync(mount.source):
        unsafe = "sync=disabled"
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        below = _file_below(file, mount)
        counted = os.open(below, os.O_RDONLY) if below else descriptor
        try:
            return replace(_around_fsync(descriptor, counted, devices), unsafe_option=unsafe)
        finally:
            if below:
                os.close(counted)
    finally:
        os.close(descriptor)
        file.unlink(missing_ok=True)


def _around_fsync(descriptor: int, seen: int, devices: Path) -> FsyncCounts:
    stat = devices / device_number(os.fstat(descriptor)) / "stat"
    written_before = _bytes_written(stat)
    if not _is_counted(seen):
        _write(descriptor, _CANARY_BYTES_OF_COUNTERS)
        os.fsync(descriptor)
        return _by_device(written_before, _bytes_written(stat))
    _write(descriptor, _CANARY_BYTES)
    dirty = page_counts(seen).unwritten * mmap.PAGESIZE
    os.fsync(descriptor)
    left = page_counts(seen).unwritten * mmap.PAGESIZE
    if dirty == 0:
        return FsyncCounts(unobservable="the kernel counted no dirty page of a file that had just been written")
    return FsyncCounts(dirty_bytes=dirty, left_bytes=left)


def _is_counted(descriptor: int) -> bool:
    """Return whether cachestat(2) counts the dirty pages of this file."""
    try:
        page_counts(descriptor)
    except OSError as error:
        if error.errno in _NO_CACHESTAT:
            return False
        raise
    return True


def _write(descriptor: int, count: int) -> None:
    data = memoryview(os.urandom(count))
    while data:
        data = data[os.write(descriptor, data) :]


def _by_device(before: int | None, after: int | None) -> FsyncCounts:
    """Return the counts of an fsync, calculated from the bytes that the device has written.

    ``before`` and ``after`` are the device's counter of written bytes before the test and after the fsync. The counter
    includes bytes that other processes write to the device.
    """
    if before is None or after is None:
        return FsyncCounts(
            unobservable="the kernel has no cachestat(2) (before 6.5), and the target has no separate block device"
        )
    left = max(0, _CANARY_BYTES_OF_COUNTERS - (after - before))
    return FsyncCounts(counter="device counters", dirty_bytes=_CANARY_BYTES_OF_COUNTERS, left_bytes=left)


def _bytes_written(stat: Path) -> int | None:
    try:
        return int(stat.read_text().split()[_SECTORS_WRITTEN]) * _SECTOR_BYTES
    except (OSError, ValueError, IndexError):
        return None


def _options(mount: Mount) -> dict[str, str]:
    """Return the options of a mount: {name: value}. An option without a value has the value ``yes``."""
    pairs = (option.partition("=") for option in mount.options.split(","))
    return {name: value or "yes" for name, _, value in pairs}


def _file_below(file: Path, mount: Mount) -> Path | None:
    """Return the file in overlay's upper directory that contains the pages of ``file``.

    The result is None on other file systems, or if the file in the upper directory is not visible.
    """
    if mount.file_system != "overlay":
        return None
    upper = _options(mount).get("upperdir")
    if not upper:
        return None
    below = Path(upper) / file.parent.resolve().relative_to(mount.mount_point) / file.name
    return below if below.exists() else None

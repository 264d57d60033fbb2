"""Real file systems for fault tests, on loop devices and in memory.

A file system can be too small, over quota, read-only or slow, or lose power. The context managers unmount at the end.
The tests need root.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.machine import eventually, make_file_system

# FS_IOC_SHUTDOWN of linux/fs.h, with the flag that omits the write of the journal, as in a power cut.
_SHUTDOWN, _NO_LOG_FLUSH = 0x8004587D, b"\x02\0\0\0"
_MKFS = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
    "btrfs": ["mkfs.btrfs", "-q", "-f"],
}
_MNT_DETACH = "--lazy"


@dataclass(slots=True)
class LoopMount:
    """A file system on a loop device. The file ``image`` contains its data."""

    path: Path  # where it is mounted
    image: Path
    kind: str
    device: str = ""

    def attach(self) -> None:
        """Create a loop device for the image and mount it. After a power cut, the kernel replays the journal."""
        self.device = _run("losetup", "--find", "--show", str(self.image))
        try:
            _run("mount", "-t", self.kind, self.device, str(self.path))
        except OSError:
            self._detach_device()
            raise

    def detach(self) -> None:
        """Unmount and free the device, even while the mount is used."""
        with contextlib.suppress(OSError):
            _run("umount", _MNT_DETACH, str(self.path))
        self._detach_device()

    def _detach_device(self) -> None:
        with contextlib.suppress(OSError):
            _run("losetup", "--detach", self.device)
        self.device = ""

    def shut_down(self) -> None:
        """Stop the file system as in a power cut: neither data nor the journal are written to the device any more."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, _NO_LOG_FLUSH)
        finally:
            os.close(fd)

    def power_cut(self) -> None:
        """Cut the power, and mount the file system again. Only data that were fsynced are certain to remain.

        Only ext4 and XFS are supported.
        """
        self.shut_down()
        # A mount namespace of another test may hold a copy of the mount, which keeps the file system shut down.
        eventually(self._is_mounted_anew, f"{self.path} is mounted again")

    def _is_mounted_anew(self) -> bool:
        _run("umount", str(self.path))
        _run("mount", "-t", self.kind, self.device, str(self.path))
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        except OSError:
            return False
        finally:
            os.close(fd)
        return True

    def read_only(self) -> None:
        """Make the mount read-only, so that changes fail with EROFS."""
        _run("mount", "-o", "remount,ro", str(self.path))

    def limit(self, count: int) -> None:
        """Set a quota of ``count`` bytes on a btrfs. Further writes fail with EDQUOT."""
        _run("btrfs", "quota", "enable", str(self.path))
        _run("btrfs", "qgroup", "limit", str(count), str(self.path))


@contextlib.contextmanager
def loop_mount(
    directory: Path, kind: str = "ext4", mebibytes: int = 512, image: Path | None = None
) -> Iterator[LoopMount]:
    """Create a file system and mount it at ``directory/loop`` during the block.

    ``image`` is the backing file of the file system (default: a sparse file in ``directory``).
    """
    directory.mkdir(exist_ok=True)
    image = image or directory / "image"
    point = directory / "loop"
    point.mkdir()
    with image.open("wb") as file:
        file.truncate(mebibytes << 20)
    make_file_system(*_MKFS[kind], str(image))
    made = LoopMount(point, image, kind)
    made.attach()
    try:
        yield made
    finally:
        made.detach()
        point.rmdir()
        image.unlink(missing_ok=True)


@contextlib.contextmanager
def memory_mount(directory: Path, mebibytes: int) -> Iterator[Path]:
    """Mount a tmpfs of this size at ``directory/memory`` during the block."""
    point = directory / "memory"
    point.mkdir()
    _run("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "memory", str(point))
    try:
        yield point
    finally:
        _run("umount", _MNT_DETACH, str(point))
        point.rmdir()


class Throttle:
    """A cgroup that limits the transfer rate between its processes and a device."""

    def __init__(self, home: Path, is_unified: bool) -> None:
        self._home, self._is_unified = home, is_unified

    def add(self, pid: int) -> None:
        """Add a process; its future children are also limited."""
        (self._home / "cgroup.procs").write_text(str(pid))

    def limit(self, path: Path, bytes_per_second: int) -> None:
        """Set the limit for reads and for writes on the device of a path."""
        number = os.stat(path).st_dev
        device = f"{os.major(number)}:{os.minor(number)}"
        if self._is_unified:
            (self._home / "io.max").write_text(f"{device} rbps={bytes_per_second} wbps={bytes_per_second}")
            return
        for direction in ("read", "write"):
            (self._home / f"blkio.throttle.{direction}_bps_device").write_text(f"{device} {bytes_per_second}")


@contextlib.contextmanager
def throttle() -> Iterator[Throttle]:
    """Create a cgroup during the block: of version 2 if this version has the io controller, otherwise of version 1.

    Version 1 limits only reads and O_DIRECT, not write-back. Processes in the cgroup at the end of the block are moved
    to the root cgroup.
    """
    root, is_unified = _io_controller()
    home = root / f"ckpt-test-{uuid.uuid4().hex[:8]}"
    home.mkdir()
    try:
        yield Throttle(home, is_unified)
    finally:
        for pid in (home / "cgroup.procs").read_text().split():
            (root / "cgroup.procs").write_text(pid)
        home.rmdir()


def _io_controller() -> tuple[Path, bool]:
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, kind, options, *_ = line.split()
        if kind == "cgroup2" and "io" in (Path(point) / "cgroup.controllers").read_text().split():
            (Path(point) / "cgroup.subtree_control").write_text("+io")
            return Path(point), True
        if kind == "cgroup" and "blkio" in options.split(","):
            return Path(point), False
    raise OSError("there is no cgroup controller for input and output: mount cgroup2 with io, or cgroup with blkio")


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(words)} failed: {done.stderr.strip()}")
    return done.stdout.strip()

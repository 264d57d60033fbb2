"""``python -m pytest_ckpt.targets.posix.power_cut MOUNTPOINT``: cut the power of a file system on a loop device.

The file system is shut down without further writes (FS_IOC_SHUTDOWN with NOLOGFLUSH: ext4, XFS, F2FS). It is then
unmounted, and mounted again with the same options. Only durable data remain, as after a power cut of the host. The
physical drive keeps its power, so a drive that loses acknowledged data is not detected.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import os
import re
import struct
import subprocess
import sys
import time
from pathlib import Path

from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.targets.posix.storage_stack import Mount, all_mounts

_FS_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32), include/uapi/linux/fs.h
_NO_LOG_FLUSH = struct.pack("I", 2)
_BLKFLSBUF = 0x1261
_LOOP_DEVICE = re.compile(r"/dev/loop\d+")
# These options are in the table of mounts but refused by mount(8).
_ONLY_SHOWN = frozenset(["seclabel", "shutdown"])
PATIENCE_SECONDS = 30.0
"""The time for which other processes may use the mount; on a busy machine a killed process releases it late."""

_POLL_SECONDS = 0.05


def cut_power(point: Path, patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Cut the power of the file system that is mounted at ``point``, and mount it again.

    UsageError is raised without a change if the file system is not on a loop device, or if it has another mount.
    UsageError is also raised if the file system cannot be mounted again. Other processes must close the file system
    within ``patience_seconds``.
    """
    mount = _loop_mount(point)
    # Kept open, so that a loop device from "mount -o loop" survives the unmount.
    with Path(mount.source).open("rb") as device:
        _shut_down(point)
        end = time.monotonic() + patience_seconds
        while True:
            _unmount(point, patience_seconds)
            # Drop the device's cache, so that reads return only data that the device itself has.
            fcntl.ioctl(device, _BLKFLSBUF)
            options = ",".join(o for o in mount.options.split(",") if o not in _ONLY_SHOWN)
            done = _run("mount", "-t", mount.file_system, "-o", options, mount.source, str(point))
            if done.returncode or not _is_shut_down(point):
                break
            # A process in another mount namespace uses the old mount, and the kernel returned that mount unchanged.
            if time.monotonic() > end:
                raise UsageError(
                    f"{point} is mounted again and still shut down: a process in another mount namespace uses it.",
                    "End that process (a container, a browser's sandbox), then unmount and mount it again.",
                )
            time.sleep(_POLL_SECONDS)
    if done.returncode:
        raise UsageError(
            f"{point} was unmounted after the power cut and cannot be mounted again: {done.stderr.strip()}",
            f"Repair and mount it: mount -t {mount.file_system} -o {options} {mount.source} {point}",
        )


def _loop_mount(point: Path) -> Mount:
    mounts = all_mounts()
    here = [m for m in mounts if m.mount_point == str(point)]
    if not here:
        raise UsageError(f"{point} is not a mount point.", "Name the directory that a loop device is mounted on.")
    mount = here[-1]
    if not _LOOP_DEVICE.fullmatch(mount.source):
        raise UsageError(
            f"{point} is not on a loop device but on {mount.source} ({mount.file_system}).",
            "Only a loop device's power is cut here; for other storage supply your own command.",
        )
    others = [m.mount_point for m in mounts if m is not mount and m.source == mount.source]
    below = [m.mount_point for m in mounts if m.mount_point.startswith(f"{point}/")]
    over = [m.source for m in here[:-1]]
    if others or below or over:
        reasons = [f"{mount.source} is also mounted on {p}" for p in others if p != str(point)]
        reasons += [f"{p} is mounted below it" for p in below] + [f"{s} is mounted under it" for s in over]
        raise UsageError(f"{point} is not the only mount: {'; '.join(dict.fromkeys(reasons))}.", "Unmount these first.")
    return mount


def _shut_down(point: Path) -> None:
    directory = os.open(point, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(directory, _FS_IOC_SHUTDOWN, _NO_LOG_FLUSH)
    except OSError as error:
        if error.errno == errno.EPERM:
            raise UsageError(f"The power of {point} cannot be cut: {error.strerror}.", "Run as root.") from error
        raise UsageError(
            f"The power of {point} cannot be cut: FS_IOC_SHUTDOWN fails with {error.strerror}.",
            "Use ext4 or XFS on the loop device.",
        ) from error
    finally:
        os.close(directory)


def _is_shut_down(point: Path) -> bool:
    try:
        directory = os.open(point, os.O_RDONLY | os.O_DIRECTORY)  # XFS refuses here, ext4 in the next call
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        if error.errno == errno.EIO:
            return True
        raise
    return False


def _unmount(point: Path, patience_seconds: float) -> None:
    end = time.monotonic() + patience_seconds
    while (done := _run("umount", str(point))).returncode:
        # A process that was just killed closes its files slightly later.
        if time.monotonic() > end:
            raise UsageError(
                f"{point} is shut down, but cannot be unmounted: {done.stderr.strip()}. In use by: "
                f"{', '.join(_users(point)) or 'no visible process'}.",
                f"End these, then unmount {point} and mount it again.",
            )
        time.sleep(_POLL_SECONDS)


def _users(point: Path) -> list[str]:
    """Return a description of each process with an open file, its working or its root directory below a mount point."""
    users = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            links = [process / "cwd", process / "root", *(process / "fd").iterdir()]
            if any(_is_below(link, point) for link in links):
                users.append(f"process {process.name} ({(process / 'comm').read_text().strip()})")
    return users


def _is_below(link: Path, point: Path) -> bool:
    with contextlib.suppress(OSError):
        return link.readlink().is_relative_to(point)
    return False


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")


def main() -> int:
    """Cut the power; return the exit code.

    0: the file system is mounted again. 4: the cut was refused, or the file system could not be mounted again.
    """
    parser = argparse.ArgumentParser(prog="python -m pytest_ckpt.targets.posix.power_cut", description=__doc__)
    parser.add_argument("mountpoint", type=Path, help="mount point of a loop device")
    parser.add_argument(
        "--patience", metavar="SECONDS", type=float, default=PATIENCE_SECONDS,
        help="how long other processes may continue to use it before that is an error (default: %(default)g)",
    )  # fmt: skip
    args = parser.parse_args()
    try:
        cut_power(args.mountpoint.resolve(), args.patience)
    except (UsageError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())

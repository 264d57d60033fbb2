"""File systems without a server: kernel file systems, FUSE on a device, and FUSE over directories."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.file_systems.mounting import (
    Mounted,
    client,
    create_directory,
    daemon,
    forget,
    image,
    is_mounted,
    loop_device,
    mounted,
    run,
    unmount,
    wait_for,
)

_MIB, _SMALL_MIB = 8192, 64
_MKFS = {
    "ext4": ("mkfs.ext4", "-q", "-F"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
    "exfat": ("mkfs.exfat",),
    "ntfs": ("mkntfs", "--quick", "--quiet", "--force"),
}
# The smallest volumes that mkfs creates.
_SMALLEST_MIB = {"xfs": 300, "btrfs": 128}


def of_kernel(kind: str, options: str = "defaults") -> Callable[[Path], contextlib.AbstractContextManager[Mounted]]:
    """Return a function that mounts a large and a small volume of a kernel file system, on loop devices."""

    @contextlib.contextmanager
    def start(home: Path) -> Iterator[Mounted]:
        def volume(name: str, mebibytes: int) -> contextlib.AbstractContextManager[Path]:
            file = image(home / f"{name}.image", mebibytes)
            run(*_MKFS[kind], file)
            # With "loop", the kernel frees the device together with the mount.
            return mounted(home / name, "-t", kind, "-o", f"loop,{options}", file)

        with volume("first", _MIB) as first, volume("small", _SMALLEST_MIB.get(kind, _SMALL_MIB)) as small:
            yield Mounted(first=first, small=small)

    return start


@contextlib.contextmanager
def tmpfs(home: Path) -> Iterator[Mounted]:
    with (
        mounted(home / "first", "-t", "tmpfs", "-o", f"size={_MIB}m", "memory") as first,
        mounted(home / "small", "-t", "tmpfs", "-o", f"size={_SMALL_MIB}m", "memory") as small,
    ):
        yield Mounted(first=first, small=small)


@contextlib.contextmanager
def overlay(home: Path) -> Iterator[Mounted]:
    """Mount a large and a small overlay file system whose layers are on ext4."""
    with of_kernel("ext4")(create_directory(home / "below")) as below:

        def layers(name: str, volume: Path | None) -> contextlib.AbstractContextManager[Path]:
            assert volume
            lower, upper, work = (create_directory(volume / part) for part in ("lower", "upper", "work"))
            words = f"lowerdir={lower},upperdir={upper},workdir={work}"
            return mounted(home / name, "-t", "overlay", "-o", words, "overlay")

        with layers("first", below.first) as first, layers("small", below.small) as small:
            yield Mounted(first=first, small=small)


def on_device(
    kind: str, *program: str, options: str = ""
) -> Callable[[Path], contextlib.AbstractContextManager[Mounted]]:
    """Return a function that mounts a large and a small volume with a FUSE program.

    ``program`` is the command line without its last two arguments, which are the device and the mount point. ``kind``
    is the type of the file system.
    """

    @contextlib.contextmanager
    def volume(home: Path, name: str, mebibytes: int) -> Iterator[Path]:
        file, point = image(home / f"{name}.image", mebibytes), home / name
        run(*_MKFS[kind], file)
        with loop_device(file) as device:
            words = (*program, *(("-o", options) if options else ()), device, point)
            with client(point, *words):
                forget(device)
                yield point

    @contextlib.contextmanager
    def start(home: Path) -> Iterator[Mounted]:
        with volume(home, "first", _MIB) as first, volume(home, "small", _SMALL_MIB) as small:
            yield Mounted(first=first, small=small, kill_server=lambda: unmount(first))

    return start


@contextlib.contextmanager
def zfs(home: Path) -> Iterator[Mounted]:
    """Mount two ZFS pools by FUSE.

    The ZFS daemon uses fixed directories, which are private in this mount namespace.
    """
    log = home / "zfs-fuse.log"
    create_directory(Path("/run/lock"))
    for place in ("/etc/zfs", "/var/lib/zfs"):
        run("mount", "-t", "tmpfs", "zfs", create_directory(Path(place)))
    words = ("zfs-fuse", "--no-daemon", "--no-kstat-mount", "--pidfile", "/run/zfs-fuse.pid")
    with daemon(log, *words, ready=_answers):
        points = []
        for name, mebibytes in (("first", _MIB), ("small", 2 * _SMALL_MIB)):
            point = home / name
            run("zpool", "create", "-f", "-m", point, f"ckpt{name}", image(home / f"{name}.image", mebibytes))
            wait_for(lambda point=point: is_mounted(point), f"{name} is mounted", None, log)
            points.append(point)
        try:
            yield Mounted(first=points[0], small=points[1], kill_server=lambda: unmount(points[0]))
        finally:
            for point in points:
                unmount(point)


def _answers() -> bool:
    try:
        run("zpool", "list")
    except OSError:
        return False
    return True


_PASSWORD = "only for tests"
Words = Callable[[Path, Path], tuple[str | Path, ...]]


def over_ext4(words: Words) -> Callable[[Path], contextlib.AbstractContextManager[Mounted]]:
    """Return a function that mounts a FUSE client over directories of ext4.

    ``words`` is a function of (directory, mount point). It returns the command line of the client.
    """

    @contextlib.contextmanager
    def start(home: Path) -> Iterator[Mounted]:
        with of_kernel("ext4")(create_directory(home / "below")) as below, contextlib.ExitStack() as stack:
            points = {}
            for name, volume in (("first", below.first), ("small", below.small)):
                assert volume
                points[name] = home / name
                stack.enter_context(client(points[name], *words(create_directory(volume / "shown"), points[name])))
            first = points["first"]
            yield Mounted(first=first, small=points["small"], kill_server=lambda: unmount(first))

    return start


def bindfs(*options: str) -> Words:
    """Return a function that returns the command line of bindfs for a directory and a mount point."""
    return lambda directory, point: ("bindfs", "-f", *options, directory, point)


def mergerfs(options: str) -> Words:
    """Return a function that creates two branches, and returns the command line of mergerfs for them.

    With only one branch, mergerfs would behave like a bind mount.
    """

    def words(directory: Path, point: Path) -> tuple[str | Path, ...]:
        branches = ":".join(str(create_directory(directory / name)) for name in ("a", "b"))
        return ("mergerfs", "-f", "-o", f"allow_other,{options}".rstrip(","), branches, point)

    return words


def gocryptfs(*options: str) -> Words:
    """Return a function that initializes an encrypted directory, and returns the command line that mounts it."""

    def words(directory: Path, point: Path) -> tuple[str | Path, ...]:
        secret = directory.with_name("password")
        secret.write_text(_PASSWORD)
        run("gocryptfs", "-init", "-quiet", "-scryptn", "10", "-passfile", secret, directory)
        return ("gocryptfs", "-fg", "-quiet", *options, "-passfile", secret, directory, point)

    return words

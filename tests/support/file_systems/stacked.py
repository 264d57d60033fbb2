"""File systems by FUSE that show directories of another one: bindfs, gocryptfs, mergerfs. Theirs lie on ext4."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.file_systems.of_one_host import of_kernel
from tests.support.file_systems.serving import Mounted, client, made, run, unmount

_PASSWORD = "only for tests"
Words = Callable[[Path, Path], tuple[str | Path, ...]]


def over_ext4(words: Words) -> Callable[[Path], contextlib.AbstractContextManager[Mounted]]:
    """Return what mounts a FUSE client on directories of ext4; ``words`` are those of (directory, mount point)."""

    @contextlib.contextmanager
    def start(home: Path) -> Iterator[Mounted]:
        with of_kernel("ext4")(made(home / "below")) as below, contextlib.ExitStack() as stack:
            points = {}
            for name, volume in (("first", below.first), ("small", below.small)):
                assert volume
                points[name] = home / name
                stack.enter_context(client(points[name], *words(made(volume / "shown"), points[name])))
            first = points["first"]
            yield Mounted(first=first, small=points["small"], kill_server=lambda: unmount(first))

    return start


def bindfs(*options: str) -> Words:
    """Return the command line of bindfs."""
    return lambda directory, point: ("bindfs", "-f", *options, directory, point)


def mergerfs(options: str) -> Words:
    """Return the command line of mergerfs, over one branch more than a bind needs."""

    def words(directory: Path, point: Path) -> tuple[str | Path, ...]:
        branches = ":".join(str(made(directory / name)) for name in ("a", "b"))
        return ("mergerfs", "-f", "-o", f"allow_other,{options}".rstrip(","), branches, point)

    return words


def gocryptfs(*options: str) -> Words:
    """Make an encrypted directory and return the command line that shows it."""

    def words(directory: Path, point: Path) -> tuple[str | Path, ...]:
        secret = directory.with_name("password")
        secret.write_text(_PASSWORD)
        run("gocryptfs", "-init", "-quiet", "-scryptn", "10", "-passfile", secret, directory)
        return ("gocryptfs", "-fg", "-quiet", *options, "-passfile", secret, directory, point)

    return words

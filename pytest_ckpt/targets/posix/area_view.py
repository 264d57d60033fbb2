"""The folder of a run as this host sees it: its storage, whether that is the same, and whether other hosts see it.

A mount over the folder of a run, or another folder in its place, would have the other storage measured. A mount that is
created anew is the same storage: it keeps its place, its file system and its source. Hosts see the same folder if each
finds the files that the others created there.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.facts.across_hosts import HostMount, Marker
from pytest_ckpt.facts.targets import AreaRef, StorageStack
from pytest_ckpt.targets.owner import owner_of
from pytest_ckpt.targets.posix.page_cache import seen_storage
from pytest_ckpt.targets.posix.storage_stack import (
    Mount,
    all_mounts,
    device_number,
    file_of_loop,
    mount_among,
    mount_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

# Whose folders keep their number for as long as they are there, on every client: others may give them a new one.
_KEEP_NUMBERS = frozenset(
    ("btrfs", "ceph", "ext2", "ext3", "ext4", "f2fs", "gpfs", "lustre", "nfs", "nfs4", "xfs", "zfs")
)

_LOOP = "/dev/loop"
_DEVICES = Path("/sys/class/block")

SIGN_PREFIX = ".pytest-ckpt-"

_POLL_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class DirectoryIdentity:
    """The mount that a folder is on, and the folder's number on it; 0 where clients may give it another one.

    ``is_there``: the folder is, on whatever mount. ``covered`` names mounts inside it: a run makes none.
    """

    folder: str
    mount_point: str
    file_system: str
    source: str
    number: int = 0
    is_there: bool = True
    covered: tuple[str, ...] = ()

    def describe(self) -> str:
        """Say it in words."""
        where = f"{self.folder} on {self.mount_point} ({self.file_system} of {self.source})"
        where += f", number {self.number}" if self.number else ""
        return where + "".join(f", with {mount} mounted in it" for mount in self.covered)

    @property
    def _mount(self) -> tuple[str, str, str]:
        # A file that is mounted again may get another loop device.
        source = _LOOP if self.source.startswith(_LOOP) else self.source
        return self.mount_point, self.file_system, source

    def is_same(self, other: DirectoryIdentity) -> bool:
        """Whether both are one folder: on one mount, with the same mounts inside, and one number if both have it."""
        is_known = self.number and other.number
        is_other = bool(is_known) and self.number != other.number
        return (self._mount, self.covered) == (other._mount, other.covered) and not is_other


def standing_of(folder: Path) -> DirectoryIdentity:
    """Return where a folder stands, whether it is there or not."""
    mounts = all_mounts()
    mount = mount_among(mounts, folder)
    try:
        number, is_there = folder.stat().st_ino, True
    except OSError:
        number, is_there = 0, False
    return DirectoryIdentity(
        folder=str(folder),
        mount_point=mount.mount_point,
        file_system=mount.file_system,
        source=_image_below(mount) or mount.source,
        number=number if mount.file_system in _KEEP_NUMBERS else 0,
        is_there=is_there,
        covered=tuple(_mounts_in(folder, mounts)),
    )


def _mounts_in(folder: Path, mounts: Iterable[Mount]) -> Iterator[str]:
    """Yield the mounts inside a folder, each with what is mounted there."""
    for mount in mounts:
        if mount.mount_point.startswith(f"{folder}/"):
            yield f"{mount.mount_point} ({mount.file_system} of {mount.source})"


def _image_below(mount: Mount) -> str:
    """Return the file that the loop device of a mount reads and writes; empty for another device.

    A copy of that file has the same folders with the same numbers, and the loop device has another number each time.
    """
    if not mount.source.startswith(_LOOP):
        return ""
    return file_of_loop((_DEVICES / Path(mount.source).name).resolve())


def is_of_area(standing: DirectoryIdentity, area: AreaRef) -> bool:
    """Whether a folder is the one that was made for a run, as far as its number and its mount tell."""
    made = area.identity[1] if len(area.identity) > 1 else ""
    return not standing.number or not made or str(standing.number) == made


def describe_change(before: DirectoryIdentity, now: DirectoryIdentity) -> str:
    """Return what has taken the place of a folder, for an error; empty if it stands where it stood.

    A folder that is gone was not replaced, be it that its mount is gone: that is told by the calls of whoever needs it.
    """
    if not now.is_there or now.is_same(before):
        return ""
    return f"the run's folder was {before.describe()}; now it is {now.describe()}"


def sign_of(run_id: str, what: str) -> Marker:
    """Return a file that nobody else makes, for hosts to find: it says whose it is, should its controller be killed."""
    owner = owner_of(run_id) | {"word": secrets.token_hex(16)}
    return Marker(name=f"{SIGN_PREFIX}{run_id}.{what}", word=json.dumps(owner))


class PosixAreaView:
    """The folder of an area, as this host sees it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def is_folder(self) -> bool:
        """Whether there is a folder at all."""
        return self._folder.is_dir()

    @property
    def mount(self) -> HostMount:
        """The mount that the folder is on; the folder is touched first, for an automounter."""
        with contextlib.suppress(OSError):
            os.statvfs(self._folder)
        mount = mount_of(self._folder.resolve())
        return HostMount(kind=mount.file_system, source=mount.source, options=mount.options)

    @property
    def storage(self) -> StorageStack:
        """What lies below the folder, and why the count of cached pages misses a cache there."""
        return seen_storage(self._folder)

    @property
    def free_bytes(self) -> int:
        """The space that is free for this process; 0 where there is no folder."""
        try:
            space = os.statvfs(self._folder)
        except OSError:
            return 0
        return space.f_bavail * space.f_frsize

    @property
    def device(self) -> str:
        """The device of the folder's file system as the kernel numbers it, ``major:minor``. Raises OSError."""
        return device_number(self._folder.stat())

    @contextlib.contextmanager
    def shown(self, sign: Marker) -> Iterator[str]:
        """Make a file for other hosts, and remove it; give why that cannot be done, empty where it is done."""
        try:
            yield self._why_not_made(sign)
        finally:
            with contextlib.suppress(OSError):
                (self._folder / sign.name).unlink(missing_ok=True)

    def instead_of(self, sign: Marker, seconds: float) -> str:
        """Look for a file that another host made, for so long; return what was there instead, empty if it is found.

        On a file system that only this host can see nothing will appear: there one look is enough.
        """
        end = 0.0 if mount_of(self._folder.resolve()).is_local else time.monotonic() + seconds
        while True:
            try:
                if (self._folder / sign.name).read_text(errors="replace") == sign.word:
                    return ""
                seen = "another text in it"
            except OSError as error:
                seen = error.strerror or str(error)
            if time.monotonic() > end:
                return seen
            time.sleep(_POLL_SECONDS)

    def _why_not_made(self, sign: Marker) -> str:
        try:
            with (self._folder / sign.name).open("x") as file:
                file.write(sign.word)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            return error.strerror or str(error)
        return ""

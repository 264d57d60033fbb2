"""Which storage a run's folder lies on, and whether it still does: a mount over it, or another folder in its place.

Whoever mounts something over the folder of a run in its middle has the other storage measured. A mount that is made
anew is the same storage: it keeps its place, its file system and its source.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.targets.posix.mounts import Mount, all_mounts, mount_among
from pytest_ckpt.targets.posix.storage_stack import file_of_loop

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Whose folders keep their number for as long as they are there, on every client: others may give them a new one.
_KEEP_NUMBERS = frozenset(
    ("btrfs", "ceph", "ext2", "ext3", "ext4", "f2fs", "gpfs", "lustre", "nfs", "nfs4", "xfs", "zfs")
)

_LOOP = "/dev/loop"
_DEVICES = Path("/sys/class/block")


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
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

    def is_same(self, other: Standing) -> bool:
        """Whether both are one folder: on one mount, with the same mounts inside, and one number if both have it."""
        is_known = self.number and other.number
        is_other = bool(is_known) and self.number != other.number
        return (self._mount, self.covered) == (other._mount, other.covered) and not is_other


def standing_of(folder: Path) -> Standing:
    """Return where a folder stands, whether it is there or not."""
    mounts = all_mounts()
    mount = mount_among(mounts, folder)
    try:
        number, is_there = folder.stat().st_ino, True
    except OSError:
        number, is_there = 0, False
    return Standing(
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


def is_of_area(standing: Standing, area: AreaRef) -> bool:
    """Whether a folder is the one that was made for a run, as far as its number and its mount tell."""
    made = area.identity[1] if len(area.identity) > 1 else ""
    return not standing.number or not made or str(standing.number) == made


def describe_change(before: Standing, now: Standing) -> str:
    """Return what has taken the place of a folder, for an error; empty if it stands where it stood.

    A folder that is gone was not replaced, be it that its mount is gone: that is told by the calls of whoever needs it.
    """
    if not now.is_there or now.is_same(before):
        return ""
    return f"the run's folder was {before.describe()}; now it is {now.describe()}"

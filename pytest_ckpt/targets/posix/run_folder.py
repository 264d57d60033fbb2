"""A mounted file system as a target: a folder of our own on it, made and removed with care.

Only what a run made itself is removed, by names that are known from its plan, through descriptors that never follow
a symbolic link; what is found beside it stays, and is told.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Collection

PREFIX = "pytest-ckpt-"
OPENER = "pytest_ckpt.targets.posix.store:open_store"
MOST_TO_FILL_BYTES = 64 << 30
_OWNER = "OWNER.json"
_CANARY = re.compile(r"canary-\d+")  # ranks.residency makes them


@dataclass(frozen=True, kw_only=True, slots=True)
class Leftover:
    """A folder of an earlier run, whose controller is gone."""

    path: Path
    run_id: str
    host: str


def area_of(folder: Path, run_id: str = "", identity: Collection[int] = ()) -> AreaRef:
    """Return the reference of a folder as an area."""
    words = tuple(str(number) for number in identity)
    return AreaRef(scheme="", location=str(folder), run_id=run_id, opener=OPENER, identity=words)


def check_target(target: Path) -> None:
    """Raise UsageError when checkpoints cannot go to this folder. Nothing is written."""
    if not target.exists():
        raise UsageError(
            f"--ckpt-target {target} does not exist.", "Mount the storage and name a folder on it that exists."
        )
    if not target.is_dir():
        raise UsageError(f"--ckpt-target {target} is not a folder.", "Name a folder on the storage under test.")
    if target.resolve() == Path("/"):
        raise UsageError("--ckpt-target is the root folder.", "Name a folder on the storage under test.")
    if os.statvfs(target).f_flag & os.ST_RDONLY:
        raise UsageError(f"--ckpt-target {target} is mounted read-only.", "Mount it for writing: mount -o remount,rw …")
    if not os.access(target, os.W_OK | os.X_OK):
        raise UsageError(
            f"--ckpt-target {target} is not writable for user {os.geteuid()}.", "Run as another user, or chown it."
        )


def check_small_folder(folder: Path) -> None:
    """Raise UsageError when a folder cannot be filled up for a moment. Nothing is written."""
    name = f"--ckpt-full-target {folder}"
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{name} is no folder that can be written to.", "Name a folder on a small volume or quota.")
    seen = os.statvfs(folder)
    if (free := seen.f_bavail * seen.f_frsize) > MOST_TO_FILL_BYTES:
        raise UsageError(
            f"{name} has {format_bytes(free)} free, and all of it would be written.",
            f"Name a volume or quota with at most {format_bytes(MOST_TO_FILL_BYTES)} free.",
        )


def leftovers(target: Path) -> list[Leftover]:
    """Return the folders of earlier runs on the target whose controller no longer runs on this host."""
    found = []
    for entry in sorted(target.glob(PREFIX + "*")):
        try:
            owner = json.loads((entry / _OWNER).read_text())
            run_id, host, pid, began = owner["run"], owner["host"], owner["pid"], owner["process_began"]
            is_alive = host == socket.gethostname() and process_began(pid) == began
        except (OSError, ValueError, KeyError, TypeError, OverflowError):
            continue
        if entry.is_symlink() or is_alive:
            continue
        found.append(Leftover(path=entry, run_id=str(run_id), host=str(host)))
    return found


def process_began(pid: int) -> float | None:
    """Return when a process of this host began, in seconds since the epoch, or None when there is none."""
    import psutil  # noqa: PLC0415 - the process that only removes does not need it

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


class RunFolder:
    """The folder of one run on the target."""

    def __init__(self, target: Path, run_id: str) -> None:
        self.path = target.resolve() / f"{PREFIX}{run_id}"
        self.run_id = run_id
        self.identity: tuple[int, ...] = ()

    def create(self) -> None:
        """Make the folder and say in it whose it is. Raises UsageError when the target does not let it."""
        owner = {
            "run": self.run_id,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "process_began": process_began(os.getpid()),
        }
        try:
            self.path.mkdir(mode=0o700)
            seen = self.path.stat()
            self.identity = (seen.st_dev, seen.st_ino)
            (self.path / _OWNER).write_text(json.dumps(owner) + "\n")
        except OSError as error:
            remove(self.path, self.identity, ())
            raise UsageError(
                f"No folder can be made on the target: {self.path}: {error.strerror}.",
                "Make the target writable and give it space.",
            ) from error


def remove(path: Path, identity: Collection[int], names: Collection[str], *, keep_folder: bool = False) -> list[str]:
    """Remove a run's folder with what the run made in it, and return what was left, one sentence each.

    ``identity`` is (device, inode) of the folder that was made; ``names`` are the paths below it, with ``/``, of
    every file the run may have made; one that ends in ``/`` is a folder in which the run made everything. With
    ``keep_folder`` the folder itself stays, and says whose it is.
    """
    if not identity:
        return []
    try:
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return []
    except OSError as error:
        return [f"{path} was not removed: {error.strerror}"]
    try:
        seen = os.fstat(top)
        if (seen.st_dev, seen.st_ino) != tuple(identity):
            return [f"{path} was not removed: it is no longer the folder that this run made"]
        left = _clear(top, "", frozenset(names) | (frozenset() if keep_folder else {_OWNER}))
    finally:
        os.close(top)
    if not keep_folder:
        with contextlib.suppress(OSError):
            path.rmdir()
    return [f"{path / name} was not removed: {why}" for name, why in left]


def _clear(folder: int, prefix: str, names: frozenset[str]) -> list[tuple[str, str]]:
    """Remove known files and empty folders below an open folder; return (path, reason) of what stays."""
    left = []
    for name in os.listdir(folder):
        path = prefix + name
        try:
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode) and path + "/" in names:
                # Through descriptors and without following links, as all here.
                shutil.rmtree(name, dir_fd=folder)
            elif stat.S_ISDIR(mode) and any(known.startswith(path + "/") for known in names):
                below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                try:
                    inside = _clear(below, path + "/", names)
                finally:
                    os.close(below)
                left += inside
                if not inside:
                    os.rmdir(name, dir_fd=folder)
            elif stat.S_ISREG(mode) and (path in names or _CANARY.fullmatch(name)):
                os.unlink(name, dir_fd=folder)
            else:
                left.append((path, "this run did not make it"))
        except OSError as error:
            left.append((path, error.strerror or str(error)))
    return left


def main() -> None:
    """Remove the folder that standard input names; print what was left."""
    asked = json.load(sys.stdin)
    left = remove(Path(asked["path"]), asked["identity"], asked["names"], keep_folder=asked.get("keep_folder", False))
    print(json.dumps(left))


if __name__ == "__main__":
    main()

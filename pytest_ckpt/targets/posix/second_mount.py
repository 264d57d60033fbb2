"""A second mount of the target on this host, used as a separate client. Both mounts must show the same storage."""

from __future__ import annotations

import dataclasses
import os
import secrets
import shlex
import time
from pathlib import Path

from pytest_ckpt.facts.targets import AreaRef, TargetFacts
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.user_files import answering, user_path
from pytest_ckpt.targets.posix.run_directory import PREFIX, directory_of
from pytest_ckpt.targets.posix.storage_stack import mount_of
from pytest_ckpt.targets.timed_calls import watched

# Network file systems cache attributes and names for up to a minute.
_PATIENCE_SECONDS = 75.0
_POLL_SECONDS = 0.1


def check_second_mount(second_mount: str, location: str) -> Path:
    """Check the path of the second mount and return it. Nothing is written.

    Raises UsageError if the path is not a directory, or if it is on the same mount as the target.
    """
    mount, target = user_path(second_mount, "--ckpt-second-mount"), Path(location)
    name = f"--ckpt-second-mount {mount}"
    with answering(name):
        watched(name, lambda: _check_second_mount(mount, target, name))
    return mount


def _check_second_mount(mount: Path, target: Path, name: str) -> None:
    if not mount.is_dir():
        raise UsageError(f"{name} is not a directory.", f"Name the path of {target} on the second mount.")
    if mount.resolve() == target.resolve():
        raise UsageError(f"{name} is the target itself.", "Mount the storage a second time, elsewhere.")
    here, there = target.stat(), mount.stat()
    if (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino):
        raise UsageError(
            f"{name} and the target are one mount to the kernel (same device and inode), with one cache.",
            "Mount it as a separate client: NFS with the option nosharecache, CephFS with noshare, not by mount "
            "--bind.",
        )


def unlike_target(name: str, directory: Path, target: TargetFacts) -> str:
    """Return a reason if a directory is not on the target's type of file system; return an empty text if it is.

    Each type has its own caches and guarantees, so results from another type do not apply to the target. ``name`` is
    the role of the directory in the reason: a second mount, or a volume to fill.
    """
    kind = mount_of(directory).file_system
    if kind == target.kind:
        return ""
    return f"{name} {directory} is of another kind ({kind}) than the target ({target.kind})"


def fault_of_second_mount(mount: Path, area: AreaRef) -> str:
    """Return the reason why a second mount no longer shows a run's directory; return an empty text if it shows it."""
    place = mount / directory_of(area).name
    try:
        if watched(f"the second mount {mount}", place.is_dir):
            return ""
    except (UsageError, OSError) as error:
        return str(error).splitlines()[0].rstrip(".")
    return f"the second mount {mount} no longer shows the run's directory: it was unmounted, or its server has failed"


def through_second_mount(second_mount: str, area: AreaRef) -> AreaRef:
    """Return the area of a run, with the area's path on the second mount as its location."""
    return dataclasses.replace(
        area, location=str(user_path(second_mount, "--ckpt-second-mount") / directory_of(area).name)
    )


def check_same_target(mount: Path, location: str, area: AreaRef) -> None:
    """Check that the second mount shows the target.

    A random file is written in the run's area and read through the second mount. Raises UsageError if the second mount
    does not show the file.
    """
    watched(
        f"--ckpt-second-mount {mount}", lambda: _check_same_file(mount, location, area), more_seconds=_PATIENCE_SECONDS
    )


def _check_same_file(mount: Path, location: str, area: AreaRef) -> None:
    name = f"same-{secrets.token_hex(8)}"
    word = secrets.token_bytes(64)
    run_directory = directory_of(area)
    mine, theirs = run_directory / name, mount / run_directory.name / name
    try:
        with mine.open("wb") as file:
            file.write(word)
            file.flush()
            os.fsync(file.fileno())
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                if theirs.read_bytes() == word:
                    return
                difference = "other bytes in it"
            except OSError as error:
                difference = error.strerror or str(error)
                # If the directory does not exist at all, the storage differs; caches hide only single files.
                if not any(mount.glob(f"{PREFIX}*")) and time.monotonic() > end - _PATIENCE_SECONDS + 3:
                    break
            if time.monotonic() > end:
                break
            time.sleep(_POLL_SECONDS)
    finally:
        mine.unlink(missing_ok=True)
    raise UsageError(
        f"--ckpt-second-mount {mount} is not the same storage as {location}: a file written below the target "
        f"was not found there ({difference}).",
        f"Name the very directory that the first mount calls {shlex.quote(location)}.",
    )

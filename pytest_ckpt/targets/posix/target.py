"""A directory on a mounted file system as a target."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pytest_ckpt.facts.targets import MOUNTED, AreaRef, Capacity, Leftover, Names, StorageStack, TargetFacts, removal_of
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.processes import undisturbed
from pytest_ckpt.support.units import format_bytes
from pytest_ckpt.support.user_files import answering, user_path
from pytest_ckpt.targets.posix.names import OPENER, OPENER_BY_MARKER
from pytest_ckpt.targets.posix.page_cache import inspect_storage
from pytest_ckpt.targets.posix.run_directory import (
    RunDirectory,
    directory_of,
    find_leftovers,
    owner_record,
    refuses_to_rename,
    remove_begun,
    remove_in_time,
)
from pytest_ckpt.targets.posix.storage_stack import mount_of
from pytest_ckpt.targets.timed_calls import watched

_REMOVE_SECONDS = 120.0
MAXIMUM_TO_FILL_BYTES = 64 << 30


def target(location: str) -> PosixTarget:
    """Return the target for a path on a mounted file system."""
    return PosixTarget(location)


def capacity_of(space: os.statvfs_result) -> Capacity | None:
    """Return the capacity from a result of statvfs(3). None if the file system reports a size of 0, as some do."""
    if space.f_blocks == 0:
        return None
    return Capacity(
        total_bytes=space.f_blocks * space.f_frsize,
        used_bytes=(space.f_blocks - space.f_bfree) * space.f_frsize,
        free_bytes=space.f_bavail * space.f_frsize,
        # A file system without a limit of its own reports 0 (btrfs) or -1 (CephFS). If there really are no inodes, the
        # run's first directory fails.
        free_files=space.f_favail if space.f_favail > 0 else None,
    )


class PosixTarget:
    """A directory on a mounted file system, as a target.

    ``option`` is the command-line option that names the directory. ``opener`` is the name of the function that opens
    areas in the directory, as ``module:name``.
    """

    def __init__(self, location: str, option: str = "--ckpt-target", opener: str = OPENER) -> None:
        self._path = user_path(location, option)
        self._option, self._opener = option, opener

    @property
    def _name(self) -> str:
        return f"{self._option} {self._path}"

    def describe(self) -> TargetFacts:
        """Return the facts that the kernel's mount table contains. The directory is not accessed."""
        return self._facts(self._path, None)

    def check(self) -> TargetFacts:
        """Return facts about the mount and the space of the directory. Nothing is written.

        Raises UsageError if the directory cannot be used.
        """
        with answering(self._name):
            return watched(self._name, self._checked)

    def _checked(self) -> TargetFacts:
        path, name = self._path, f"{self._option} {self._path}"
        if not path.exists():
            raise UsageError(f"{name} does not exist.", "Mount the storage and name a directory on it that exists.")
        if not path.is_dir():
            raise UsageError(f"{name} is not a directory.", "Name a directory on the storage under test.")
        if path.resolve() == Path("/"):
            raise UsageError(f"{self._option} is the root directory.", "Name a directory on the storage under test.")
        space = os.statvfs(path)
        if space.f_flag & os.ST_RDONLY:
            raise UsageError(f"{name} is mounted read-only.", "Mount it for writing: mount -o remount,rw …")
        if not os.access(path, os.W_OK | os.X_OK):
            raise UsageError(f"{name} is not writable for user {os.geteuid()}.", "Run as another user, or chown it.")
        with os.scandir(path) as entries:
            next(entries, None)
        return self._facts(path.resolve(), capacity_of(space), inspect_storage(path))

    def _facts(self, resolved: Path, capacity: Capacity | None, stack: StorageStack | None = None) -> TargetFacts:
        mount = mount_of(resolved)
        return TargetFacts(
            location=str(self._path),
            kind=mount.file_system,
            gate_kind=mount.gate_kind,
            is_local=mount.is_local,
            capacity=capacity,
            capabilities=MOUNTED,
            source=mount.source,
            mount_point=mount.mount_point,
            options=mount.options,
            stack=stack,
        )

    def check_may_be_filled(self) -> None:
        """Raise UsageError if the directory is not writable or has more than 64 GiB of free space. Write nothing."""
        with answering(self._name):
            watched(self._name, self._check_may_be_filled)

    def _check_may_be_filled(self) -> None:
        path, name = self._path, f"{self._option} {self._path}"
        if not path.is_dir() or not os.access(path, os.W_OK | os.X_OK):
            raise UsageError(
                f"{name} is not a directory that can be written to.", "Name a directory on a small volume or quota."
            )
        space = os.statvfs(path)
        if (free := space.f_bavail * space.f_frsize) > MAXIMUM_TO_FILL_BYTES:
            raise UsageError(
                f"{name} has {format_bytes(free)} free, and all of it would be written.",
                f"Name a volume or quota with at most {format_bytes(MAXIMUM_TO_FILL_BYTES)} free.",
            )

    def place(self) -> AreaRef:
        """Return the directory of the target as an area that belongs to no run."""
        return AreaRef(scheme="", location=str(self._path), run_id="", opener=self._opener)

    def create_area(self, run_id: str) -> AreaRef:
        """Create the run's directory with its owner's record.

        If this fails, remove the directory and raise UsageError.
        """
        directory = watched(self._name, lambda: RunDirectory(self._path, run_id))
        word = owner_record(run_id)
        try:
            # Once: the directory that a killed process had created would be refused as another run's.
            identity = watched(self._name, lambda: directory.create(word), tries=1)
            return AreaRef(
                scheme="",
                location=str(directory.path),
                run_id=run_id,
                opener=self._opener_in(directory.path),
                identity=tuple(map(str, identity)),
            )
        except KeyboardInterrupt:
            with undisturbed():
                watched(self._name, lambda: remove_begun(directory.path))
            raise

    def _opener_in(self, directory: Path) -> str:
        """Return the name of the function that opens areas, as ``module:name``.

        If the file system cannot rename directories, the named function opens areas in which a marker file commits.
        """
        by_marker = self._opener == OPENER and watched(self._name, lambda: refuses_to_rename(directory))
        return OPENER_BY_MARKER if by_marker else self._opener

    def leftovers(self) -> Sequence[Leftover]:
        """Return the directories and files of earlier runs whose controller has ended or ran on another host."""
        with answering(self._name):
            entries = watched(self._name, lambda: find_leftovers(self._path))
        return [
            Leftover(
                what=str(f.path),
                why=f"run {f.run_id} of {f.host}",
                command=removal_of("", str(f.path)),
                elsewhere=f.elsewhere,
            )
            for f in entries
        ]

    def clean(self, area: AreaRef, names: Names, deadline_seconds: float, *, keep_area: bool = False) -> list[str]:
        """Remove the run's files, in a separate process. Return one sentence for each entry that remains."""
        return remove_in_time(
            directory_of(area),
            [int(number) for number in area.identity],
            names,
            deadline_seconds,
            keep_directory=keep_area,
        )

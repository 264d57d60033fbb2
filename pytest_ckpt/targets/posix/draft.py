"""A draft: a checkpoint that a rank saves into a folder that the commit renames."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from pytest_ckpt.facts.across_hosts import SEEN_WITHIN_SECONDS
from pytest_ckpt.facts.proofs import CommitProof, DurabilityProof, Entry
from pytest_ckpt.sizing.files import ReplayedFile
from pytest_ckpt.targets.posix.direct_io import DirectWay
from pytest_ckpt.targets.posix.folder_syncs import FolderSyncs
from pytest_ckpt.targets.posix.replayed_calls import PosixCalls
from pytest_ckpt.targets.posix.sink import SinkAtOffsets, SinkInOrder
from pytest_ckpt.targets.protocol import Buffer, Phases, Sink

_POLL_SECONDS = 0.001


class PosixDraft:
    """This rank's files in ``folder``; ``publish`` commits the checkpoint from the entries of all ranks."""

    def __init__(
        self, folder: Path, way: DirectWay, phases: Phases, publish: Callable[[Sequence[Entry]], CommitProof]
    ) -> None:
        self._folder, self._way, self._phases, self._publish = folder, way, phases, publish
        self._names: list[str] = []
        self._finished: list[Entry] = []
        self._folders = FolderSyncs()
        with phases.phase("open", folder.name):
            make_folder(folder)
        self._folders.owe()

    def create(self, name: str, size: int | None) -> Sink:
        """Begin a file."""
        self._names.append(name)
        path = self._folder / name
        if size is None:
            return SinkInOrder(path, self._phases, self._finished.append)
        return SinkAtOffsets(path, size, self._way, self._phases, self._finished.append)

    def location(self) -> str:
        """Return the folder."""
        return str(self._folder)

    def replay(self, files: Mapping[int, ReplayedFile], data: Mapping[int, Buffer]) -> PosixCalls:
        """Begin a replay in the folder."""
        return PosixCalls(self._folder, files, data, self._phases)

    def adopt(self, names: Collection[str]) -> None:
        """Take files that a library wrote, and fsync each of them."""
        for name in names:
            self._names.append(name)
            with self._phases.phase("fsync", name):
                size = sync(self._folder / name)
            self._finished.append(Entry(name=name, bytes=size))

    def seal(self) -> tuple[Sequence[Entry], DurabilityProof]:
        """Fsync the folder."""
        if not self._folders.returned:
            with self._phases.phase("directory", self._folder.name):
                self._folders.sync(self._folder)
        proof = DurabilityProof(
            files_attempted=len(self._names),
            files_returned=len(self._finished),
            folders_attempted=self._folders.attempted,
            folders_returned=self._folders.returned,
        )
        return tuple(self._finished), proof

    def commit(self, entries: Sequence[Entry]) -> CommitProof:
        """Rename the folder."""
        return self._publish(entries)

    def abort(self) -> None:
        """Remove this rank's files; the folder stays for the others."""
        unlink(self._folder, self._names)


def make_folder(folder: Path) -> None:
    """Make a folder that another rank may have made already; a symbolic link in its place is not one.

    A client may remember for a moment that there was none, when another host has just made it: STALE allows that. To
    make it is then tried again, which asks the server, and not the client's memory.
    """

    def make() -> None:
        try:
            folder.mkdir()
        except FileExistsError:
            if not stat.S_ISDIR(folder.lstat().st_mode):
                raise

    until_seen(make)


def until_seen(act: Callable[[], None]) -> None:
    """Do what finds no file while this client does not know what another host made; again, as long as STALE allows."""
    end = time.monotonic() + SEEN_WITHIN_SECONDS
    while True:
        try:
            return act()
        except FileNotFoundError:
            if time.monotonic() > end:
                raise
            time.sleep(_POLL_SECONDS)


def sync(file: Path) -> int:
    """Fsync a file that was written and closed; return its bytes."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def unlink(folder: Path, names: Collection[str]) -> None:
    """Remove files of a folder, through no symbolic link in its place."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for name in names:
            os.unlink(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)

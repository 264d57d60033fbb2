"""Small checkpoints of known content, for checks. They are saved with the same calls as the saves of a run.

A check reads these checkpoints without the caches of this client. `targets.posix.commit` contains the methods of a
commit.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.conformance.content import difference, opened, random_bytes, read_to_end
from pytest_ckpt.targets.posix.commit import BY_RENAME, Commit
from pytest_ckpt.targets.posix.direct_io import NOT_OFFERED
from pytest_ckpt.targets.posix.names import checkpoint_name

if TYPE_CHECKING:
    from pytest_ckpt.conformance.context import Findings

# A callback for each call and its path, just before it is made.
Doing = Callable[[str, object], None]

_PIECE_BYTES = 1 << 20


class Calls:
    """Reports each call before it is made, and stores the last call and its path for error messages."""

    def __init__(self, report_call: Callable[[str, str], None]) -> None:
        self._report_call = report_call
        self.call, self.path = "", ""

    def __call__(self, call: str, path: object) -> None:
        """Report and store the next call."""
        self.call, self.path = call, str(path)
        self._report_call(call, self.path)


@dataclass(frozen=True, slots=True)
class ReportedCommitCalls:
    """The calls of a commit, each reported before it begins."""

    doing: Doing

    def rename(self, old: Path, new: Path) -> None:
        """Rename a directory."""
        self.doing("rename", new)
        old.rename(new)

    def write_new(self, path: Path, data: bytes) -> None:
        """Write a new file and fsync it."""
        write_durably(path, data, self.doing)

    def sync_directory(self, directory: Path) -> None:
        """Fsync a directory."""
        sync_directory(directory, self.doing)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointFault:
    """A file or directory that is not as expected.

    ``is_name`` is true if a name is wrong or missing, and false if the bytes of a file are wrong.
    """

    where: str
    seen: str
    expected: str
    is_name: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A small checkpoint of several files, whose bytes are generated from the checkpoint's seed and number."""

    number: int
    seed: int
    files: int = 4
    file_bytes: int = 256 << 10
    commit: Commit = BY_RENAME

    @property
    def name(self) -> str:
        """The name of the checkpoint's directory after the commit."""
        return checkpoint_name(self.number)

    def places(self, directory: Path) -> tuple[Path, ...]:
        """Return the paths of the checkpoint's directory before and after the commit; one path if they are equal.

        ``directory`` is the parent directory.
        """
        final = directory / self.name
        return tuple(dict.fromkeys((self.commit.draft_of(final), final)))

    def is_committed(self, directory: Path) -> bool:
        """Return whether the checkpoint in the parent ``directory`` is committed."""
        return self.commit.is_committed(directory / self.name)

    def seed_parts(self) -> dict[str, tuple[object, ...]]:
        """Return {file name: the words from which the random bytes of the file are generated}."""
        return {f"shard-{index}": (self.seed, "checkpoint", self.number, index) for index in range(self.files)}

    def contents(self) -> dict[str, bytes]:
        """Return {file name: its content}, without the files that the commit adds."""
        return {name: random_bytes(self.file_bytes, *words) for name, words in self.seed_parts().items()}

    def expected(self, directory: Path) -> dict[str, bytes]:
        """Return {file name: its content} of the committed checkpoint, including the files that the commit adds."""
        return {**self.contents(), **self.commit.files_of(directory / self.name)}

    def save(self, directory: Path, doing: Doing) -> None:
        """Write and fsync the files and the directory of the checkpoint below ``directory``, and commit it."""
        final = directory / self.name
        draft = self.commit.draft_of(final)
        doing("mkdir", draft)
        draft.mkdir()
        for name, data in self.contents().items():
            write_durably(draft / name, data, doing)
        sync_directory(draft, doing)
        self.commit.perform(final, ReportedCommitCalls(doing))

    def wrongs(self, directory: Path, doing: Doing) -> list[CheckpointFault]:
        """Return the faults of the committed checkpoint, read without the caches; empty without a fault.

        The directory is listed after the files were read, because a listing refreshes the cached attributes of some
        clients.
        """
        expected = self.expected(directory)
        found = [wrong_bytes(directory / self.name / name, data, doing) for name, data in expected.items()]
        wrongs = [wrong for wrong in found if wrong]
        doing("list", directory / self.name)
        try:
            there = names_in(directory / self.name)
        except OSError as error:
            return [_unreadable(directory / self.name, error)]
        if not wrongs and there != sorted(expected):
            wrongs.append(
                CheckpointFault(
                    where=str(directory / self.name),
                    seen=", ".join(there),
                    expected=", ".join(sorted(expected)),
                    is_name=True,
                )
            )
        return wrongs


def saved_right(findings: Findings, checkpoint: Checkpoint, directory: Path, doing: Doing, when: str) -> bool:
    """Record the faults of a checkpoint that must be unchanged since its save. Return whether no fault was found.

    ``when`` describes the time of the comparison in messages.
    """
    wrongs = checkpoint.wrongs(directory, doing)
    for wrong in wrongs:
        findings.wrong(
            "a saved checkpoint is not what was written",
            where=f"{wrong.where}, {when}",
            seen=wrong.seen,
            expected=wrong.expected,
        )
    return not wrongs


def write_durably(
    path: Path,
    data: bytes,
    doing: Doing,
    *,
    piece_bytes: int = _PIECE_BYTES,
    flags: int = os.O_CREAT | os.O_EXCL,
    sync: bool = True,
) -> None:
    """Open a file, write, fsync (unless ``sync`` is false) and close it.

    The first failed call raises OSError. If write or fsync fails, the file is closed.
    """
    doing("open", path)
    descriptor = os.open(path, os.O_WRONLY | flags, 0o644)
    try:
        doing("write", path)
        write_all(descriptor, data, piece_bytes)
        if sync:
            doing("fsync", path)
            os.fsync(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(descriptor)
        raise
    doing("close", path)
    os.close(descriptor)


def write_all(descriptor: int, data: bytes, piece_bytes: int = _PIECE_BYTES) -> None:
    """Write all bytes in pieces. A short write is continued."""
    view = memoryview(data)
    done = 0
    while done < len(view):
        written = os.write(descriptor, view[done : done + piece_bytes])
        if not written:
            raise OSError(errno.EIO, "write accepted no bytes and returned no error")
        done += written


def sync_directory(directory: Path, doing: Doing) -> None:
    """Make the names in a directory durable by fsync."""
    doing("fsync directory", directory)
    with opened(directory, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        os.fsync(descriptor)


def wrong_bytes(path: Path, data: bytes, doing: Doing) -> CheckpointFault | None:
    """Return the fault of a file's bytes on the target; None if the bytes are correct."""
    doing("read", path)
    try:
        seen = read_past_caches(path)
    except OSError as error:
        return _unreadable(path, error)
    found = difference(seen, data)
    if not found:
        return None
    return CheckpointFault(
        where=f"{path} at byte {found.at:,}", seen=f"{found.kind}: {found.seen}", expected=found.expected
    )


def read_past_caches(path: Path) -> bytes:
    """Return the bytes of a file on the target, read with O_DIRECT.

    If the target refuses O_DIRECT, the file's pages are dropped from the page cache, and the file is read normally.
    """
    try:
        return _read_direct(path)
    except OSError as error:
        if error.errno not in NOT_OFFERED:
            raise
    with opened(path, os.O_RDONLY) as descriptor:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return read_to_end(descriptor)


def _read_direct(path: Path) -> bytes:
    # An anonymous mapping is aligned to a page, as O_DIRECT requires.
    with opened(path, os.O_RDONLY | os.O_DIRECT) as descriptor, mmap.mmap(-1, _PIECE_BYTES) as buffer:
        read = bytearray()
        while True:
            # A short page is read again: only a read that returns no more bytes than before is the end.
            start = len(read) - len(read) % mmap.PAGESIZE
            count = os.preadv(descriptor, [buffer], start)
            if start + count <= len(read):
                return bytes(read)
            read[start:] = buffer[:count]


def names_in(directory: Path) -> list[str]:
    """Return the names in a directory, sorted."""
    return sorted(path.name for path in directory.iterdir())


def missing(path: Path) -> CheckpointFault:
    """Return the fault of a missing name. The text of the fault lists the names in the directory."""
    siblings = names_in(path.parent) if path.parent.is_dir() else []
    names = ", ".join(siblings[:8]) + (" …" if len(siblings) > 8 else "") or "nothing"
    return CheckpointFault(
        where=str(path),
        seen=f"no such name; the directory contains: {names}",
        expected="the name is there",
        is_name=True,
    )


def _unreadable(path: Path, error: OSError) -> CheckpointFault:
    if error.errno == errno.ENOENT:
        return missing(path)
    name = errno.errorcode.get(error.errno or 0, "")
    return CheckpointFault(where=str(path), seen=f"{name}: {error.strerror}", expected="it can be read")

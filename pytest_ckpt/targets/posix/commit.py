"""The commit of a checkpoint on a mounted file system: the rename of its directory, or a marker file in it.

Saves and conformance checks use the same class `Commit`, so that checks test the system calls of a real save. The
caller supplies the functions that perform the calls. In a save, they also count directory fsyncs. In checks, they also
report each call before it begins; one check measures the times of the calls.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Protocol

from pytest_ckpt.facts.proofs import CommitMethod
from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.targets.posix.names import MARKER, OPENER_BY_MARKER, partial_name


class CommitCalls(Protocol):
    """The system calls of a commit. The caller of `Commit.perform` supplies these methods. Each raises OSError."""

    def rename(self, old: Path, new: Path) -> None:
        """Rename a directory."""

    def write_new(self, path: Path, data: bytes) -> None:
        """Write a new file and fsync it."""

    def sync_directory(self, directory: Path) -> None:
        """Fsync a directory."""


class Commit(Protocol):
    """A commit method. ``sign`` is the name that reports use for the evidence of a commit, such as "final name"."""

    method: CommitMethod
    sign: str

    def draft_of(self, final: Path) -> Path:
        """Return the directory that contains the files before the commit. After the commit, they are in ``final``."""

    def evidence_of(self, final: Path) -> Path:
        """Return the path that exists only after the commit."""

    def files_of(self, final: Path) -> dict[str, bytes]:
        """Return the files that a commit adds to the checkpoint's directory: {name: content}."""

    def synced_by(self, final: Path) -> tuple[Path, ...]:
        """Return the directories that a commit fsyncs, in order."""

    def perform(self, final: Path, calls: CommitCalls) -> None:
        """Commit a checkpoint and make the commit durable. The checkpoint's files and names must already be durable."""

    def is_committed(self, final: Path) -> bool:
        """Return whether this client sees the commit of the checkpoint at ``final``.

        The saved files are not checked.
        """


class CommitByRename:
    """Commits a checkpoint by renaming its directory from a temporary name to the final name."""

    method: CommitMethod = "rename"
    sign = "final name"

    def draft_of(self, final: Path) -> Path:
        """Return the temporary directory, in the same parent directory as ``final``."""
        return final.with_name(partial_name(final.name))

    def evidence_of(self, final: Path) -> Path:
        """Return the final directory."""
        return final

    def files_of(self, final: Path) -> dict[str, bytes]:
        """Return an empty dict, because a rename adds no files."""
        return {}

    def synced_by(self, final: Path) -> tuple[Path, ...]:
        """Return the parent directory, which contains the new name."""
        return (final.parent,)

    def perform(self, final: Path, calls: CommitCalls) -> None:
        """Rename the directory and fsync its parent directory."""
        calls.rename(self.draft_of(final), final)
        for directory in self.synced_by(final):
            calls.sync_directory(directory)

    def is_committed(self, final: Path) -> bool:
        """Return whether the directory has its final name."""
        return final.is_dir()


class CommitByMarker:
    """Commits a checkpoint by a marker file, like ``.metadata`` in PyTorch DCP.

    The directory has its final name from the beginning. If the marker file is truncated, the checkpoint is not
    committed.
    """

    method: CommitMethod = "marker"
    sign = "marker file"

    def draft_of(self, final: Path) -> Path:
        """Return the final directory, because its name does not change."""
        return final

    def evidence_of(self, final: Path) -> Path:
        """Return the path of the marker file."""
        return final / MARKER

    def files_of(self, final: Path) -> dict[str, bytes]:
        """Return the marker file: {name: content}."""
        return {MARKER: f"{final.name} is committed\n".encode()}

    def synced_by(self, final: Path) -> tuple[Path, ...]:
        """Return the directory, which contains the marker, and its parent, which contains the directory."""
        return final, final.parent

    def perform(self, final: Path, calls: CommitCalls) -> None:
        """Write and fsync the marker file, then fsync the directory and its parent directory."""
        for name, text in self.files_of(final).items():
            calls.write_new(final / name, text)
        for directory in self.synced_by(final):
            calls.sync_directory(directory)

    def is_committed(self, final: Path) -> bool:
        """Return whether a complete marker exists."""
        try:
            return all((final / name).read_bytes() == text for name, text in self.files_of(final).items())
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
            return False


COMMITS: dict[CommitMethod, Commit] = {by.method: by for by in (CommitByRename(), CommitByMarker())}
BY_RENAME, BY_MARKER = COMMITS["rename"], COMMITS["marker"]


def commit_of(area: AreaRef) -> Commit:
    """Return the commit method of a run's area. A test on the target selected it at the creation of the area."""
    return BY_MARKER if area.opener == OPENER_BY_MARKER else BY_RENAME

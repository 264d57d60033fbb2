"""The commit of a checkpoint on a mounted file system: the rename of its directory, or a marker file in it.

Saves of ranks and checks of behaviour use the same object to commit, so a check tests the calls on which a save relies.
The caller performs the calls: ranks count them, checks report each call before it begins, and one check times each
call.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Protocol

from pytest_ckpt.facts.proofs import CommitMethod
from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.targets.posix.names import MARKER, OPENER_BY_MARKER, partial_name


class CommitCalls(Protocol):
    """The calls by which a commit changes the storage; a caller provides them. Each raises OSError."""

    def rename(self, old: Path, new: Path) -> None:
        """Rename a directory."""

    def write_new(self, path: Path, data: bytes) -> None:
        """Write a new file and fsync it."""

    def sync_directory(self, directory: Path) -> None:
        """Fsync a directory."""


class Commit(Protocol):
    """A commit method. ``sign`` names the evidence of a commit in reports, for example "final name"."""

    method: CommitMethod
    sign: str

    def draft_of(self, final: Path) -> Path:
        """Return the directory in which files are written before the commit; ``final`` is the directory after the
        commit.
        """

    def evidence_of(self, final: Path) -> Path:
        """Return the path whose existence shows the commit."""

    def files_of(self, final: Path) -> dict[str, bytes]:
        """Return the names and contents of the files that a commit adds to the checkpoint's directory."""

    def synced_by(self, final: Path) -> tuple[Path, ...]:
        """Return the directories that a commit fsyncs, in order."""

    def perform(self, final: Path, calls: CommitCalls) -> None:
        """Commit a checkpoint and make the commit durable. Its files and their names must already be durable."""

    def is_committed(self, final: Path) -> bool:
        """Return whether this client sees a committed checkpoint at ``final``. The checkpoint's own files are not
        examined.
        """


class CommitByRename:
    """Commits by the rename of the checkpoint's directory, which has a temporary name before the commit."""

    method: CommitMethod = "rename"
    sign = "final name"

    def draft_of(self, final: Path) -> Path:
        """Return the temporary directory, which is next to the final one."""
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
    """Commits by a marker file, like ``.metadata`` in torch's DCP; the directory has its final name from the beginning.

    A truncated marker does not commit the checkpoint.
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
        """Return name and content of the marker file."""
        return {MARKER: f"{final.name} is committed\n".encode()}

    def synced_by(self, final: Path) -> tuple[Path, ...]:
        """Return the directory, which contains the marker, and its parent, which contains the directory's name."""
        return final, final.parent

    def perform(self, final: Path, calls: CommitCalls) -> None:
        """Write the marker file and fsync it, the directory and the parent directory."""
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
    """Return the commit method of an area, chosen by a probe when the area was created."""
    return BY_MARKER if area.opener == OPENER_BY_MARKER else BY_RENAME

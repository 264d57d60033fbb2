"""The commit of a checkpoint on a mounted file system: the rename of its directory, or a marker file in it.

Saves of ranks and the checks of behaviour commit by the same object, so a check shows what a save relies on. The caller
makes the calls: ranks count them, checks report each call before it begins, and one check times them one by one.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Protocol

from pytest_ckpt.facts.proofs import CommitMethod
from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.targets.posix.names import MARKER, OPENER_BY_MARKER, partial_name


class CommitCalls(Protocol):
    """The calls of a commit, as their caller makes them. Each raises OSError."""

    def rename(self, old: Path, new: Path) -> None:
        """Rename a directory."""

    def write_new(self, path: Path, data: bytes) -> None:
        """Write a file that does not exist yet, and fsync it."""

    def sync_directory(self, directory: Path) -> None:
        """Fsync a directory."""


class Commit(Protocol):
    """One way to commit. ``sign`` names the evidence of a commit in reports, for example "final name"."""

    method: CommitMethod
    sign: str

    def draft_of(self, final: Path) -> Path:
        """Return the directory in which the files are written, for the directory of the committed checkpoint."""

    def evidence_of(self, final: Path) -> Path:
        """Return the path that shows a commit."""

    def files_of(self, final: Path) -> dict[str, bytes]:
        """Return the names and contents of the files that a commit adds to the checkpoint's directory."""

    def synced_by(self, final: Path) -> tuple[Path, ...]:
        """Return the directories that a commit fsyncs, in their order."""

    def perform(self, final: Path, calls: CommitCalls) -> None:
        """Commit a checkpoint whose files and their names are durable, and make the commit durable."""

    def is_committed(self, final: Path) -> bool:
        """Return whether this client sees a committed checkpoint there; its files are not examined."""


class CommitByRename:
    """The directory has another name until it is renamed."""

    method: CommitMethod = "rename"
    sign = "final name"

    def draft_of(self, final: Path) -> Path:
        """Return the directory next to it."""
        return final.with_name(partial_name(final.name))

    def evidence_of(self, final: Path) -> Path:
        """Return the directory itself."""
        return final

    def files_of(self, final: Path) -> dict[str, bytes]:
        """Return no file."""
        return {}

    def synced_by(self, final: Path) -> tuple[Path, ...]:
        """Return the directory above, which contains the new name."""
        return (final.parent,)

    def perform(self, final: Path, calls: CommitCalls) -> None:
        """Rename the directory and fsync the directory above."""
        calls.rename(self.draft_of(final), final)
        for directory in self.synced_by(final):
            calls.sync_directory(directory)

    def is_committed(self, final: Path) -> bool:
        """Return whether the directory has its final name."""
        return final.is_dir()


class CommitByMarker:
    """The directory has its final name from the beginning; a file in it commits, as ``.metadata`` does in torch's DCP.

    A truncated marker does not commit the checkpoint.
    """

    method: CommitMethod = "marker"
    sign = "marker file"

    def draft_of(self, final: Path) -> Path:
        """Return the same directory."""
        return final

    def evidence_of(self, final: Path) -> Path:
        """Return the marker file."""
        return final / MARKER

    def files_of(self, final: Path) -> dict[str, bytes]:
        """Return the marker file."""
        return {MARKER: f"{final.name} is committed\n".encode()}

    def synced_by(self, final: Path) -> tuple[Path, ...]:
        """Return the directory, which contains the marker, and the one above, which contains the directory's name."""
        return final, final.parent

    def perform(self, final: Path, calls: CommitCalls) -> None:
        """Write the marker file and fsync it, the directory and the directory above."""
        for name, text in self.files_of(final).items():
            calls.write_new(final / name, text)
        for directory in self.synced_by(final):
            calls.sync_directory(directory)

    def is_committed(self, final: Path) -> bool:
        """Return whether the marker is there, complete."""
        try:
            return all((final / name).read_bytes() == text for name, text in self.files_of(final).items())
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
            return False


COMMITS: dict[CommitMethod, Commit] = {by.method: by for by in (CommitByRename(), CommitByMarker())}
BY_RENAME, BY_MARKER = COMMITS["rename"], COMMITS["marker"]


def commit_of(area: AreaRef) -> Commit:
    """Return the commit of an area, which a probe chose when the area was created."""
    return BY_MARKER if area.opener == OPENER_BY_MARKER else BY_RENAME

"""Calls on the names of many empty files, in a directory of a run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY


class PosixNames:
    """A directory; every path is relative to it.

    Paths are strings, because the creation of a `Path` would take longer than some calls.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)

    def make_directory(self, path: str) -> None:
        """Create a directory; an empty path is the directory of this object."""
        os.mkdir(f"{self._directory}/{path}", 0o700)  # noqa: PTH102 - see the class

    def create(self, path: str) -> None:
        """Create an empty file, and close it."""
        os.close(os.open(f"{self._directory}/{path}", _NEW, 0o600))

    def is_found(self, path: str) -> bool:
        """Return whether stat finds a path."""
        try:
            os.stat(f"{self._directory}/{path}", follow_symlinks=False)  # noqa: PTH116 - see the class
        except FileNotFoundError:
            return False
        return True

    def names(self, path: str) -> Iterator[str]:
        """Yield the names in a directory as the target lists them: a name that comes twice is yielded twice."""
        with os.scandir(f"{self._directory}/{path}") as entries:
            for entry in entries:
                yield entry.name

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(f"{self._directory}/{path}")  # noqa: PTH108 - see the class

    def remove_directory(self, path: str = "") -> None:
        """Remove an empty directory; an empty path is the directory of this object."""
        os.rmdir(f"{self._directory}/{path}")  # noqa: PTH106 - see the class

"""Ballast: files that are really written to fill a volume."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_ckpt.targets.protocol import Buffer


class PosixBallast:
    """A file that takes space."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    def write(self, data: Buffer) -> None:
        """Write all of ``data`` behind what was written."""
        view = memoryview(data).cast("B")
        while view:
            view = view[os.write(self._descriptor, view) :]

    def sync(self) -> None:
        """Fsync the file, and advise the page cache to let go of it."""
        os.fsync(self._descriptor)
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Close it."""
        os.close(self._descriptor)

"""Ballast: files that are really written to fill a volume."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from pytest_ckpt.targets.protocol import Buffer

_SYNC_BYTES = 256 << 20


def write_ballast(path: Path, pieces: Iterable[Buffer]) -> None:
    """Write a new file. Raises OSError; what was written until then stays."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        unsynced = 0
        for piece in pieces:
            view = memoryview(piece).cast("B")
            unsynced += len(view)
            while view:
                view = view[os.write(descriptor, view) :]
            if unsynced >= _SYNC_BYTES:
                _sync(descriptor)
                unsynced = 0
        _sync(descriptor)
    finally:
        os.close(descriptor)


def _sync(descriptor: int) -> None:
    """Allocate the space of what was written, and advise the page cache to drop it."""
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

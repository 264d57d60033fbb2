"""The calls by which checkpoint software makes a file and its name durable."""

from __future__ import annotations

import os
from pathlib import Path


def write(path: Path, content: bytes, sync: bool = True) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        if sync:
            os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)

"""Creates nested directories that are so deep that the kernel refuses the path of the innermost directory."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_COUNT, _NAME = 25, "d" * 200


def create_too_deep(directory: Path) -> None:
    """Create nested directories below ``directory``, unless they exist."""
    at = os.open(directory, os.O_RDONLY)
    for _ in range(_COUNT):
        with contextlib.suppress(FileExistsError):
            os.mkdir(_NAME, dir_fd=at)
        below = os.open(_NAME, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)

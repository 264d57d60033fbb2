"""Cold files for the benchmarks that read without a run around them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def drop_caches(files: Iterable[Path]) -> None:
    """Empty the page cache, or have it forget these files where that is not allowed."""
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        for file in files:
            descriptor = os.open(file, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)

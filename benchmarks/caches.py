"""Drops the page cache for benchmarks that read files outside a run of pytest-ckpt."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def drop_caches(files: Iterable[Path]) -> None:
    """Drop the page cache of the host. If this is not permitted, ask the kernel to drop only the pages of ``files``."""
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        for file in files:
            descriptor = os.open(file, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)

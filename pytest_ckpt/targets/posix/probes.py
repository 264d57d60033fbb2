"""What `pytest-ckpt doctor` tries in a folder, in a process of its own: the gauge of residency, a direct request."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from pytest_ckpt.support.own_names import own_name
from pytest_ckpt.targets.posix.file_below import find_gauge_to_the_end

# Of `direct`; that of the residency gauge is its own.
_FILE = "pytest-ckpt-doctor-"


def residency(folder: str) -> str | None:
    """Return the call that counts cached pages there, None where none does."""
    return find_gauge_to_the_end(Path(folder))


def direct(folder: str) -> None:
    """Write a page past the page cache."""
    file = Path(folder) / f"{_FILE}{own_name()}"
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_DIRECT, 0o600)
        try:
            with mmap.mmap(-1, mmap.PAGESIZE) as page:
                page.write(b"\xa5" * mmap.PAGESIZE)
                os.pwrite(descriptor, page, 0)
        finally:
            os.close(descriptor)
    finally:
        file.unlink(missing_ok=True)

"""What is in use and free on the volume of a folder."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_ckpt.sizing.near_full import Volume


def volume_of(folder: Path) -> Volume:
    """Return the volume that a folder is on, as df shows it: what is kept for root is not free."""
    seen = os.statvfs(folder)
    used = (seen.f_blocks - seen.f_bfree) * seen.f_frsize
    return Volume(used_bytes=used, free_bytes=seen.f_bavail * seen.f_frsize)

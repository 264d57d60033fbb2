"""Ways to empty this host's page cache."""

from __future__ import annotations

import errno
from pathlib import Path

_DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def drop_all() -> str | None:
    """Drop every clean page, name and attribute of this host; return how, None where this process may not."""
    return f"{_DROP_CACHES} = 3" if _written("3") else None


def drop_names() -> bool:
    """Drop the names and attributes of files that the kernel remembers; return whether this process may."""
    return _written("2")


def _written(word: str) -> bool:
    try:
        _DROP_CACHES.write_text(word)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT):
            return False
        raise
    return True

"""What a run's files and folders on a mounted file system are called."""

from __future__ import annotations

import re

_CHECKPOINT = re.compile(r"checkpoint-(\d{4,})")


def checkpoint_name(index: int) -> str:
    """Return the name of the folder of checkpoint ``index`` (from 1)."""
    return f"checkpoint-{index:04d}"


def partial_name(index: int) -> str:
    """Return the name that the folder has until the checkpoint is committed."""
    return f"{checkpoint_name(index)}.partial"


def checkpoint_number(name: str) -> int | None:
    """Return the number of a committed checkpoint by its folder's name; None for anything else."""
    found = _CHECKPOINT.fullmatch(name)
    return int(found[1]) if found else None

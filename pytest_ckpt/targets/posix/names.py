"""Names of a run's files and folders on a mounted file system."""

from __future__ import annotations

import re

_PARTIAL = ".partial"
_CHECKPOINT = re.compile(r"checkpoint-(\d{4,})")


def checkpoint_name(index: int) -> str:
    """Return the name of the folder of checkpoint ``index`` (from 1)."""
    return f"checkpoint-{index:04d}"


def partial_name(index: int) -> str:
    """Return the name that the folder has until the checkpoint is committed."""
    return checkpoint_name(index) + _PARTIAL


def is_of_a_checkpoint(name: str) -> bool:
    """Return whether a folder of that name is one of a checkpoint's, committed or not."""
    return checkpoint_number(name.removesuffix(_PARTIAL)) is not None


def checkpoint_number(name: str) -> int | None:
    """Return the number of a committed checkpoint by its folder's name; None for anything else."""
    found = _CHECKPOINT.fullmatch(name)
    return int(found[1]) if found else None

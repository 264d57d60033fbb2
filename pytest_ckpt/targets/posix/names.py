"""Names of a run's files and directories on a mounted file system."""

from __future__ import annotations

import errno
import re

from pytest_ckpt.targets.posix.direct_io import NOT_OFFERED

RENAME_REFUSED = frozenset((*NOT_OFFERED, errno.EMFILE, errno.EPERM, errno.EACCES, errno.EXDEV))
"""Errors with which a file system may refuse to rename a directory that contains files: gcsfuse without
``rename-dir-limit`` (EMFILE), mountpoint-s3, and other file systems in front of object stores."""

OPENER = "pytest_ckpt.targets.posix.store:open_store"
OPENER_BY_MARKER = "pytest_ckpt.targets.posix.store:open_by_marker"
"""The function that opens an area in which marker files commit checkpoints."""

MARKER = "_COMMITTED"
"""The file that commits a checkpoint if the target cannot rename directories."""

_PARTIAL = ".partial"
_CHECKPOINT = re.compile(r"checkpoint-(\d{4,})(?:-again-\d+)?")


def checkpoint_name(index: int, attempt: int = 0) -> str:
    """Return the directory name of checkpoint ``index`` (from 1). Each attempt to save it has a different name.

    A name is used only once, because a client may cache the earlier directory of that name for a short time.
    """
    return f"checkpoint-{index:04d}" + (f"-again-{attempt}" if attempt else "")


def partial_name(name: str) -> str:
    """Return the temporary name of a checkpoint's directory, which it has before it is renamed for the commit."""
    return name + _PARTIAL


def is_of_a_checkpoint(name: str) -> bool:
    """Return whether a name is the name of a checkpoint's directory, committed or not."""
    return checkpoint_number(name.removesuffix(_PARTIAL)) is not None


def checkpoint_number(name: str) -> int | None:
    """Return the number of the checkpoint with this directory name; None for temporary and other names."""
    match = _CHECKPOINT.fullmatch(name)
    return int(match[1]) if match else None

"""A snapshot of the target, as a folder shows it."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def clone_of(stated: str, own: Path) -> tuple[Path, str]:
    """Return the run's folder ``own`` as it stands in the folder that a command said, and why that is no snapshot.

    Empty: this host sees one.
    """
    clone = Path(stated) / own.name
    if not stated.startswith("/"):
        return clone, "is not the absolute path of a folder"
    try:
        if not clone.is_dir():
            return clone, f"does not show the folder {own.name} of the target"
        if clone.samefile(own) or _shows_what_is_new(clone, own):
            return clone, "is another way to the target itself, and no snapshot of it"
    except OSError as error:
        return clone, f"cannot be looked at: {error.strerror}"
    return clone, ""


def _shows_what_is_new(clone: Path, own: Path) -> bool:
    """Whether the clone changes with the target."""
    name = f"after-{secrets.token_hex(8)}"
    new = own / name
    descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        os.fsync(descriptor)
        return (clone / name).exists()
    finally:
        os.close(descriptor)
        new.unlink()

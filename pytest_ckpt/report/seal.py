"""The digests of everything in a run folder, in the form that ``sha256sum --check`` reads."""

from __future__ import annotations

import hashlib
from pathlib import Path

MANIFEST = "manifest.sha256"
_NOT_EVIDENCE = frozenset({MANIFEST, "lock"})


def write_manifest(folder: Path) -> None:
    """Write the SHA-256 of every file below ``folder`` into ``manifest.sha256``."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in _NOT_EVIDENCE)
    lines = [f"{_digest(path)}  {path.relative_to(folder).as_posix()}\n" for path in files]
    (folder / MANIFEST).write_text("".join(lines))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

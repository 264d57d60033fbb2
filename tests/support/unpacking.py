"""Unpacks the archives that lie beside tests."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

# Python 3.11.2, which Debian 12 has, knows no filters yet; later ones ask for one.
_SAFELY: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive into a folder."""
    with tarfile.open(archive) as file:
        file.extractall(folder, **_SAFELY)

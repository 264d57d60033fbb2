"""The gate tables that ship, and for which kind of storage each is. Their rows are `templates/gates`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Place = Literal["local", "shared", "objects"]
"""A file system of one host, one that several hosts share (network, FUSE), or an object store."""

GATE_TABLES: Mapping[str, Place | None] = {
    "posix-shared": "shared",
    "serving": "shared",
    "posix-local": "local",
    "gateway": "shared",
    "object": "objects",
    "object-local": "objects",
    "speed-only": None,
}
"""In the order in which messages name them; None: for every kind of storage."""

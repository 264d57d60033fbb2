"""The built-in gate tables, and the kind of storage of each table. The files in `templates/gates` contain their rows.

A gate table lists the requirements for a certificate, and the limits of these requirements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Place = Literal["local", "shared", "objects"]
"""The kind of storage: a file system of one host, a file system shared by hosts (network, FUSE), or an object store."""

GATE_TABLES: Mapping[str, Place | None] = {
    "posix-shared": "shared",
    "serving": "shared",
    "posix-local": "local",
    "gateway": "shared",
    "object": "objects",
    "object-local": "objects",
    "speed-only": None,
}
"""The gate tables in the order in which messages list them, each with its kind of storage; None: any kind."""

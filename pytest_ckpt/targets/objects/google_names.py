"""Where the parts of an upload lie in a bucket of Google: each is an object until the end of its upload. Pure.

They stand below the key of their object, whose own name no listing mistakes for theirs, so that whoever removes what
lies below a run's prefix finds them too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PIECE = re.compile(r"(?P<key>.+)\.upload-(?P<upload>[0-9a-f]{16})/(?:(?P<name>[0-9a-z-]+))?", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class ComposedPart:
    """A part, or several that were made one, or (``name`` empty) the folder of all, by its own key."""

    key: str
    upload: str
    name: str


def below_upload(key: str, upload: str) -> str:
    """Return what the keys of an upload's parts begin with."""
    return f"{key}.upload-{upload}/"


def part_key(key: str, upload: str, number: int) -> str:
    """Return the key of a part, numbered from 1."""
    return f"{below_upload(key, upload)}{number:05d}"


def joined_key(key: str, upload: str, level: int, number: int) -> str:
    """Return the key of several parts that were made one."""
    return f"{below_upload(key, upload)}joined-{level}-{number:05d}"


def piece_of(key: str) -> ComposedPart | None:
    """Return what a key is a piece of; None for an object of its own."""
    found = _PIECE.fullmatch(key)
    return ComposedPart(key=found["key"], upload=found["upload"], name=found["name"] or "") if found else None

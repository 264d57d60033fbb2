"""Content that tells whose it is: every page of a file names its version and its place, and can be made again.

So a reader that knows nothing but the seed tells bytes of an older version from torn, misplaced and damaged ones.
"""

from __future__ import annotations

import struct
from hashlib import shake_128
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = 4096
_TAG = struct.Struct("<8sQQ")
_MAGIC = b"ckptpage"


class PageFault(NamedTuple):
    """How bytes differ from what they should be: ``kind`` in a few words, ``offset`` of the page, and what it holds."""

    kind: str
    offset: int
    seen: str


def page(seed: int, version: int, number: int) -> bytes:
    """Return the 4 KiB of a version of a file at offset ``number`` x 4 KiB."""
    key = f"{seed}/{version}/{number}".encode()
    return _TAG.pack(_MAGIC, version, number) + shake_128(key).digest(PAGE - _TAG.size)


def content(seed: int, versions: Sequence[int]) -> bytes:
    """Return a file of as many pages as versions are given, each page of its version."""
    return b"".join(page(seed, version, number) for number, version in enumerate(versions))


def version_of(data: bytes) -> int | None:
    """Return the version that the first page says it is of, None if it says nothing."""
    if len(data) < _TAG.size:
        return None
    magic, version, _ = _TAG.unpack_from(data)
    return int(version) if magic == _MAGIC else None


def fault(data: bytes, seed: int, versions: Sequence[int]) -> PageFault | None:
    """Return how a file's bytes differ from ``content(seed, versions)``, None if they do not."""
    length = len(versions) * PAGE
    if not data and length:
        return PageFault("file empty", 0, "no bytes")
    for number, version in enumerate(versions):
        start = number * PAGE
        expected, seen = page(seed, version, number), data[start : start + PAGE]
        if seen != expected[: len(seen)]:
            return PageFault(*_told(seen, expected, seed, version, number))
    if len(data) < length:
        return PageFault("file too short", len(data), f"the end after {len(data):,} of {length:,} bytes")
    if len(data) > length:
        return PageFault("file too long", length, f"{len(data):,} instead of {length:,} bytes")
    return None


def _told(seen: bytes, expected: bytes, seed: int, version: int, number: int) -> tuple[str, int, str]:
    """Return the kind, the offset, and the words for a page that holds the wrong bytes."""
    start = number * PAGE
    if not any(seen):
        return "zeros instead of data", start, f"{len(seen):,} zeros"
    if len(seen) >= _TAG.size:
        magic, its_version, its_number = _TAG.unpack_from(seen)
        if magic == _MAGIC and seen == page(seed, its_version, its_number)[: len(seen)]:
            if its_number != number:
                return "page in the wrong place", start, f"page {its_number} of version {its_version}"
            kind = "bytes of an older version" if its_version < version else "bytes of two versions"
            return kind, start, f"version {its_version} of the page instead of version {version}"
    at = next(i for i, (a, b) in enumerate(zip(seen, expected, strict=False)) if a != b)
    wrong = sum(a != b for a, b in zip(seen, expected, strict=False))
    return "damaged bytes", start + at, f"{wrong:,} wrong of {len(seen):,} bytes"

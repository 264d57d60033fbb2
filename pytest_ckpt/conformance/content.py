"""Bytes that say where they belong, and what is wrong with bytes that were read.

All content is random and unique, so that bytes from elsewhere are recognised: an older version's, another offset's.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from pytest_ckpt.conformance.context import Findings

_SECTOR_BYTES = 512
# At most so many differing bytes in a sector are called flipped bits: storage corrupts in sectors and in bits.
_FLIPPED_BYTES = 16
# A piece this long of random bytes occurs once.
_PIECE_BYTES = 16
_STEP_BYTES = 1 << 16


def random_bytes(length: int, *words: object) -> bytes:
    """Return ``length`` bytes that depend on the words (seed, file, version …) alone and occur nowhere else."""
    return hashlib.shake_128("/".join(map(str, words)).encode()).digest(length)


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The first place at which bytes are wrong, counted from the start of what was read, and in which way."""

    kind: str
    at: int
    seen: str
    expected: str


def difference(
    seen: bytes, expected: bytes, *, older: bytes = b"", whole: bytes = b"", offset: int = 0, unit_bytes: int = 0
) -> Difference | None:
    """Return what is wrong with bytes that were read, None if nothing is.

    ``older`` is what stood in the same place before. ``offset`` is where both begin in their file; ``whole`` is all
    that the file should hold, if more than that is known: misplaced bytes may come from there. The writes were
    ``unit_bytes`` long and aligned in the file (0 if not): bytes that go wrong inside of one tell of a torn write.
    """
    if seen == expected:
        return None
    at = _first_difference(seen, expected)
    if at == len(seen):
        return Difference(
            kind="file cut short",
            at=at,
            seen=f"the end of the file after {len(seen):,} bytes",
            expected=f"{len(expected):,} bytes",
        )
    if at == len(expected):
        return Difference(
            kind="bytes behind the end",
            at=at,
            seen=f"{len(seen) - len(expected):,} bytes more",
            expected=f"the end of the file after {len(expected):,} bytes",
        )
    kind, what = _kind(seen, expected, older, whole, at, offset)
    written = "zeros, nothing was written there" if kind == "bytes in a hole" else "the bytes that were written there"
    inside = (offset + at) % unit_bytes if unit_bytes else 0
    if inside >= _SECTOR_BYTES and kind != "flipped bits":
        what = f"{what}; the first {inside:,} bytes of this write of {unit_bytes:,} bytes are right"
        kind = "torn write"
    wrong = sum(
        seen[i : i + _SECTOR_BYTES] != expected[i : i + _SECTOR_BYTES]
        for i in range(at - at % _SECTOR_BYTES, max(len(seen), len(expected)), _SECTOR_BYTES)
    )
    return Difference(
        kind=kind,
        at=at,
        seen=f"{what} ({wrong:,} of {-(-len(expected) // _SECTOR_BYTES):,} sectors are wrong)",
        expected=written,
    )


def compare(
    findings: Findings,
    seen: bytes,
    expected: bytes,
    *,
    path: object,
    offset: int = 0,
    when: str = "",
    older: bytes = b"",
    unit_bytes: int = 0,
) -> bool:
    """Note what is wrong with bytes that were read from ``offset`` of a file; return whether all are right.

    ``when`` tells which read it was ("read with O_DIRECT after a buffered append").
    """
    found = difference(seen, expected, older=older, offset=offset, unit_bytes=unit_bytes)
    if found:
        where = f"{path} at byte {offset + found.at:,}" + (f", {when}" if when else "")
        findings.wrong(found.kind, where=where, seen=found.seen, expected=found.expected)
    return not found


def _first_difference(seen: bytes, expected: bytes) -> int:
    length = min(len(seen), len(expected))
    for start in range(0, length, _STEP_BYTES):
        stop = min(start + _STEP_BYTES, length)
        if seen[start:stop] != expected[start:stop]:
            return next(i for i in range(start, stop) if seen[i] != expected[i])
    return length


def _kind(seen: bytes, expected: bytes, older: bytes, whole: bytes, at: int, offset: int) -> tuple[str, str]:
    """Return the kind and the words for what was seen, from the rest of the sector at the first difference."""
    stop = min(at + _SECTOR_BYTES - (offset + at) % _SECTOR_BYTES, len(seen), len(expected))
    here, there = seen[at:stop], expected[at:stop]
    wrong = sum(a != b for a, b in zip(here, there, strict=True))
    if not any(there):
        kind, what = "bytes in a hole", counted(wrong, "byte that is not zero", "bytes that are not zero")
    elif not any(here) and wrong > 1:
        return "zeros instead of data", "zeros"
    elif wrong < len(here) and wrong <= _FLIPPED_BYTES:
        bits = sum((a ^ b).bit_count() for a, b in zip(here, there, strict=True))
        return "flipped bits", f"{counted(bits, 'bit differs', 'bits differ')} in {counted(wrong, 'byte')}"
    elif here == older[at:stop]:
        return "bytes of an older version", "what stood there before"
    else:
        kind, what = "wrong bytes", "bytes that were never written there"
    piece = here[:_PIECE_BYTES]
    if len(piece) == _PIECE_BYTES and any(piece):
        for name, start, other in (("this", offset, expected), ("this", 0, whole), ("an older", offset, older)):
            if (origin := other.find(piece)) >= 0:
                return "misplaced bytes", f"the bytes of {name} version that belong to byte {start + origin:,}"
    return kind, what

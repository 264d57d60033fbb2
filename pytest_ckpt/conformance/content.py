"""The content of test files: how checks write and read the content, and how they classify wrong bytes.

All content is pseudo-random and unique, so that bytes of an older version or of another offset are recognised. A file
can consist of pages: each page contains its version and number, and can be generated again from the seed. A reader that
knows the seed can therefore distinguish old, torn, misplaced and damaged bytes.

Files are read like readers of checkpoints do: open, read until a read returns no bytes, close. No other call is made.
Some clients (disorderfs, s3fs, sshfs, NFS) update the cached size of a file only when a process requests its
attributes. Until then, these clients end each read at the old size, and the newer bytes are missing. A call that
requests attributes would therefore hide this fault. Such calls are fstat, stat, access, a listing of the directory, and
Python's ``open``, which calls fstat.
"""

from __future__ import annotations

import hashlib
import os
import struct
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import shake_128
from typing import IO, TYPE_CHECKING, NamedTuple

from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_ckpt.conformance.context import Findings

_SECTOR_BYTES = 512
# Up to this number of differing bytes in a sector, the fault is called flipped bits: storage damages sectors or bits.
_FLIPPED_BYTES = 16
# A random sequence of this length occurs once.
_PIECE_BYTES = 16
_STEP_BYTES = 1 << 16


def random_bytes(length: int, *words: object) -> bytes:
    """Return ``length`` pseudo-random bytes that are determined by ``words``, such as seed, file and version."""
    return hashlib.shake_128("/".join(map(str, words)).encode()).digest(length)


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The first wrong byte of a read: its offset ``at`` from the start of the read, and the kind of fault."""

    kind: str
    at: int
    seen: str
    expected: str


def difference(
    seen: bytes, expected: bytes, *, older: bytes = b"", whole: bytes = b"", offset: int = 0, unit_bytes: int = 0
) -> Difference | None:
    """Return the first fault of ``seen``, the bytes that were read; None if ``seen`` equals ``expected``.

    ``offset`` is the offset of the read in the file. ``older`` is the previous content of the same range. ``whole`` is
    the complete content of the file, if known; it is used to recognise misplaced bytes. ``unit_bytes`` is the length of
    each write; writes begin at multiples of this length (0: unknown). If a fault begins after the first sector of a
    write, the kind is "torn write", except for flipped bits and a wrong length.
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
            kind="bytes after the end",
            at=at,
            seen=f"{len(seen) - len(expected):,} bytes more",
            expected=f"the end of the file after {len(expected):,} bytes",
        )
    kind, description = _kind(seen, expected, older, whole, at, offset)
    written = "zeros, no bytes were written there" if kind == "bytes in a hole" else "the bytes that were written there"
    inside = (offset + at) % unit_bytes if unit_bytes else 0
    if inside >= _SECTOR_BYTES and kind != "flipped bits":
        description = f"{description}; the first {inside:,} bytes of this write of {unit_bytes:,} bytes are right"
        kind = "torn write"
    wrong = sum(
        seen[i : i + _SECTOR_BYTES] != expected[i : i + _SECTOR_BYTES]
        for i in range(at - at % _SECTOR_BYTES, max(len(seen), len(expected)), _SECTOR_BYTES)
    )
    return Difference(
        kind=kind,
        at=at,
        seen=f"{description} ({wrong:,} of {-(-len(expected) // _SECTOR_BYTES):,} sectors are wrong)",
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
    """Record the first fault of bytes that were read from ``offset`` of a file. Return whether there is no fault.

    ``when`` describes the read, such as "read with O_DIRECT after a buffered append".
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
    """Return (kind of the fault, description of the bytes). Both are derived from the first wrong sector.

    ``at`` is the offset of the first wrong byte within the read. ``offset`` is the offset of the read in the file.
    """
    stop = min(at + _SECTOR_BYTES - (offset + at) % _SECTOR_BYTES, len(seen), len(expected))
    here, there = seen[at:stop], expected[at:stop]
    wrong = sum(a != b for a, b in zip(here, there, strict=True))
    if not any(there):
        kind, description = "bytes in a hole", counted(wrong, "byte that is not zero", "bytes that are not zero")
    elif not any(here) and wrong > 1:
        return "zeros instead of data", "zeros"
    elif wrong < len(here) and wrong <= _FLIPPED_BYTES:
        bits = sum((a ^ b).bit_count() for a, b in zip(here, there, strict=True))
        return "flipped bits", f"{counted(bits, 'bit differs', 'bits differ')} in {counted(wrong, 'byte')}"
    elif here == older[at:stop]:
        return "bytes of an older version", "the previous content"
    else:
        kind, description = "wrong bytes", "bytes that were never written there"
    piece = here[:_PIECE_BYTES]
    if len(piece) == _PIECE_BYTES and any(piece):
        for name, start, other in (("this", offset, expected), ("this", 0, whole), ("an older", offset, older)):
            if (origin := other.find(piece)) >= 0:
                return "misplaced bytes", f"the bytes of {name} version that belong to byte {start + origin:,}"
    return kind, description


PAGE = 4096
_TAG = struct.Struct("<8sQQ")
_MAGIC = b"ckptpage"


class PageFault(NamedTuple):
    """A page with wrong bytes: the ``kind`` of fault in a few words, its ``offset`` in the file, and a description."""

    kind: str
    offset: int
    seen: str


def page_of(seed: int, version: int, number: int) -> bytes:
    """Return page ``number`` of a version of a file. The page has 4 KiB."""
    key = f"{seed}/{version}/{number}".encode()
    return _TAG.pack(_MAGIC, version, number) + shake_128(key).digest(PAGE - _TAG.size)


def pages_of(seed: int, versions: Sequence[int]) -> bytes:
    """Return the bytes of a file whose page number i has the version ``versions[i]``."""
    return b"".join(page_of(seed, version, number) for number, version in enumerate(versions))


def version_of(data: bytes) -> int | None:
    """Return the version that the first page of ``data`` contains; None if ``data`` does not begin with a page."""
    if len(data) < _TAG.size:
        return None
    magic, version, _ = _TAG.unpack_from(data)
    return int(version) if magic == _MAGIC else None


def page_fault(data: bytes, seed: int, versions: Sequence[int]) -> PageFault | None:
    """Return the first fault of a file that consists of pages; None without a fault.

    A fault is a wrong byte or a wrong length. ``data`` are the bytes of the file. Page number i must have the version
    ``versions[i]``.
    """
    length = len(versions) * PAGE
    if not data and length:
        return PageFault("file empty", 0, "no bytes")
    for number, version in enumerate(versions):
        start = number * PAGE
        expected, seen = page_of(seed, version, number), data[start : start + PAGE]
        if seen != expected[: len(seen)]:
            return PageFault(*_describe_page(seen, expected, seed, version, number))
    if len(data) < length:
        return PageFault("file too short", len(data), f"the end after {len(data):,} of {length:,} bytes")
    if len(data) > length:
        return PageFault("file too long", length, f"{len(data):,} instead of {length:,} bytes")
    return None


def _describe_page(seen: bytes, expected: bytes, seed: int, version: int, number: int) -> tuple[str, int, str]:
    """Return the kind, the offset and the description of a page with wrong bytes."""
    start = number * PAGE
    if not any(seen):
        return "zeros instead of data", start, f"{len(seen):,} zeros"
    if len(seen) >= _TAG.size:
        magic, its_version, its_number = _TAG.unpack_from(seen)
        if magic == _MAGIC and seen == page_of(seed, its_version, its_number)[: len(seen)]:
            if its_number != number:
                return "page in the wrong place", start, f"page {its_number} of version {its_version}"
            kind = "bytes of an older version" if its_version < version else "bytes of two versions"
            return kind, start, f"version {its_version} of the page instead of version {version}"
    at = next(i for i, (a, b) in enumerate(zip(seen, expected, strict=False)) if a != b)
    wrong = sum(a != b for a, b in zip(seen, expected, strict=False))
    return "damaged bytes", start + at, f"{wrong:,} wrong of {len(seen):,} bytes"


_READ_BYTES = 1 << 20


@contextmanager
def opened(path: Path | str, flags: int) -> Iterator[int]:
    """Yield the descriptor of an open file, and close it at the end of the ``with`` block.

    The only calls are open and close. Raises OSError if one of these calls fails.
    """
    descriptor = os.open(path, flags, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def sync_and_forget(file: IO[bytes]) -> None:
    """Call fsync on a file and drop its pages from the page cache, so that later reads are served by the storage."""
    file.flush()
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_file(path: Path | str) -> bytes:
    """Return all bytes of a file. Raises OSError."""
    with opened(path, os.O_RDONLY) as descriptor:
        return read_to_end(descriptor)


def read_to_end(descriptor: int) -> bytes:
    """Return all bytes of an open file, from its start. Raises OSError."""
    return read_at(descriptor, 0, None)


def read_at(descriptor: int, offset: int, length: int | None) -> bytes:
    """Return ``length`` bytes of an open file from ``offset`` on; fewer only at the end of the file.

    If ``length`` is None, read to the end of the file. A short read is continued: only a read that returns no bytes
    marks the end of the file. Raises OSError.
    """
    pieces: list[bytes] = []
    while length is None or length > 0:
        piece = os.pread(descriptor, _READ_BYTES if length is None else min(length, _READ_BYTES), offset)
        if not piece:
            break
        pieces.append(piece)
        offset += len(piece)
        length = None if length is None else length - len(piece)
    return b"".join(pieces)

"""Containers of torch.save, laid out: where the tensors stand, and the few KiB around them.

Without numpy, so that whoever only hands a layout on, or starts a rank to ask where it is, is ready sooner.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.sizing.models import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Bytes of a container that are no tensor's. ``data`` is packed: mostly padding."""

    offset: int
    data: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """Where the bytes of one tensor stand, and where its CRC-32 is written (little-endian, 4 bytes each)."""

    offset: int
    bytes: int
    checksum_offsets: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """One file, laid out: ``records`` in the order of its tensors, ``pieces`` between them, ``bytes`` in all."""

    key: str
    bytes: int
    pieces: tuple[Piece, ...]
    records: tuple[Record, ...]


def pack(data: bytes) -> str:
    """Return bytes as text."""
    return base64.b64encode(zlib.compress(data)).decode()


def unpack(text: str) -> bytes:
    """Return the bytes that `pack` made into text."""
    return zlib.decompress(base64.b64decode(text))


def container_key(tensors: Sequence[Tensor]) -> str:
    """Return the name under which the layout of a file with these tensors is kept."""
    text = "\n".join(f"{t.name} {t.dtype} {t.elements}" for t in tensors)
    return hashlib.sha256(text.encode()).hexdigest()[:16]

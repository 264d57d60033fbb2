"""Files as readers of checkpoints read them: open, read until a read returns no bytes, close, and no other call.

Some clients (disorderfs, s3fs, sshfs, NFS) update what they remember of a file only when a process asks for its
attributes, and until then they cut what it reads at the old length. A call before the read would therefore hide the
loss that a check looks for: fstat, stat, access, a listing of the directory, and also Python's ``open``, which calls
fstat itself.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_PIECE_BYTES = 1 << 20


def read_file(path: Path | str) -> bytes:
    """Return all bytes of a file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return read_to_end(descriptor)
    finally:
        os.close(descriptor)


def read_to_end(descriptor: int) -> bytes:
    """Return all bytes of an open file, from its start. Raises OSError."""
    return read_at(descriptor, 0, None)


def read_at(descriptor: int, offset: int, length: int | None) -> bytes:
    """Return ``length`` bytes of an open file from ``offset`` on, or all; fewer only if the file ends.

    A read may return fewer bytes than it could: only a read that returns no bytes is the end. Raises OSError.
    """
    pieces: list[bytes] = []
    while length is None or length > 0:
        piece = os.pread(descriptor, _PIECE_BYTES if length is None else min(length, _PIECE_BYTES), offset)
        if not piece:
            break
        pieces.append(piece)
        offset += len(piece)
        length = None if length is None else length - len(piece)
    return b"".join(pieces)

"""Checksums of an object's parts, for comparison with the store's acknowledgement."""

from __future__ import annotations

import base64
import errno
import zlib
from collections.abc import Sequence

from pytest_ckpt.targets.protocol import Buffer


def crc32(data: Buffer) -> int:
    """Return the CRC-32 of one part."""
    return zlib.crc32(data)


def encoded(checksum: int) -> str:
    """Return a CRC-32 in the form that S3 uses: base64 of its four bytes, highest byte first."""
    return base64.b64encode(checksum.to_bytes(4, "big")).decode()


def composite(checksums: Sequence[int]) -> str:
    """Return S3's checksum of an object made of parts: the CRC-32 of the CRC-32s of all parts."""
    return encoded(zlib.crc32(b"".join(checksum.to_bytes(4, "big") for checksum in checksums)))


def check_complete(name: str, parts: Sequence[tuple[int, int]], size: int | None, step: int) -> int:
    """Check that the parts of an object are complete; return the total bytes of the parts.

    ``parts`` lists (number, bytes) of each part, sorted by number. Raises OSError in three cases: the numbers are not
    1, 2, 3 and so on; a part before the last one does not have ``step`` bytes; the total differs from ``size`` (None:
    unknown).
    """
    total = sum(count for _, count in parts)
    is_complete = all(number == place for place, (number, _) in enumerate(parts, 1))
    if not is_complete or any(count != step for _, count in parts[:-1]) or (size is not None and total != size):
        raise OSError(errno.EIO, "parts are missing", name)
    return total

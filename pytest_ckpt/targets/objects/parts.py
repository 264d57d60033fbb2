"""The checksums of an object's parts, by which the store's acknowledgement is compared."""

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
    """Return a CRC-32 as S3 writes it."""
    return base64.b64encode(checksum.to_bytes(4, "big")).decode()


def composite(checksums: Sequence[int]) -> str:
    """Return the CRC-32 of the CRC-32s of all parts, as S3 writes the checksum of an object of parts."""
    return encoded(zlib.crc32(b"".join(checksum.to_bytes(4, "big") for checksum in checksums)))


def check_whole(name: str, parts: Sequence[tuple[int, int]], size: int | None, step: int) -> int:
    """Return the bytes of all parts, each (number from 1, bytes), sorted. Raises OSError if they do not form an object.

    ``size`` is the object's size, if it was known before.
    """
    total = sum(count for _, count in parts)
    is_complete = all(number == place for place, (number, _) in enumerate(parts, 1))
    if not is_complete or any(count != step for _, count in parts[:-1]) or (size is not None and total != size):
        raise OSError(errno.EIO, "parts are missing", name)
    return total

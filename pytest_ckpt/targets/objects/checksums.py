"""Checksums of request bodies. The name of an S3 header determines the algorithm. Pure functions.

The standard library has neither CRC-32C nor CRC-64/NVME. These checksums are computed here at about 10 MB/s, which is
sufficient for the small bodies of checks.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import zlib
from collections.abc import Callable, Mapping
from typing import Protocol


class RunningChecksum(Protocol):
    """A checksum of data that arrive piece by piece."""

    def update(self, data: bytes, /) -> None:
        """Add more bytes."""

    def digest(self) -> bytes:
        """Return the checksum, its most significant byte first."""


class _Crc:
    def __init__(self, polynomial: int, size: int) -> None:
        self._table, self._ones, self._size = _table(polynomial), (1 << 8 * size) - 1, size
        self._value = self._ones

    def update(self, data: bytes, /) -> None:
        table, value = self._table, self._value
        for byte in data:
            value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
        self._value = value

    def digest(self) -> bytes:
        return (self._value ^ self._ones).to_bytes(self._size, "big")


class _Crc32:
    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes, /) -> None:
        self._value = zlib.crc32(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


@functools.cache
def _table(polynomial: int) -> tuple[int, ...]:
    """Return the lookup table of a CRC, with an entry for each byte value. The lowest bit is processed first."""
    rows = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (polynomial if value & 1 else 0)  # noqa: PLW2901 - shifted once per bit
        rows.append(value)
    return tuple(rows)


MD5 = "content-md5"
ALGORITHMS: Mapping[str, Callable[[], RunningChecksum]] = {
    MD5: lambda: hashlib.md5(usedforsecurity=False),
    "x-amz-checksum-crc32": _Crc32,
    "x-amz-checksum-crc32c": lambda: _Crc(0x82F63B78, 4),
    "x-amz-checksum-crc64nvme": lambda: _Crc(0x9A6C9329AC4BC9B5, 8),
    "x-amz-checksum-sha1": lambda: hashlib.sha1(usedforsecurity=False),
    "x-amz-checksum-sha256": hashlib.sha256,
}
"""The checksum algorithms by the lower-case header that contains the checksum."""


def checksum(header: str, data: bytes) -> str:
    """Return the checksum of a body as the value of ``header``. The name of the header determines the algorithm."""
    running = ALGORITHMS[header]()
    running.update(data)
    return encoded(running)


def encoded(running: RunningChecksum) -> str:
    """Return a checksum in base64, as S3 headers contain it."""
    return base64.b64encode(running.digest()).decode()

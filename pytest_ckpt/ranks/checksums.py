"""CRC-32 of generated content, without generating it: the sum is linear, so a page's follows from its row and word.

With L(x) for the CRC register after x when it starts at zero, without inversions: L(a XOR b) = L(a) XOR L(b), and
L(a followed by b) = shift(L(a), length of b) XOR L(b), where shift is linear too. So the sum of a page is the sum of
its row XORed with a function of its word alone, and sums of pages are joined in a tree. About twenty times as fast as
zlib over the bytes, and the same number.
"""

from __future__ import annotations

import functools
import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Sums = NDArray[np.uint32]

_BITS = np.array([1 << bit for bit in range(32)], dtype=np.uint32)


class WordChecksums:
    """What one word adds to the sum of a page in which each word is XORed with those of its bits that ``mask`` has."""

    def __init__(self, mask: NDArray[np.uint64]) -> None:
        self._mask = mask

    @functools.cached_property
    def tables(self) -> Sums:
        """By byte of the word: what each of its values adds."""
        return _tables([linear((self._mask & np.uint64(1 << bit)).tobytes()) for bit in range(64)])


class PageChecksums:
    """Sums of pages that are a row of a block, each word XORed with bits of one word.

    ``rows`` is (rows, words of 8 bytes); a page is a power of two.
    """

    def __init__(self, rows: NDArray[np.uint64], words: WordChecksums) -> None:
        self._page_bytes = rows.shape[1] * 8
        self._rows = np.array([linear(row.tobytes()) for row in rows], dtype=np.uint32)
        self._words = words.tables

    def of_pages(self, first_row: int, words: NDArray[np.uint64]) -> int:
        """Return L of consecutive pages: the first is a XOR of row ``first_row``, rows repeat."""
        rows = (np.arange(len(words)) + first_row) % len(self._rows)
        sums = self._rows[rows] ^ _apply(self._words, words)
        # Zero bytes in front change nothing, so the count may be filled up to a power of two.
        missing = (1 << (len(sums) - 1).bit_length()) - len(sums)
        sums = np.concatenate([np.zeros(missing, dtype=np.uint32), sums])
        length = self._page_bytes
        while len(sums) > 1:
            sums = _apply(_shift_tables(length), sums[0::2]) ^ sums[1::2]
            length *= 2
        return int(sums[0])


def linear(data: bytes) -> int:
    """Return L of bytes: their CRC-32 without the part that comes from the register's start and inversion."""
    return zlib.crc32(data) ^ of_zeros(len(data))


def join(first: int, second: int, second_bytes: int) -> int:
    """Return L of two stretches, one after the other."""
    return shift(first, second_bytes) ^ second if first else second


@functools.lru_cache(maxsize=4096)
def of_zeros(count: int) -> int:
    """Return the CRC-32 of ``count`` zero bytes."""
    return shift(0xFFFFFFFF, count) ^ 0xFFFFFFFF


def shift(register: int, count: int) -> int:
    """Return a CRC register after ``count`` zero bytes."""
    return int(_apply(_tables_of_shift(count), np.array([register], dtype=np.uint32))[0])


@functools.lru_cache(maxsize=1024)
def _tables_of_shift(count: int) -> Sums:
    """Return the tables of the shift by any number of zero bytes: a layout asks for the same few again and again."""
    values = _BITS
    length = 1
    while count:
        if count & 1:
            values = _apply(_shift_tables(length), values)
        count >>= 1
        length *= 2
    return _tables(values.tolist())


@functools.cache
def _shift_tables(length: int) -> Sums:
    """Return the tables of the shift by ``length`` zero bytes, a power of two."""
    if length == 1:
        # One zero byte into the register, as zlib does it: its inversions cancel out.
        moved = [zlib.crc32(b"\0", int(bit) ^ 0xFFFFFFFF) ^ 0xFFFFFFFF for bit in _BITS]
        return _tables(moved)
    half = _shift_tables(length // 2)
    return _tables(_apply(half, _apply(half, _BITS)).tolist())


def _tables(basis: list[int]) -> Sums:
    """Return (bytes, 256) tables of the linear function that has these values on the single bits."""
    tables = np.zeros((len(basis) // 8, 256), dtype=np.uint32)
    for number, value in enumerate(basis):
        byte, bit = divmod(number, 8)
        tables[byte, 1 << bit : 2 << bit] = tables[byte, : 1 << bit] ^ np.uint32(value)
    return tables


def _apply(tables: Sums, values: NDArray[np.uint32] | NDArray[np.uint64]) -> Sums:
    """Apply a linear function to many values."""
    digits = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
    out: Sums = tables[0][digits[:, 0]]
    for byte in range(1, len(tables)):
        out ^= tables[byte][digits[:, byte]]
    return out

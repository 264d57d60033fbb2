"""The record ``.data/serialization_id`` of torch.save: 20 digits of its records' names, 20 of their CRC-32.

Source: PyTorchStreamWriter::writeSerializationId (caffe2/serialize/inline_container.cc). Both halves fold hashes with
c10::hash_combine. The names are folded in the order in which libstdc++ iterates over a std::unordered_set of them, so
that order is computed here: std::hash<std::string>, the growth of the buckets, and where a new element goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NAME = ".data/serialization_id"
DIGITS = 40

_WORD = (1 << 64) - 1
# std::hash<std::string> of libstdc++ on 64 bits: MurmurHash64A with this multiplier and seed.
_MULTIPLIER, _SEED = 0xC6A4A7935BD1E995, 0xC70F6907
# The numbers of buckets that a set goes through while it grows, one insertion at a time.
_BUCKETS = (13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273, 20753, 42043, 85229, 172933)


def names_digits(names: Sequence[str]) -> bytes:
    """Return the first half: the names of all records but this one, in the order in which they were written."""
    folded = 0
    for _, hashed in _in_order_of_set([(name, hash_of(name.encode())) for name in names]):
        folded = _combine(folded, hashed)
    return b"%020d" % folded


def checksums_digits(checksums: Iterable[int]) -> bytes:
    """Return the second half: the CRC-32 of all records but this one, in the order in which they were written."""
    folded = 0
    for checksum in checksums:
        folded = _combine(folded, checksum)
    return b"%020d" % folded


def hash_of(data: bytes) -> int:
    """Return std::hash<std::string> of libstdc++ on 64 bits."""
    found = _SEED ^ (len(data) * _MULTIPLIER & _WORD)
    whole = len(data) & ~7
    for start in range(0, whole, 8):
        word = int.from_bytes(data[start : start + 8], "little")
        word = _mixed(word * _MULTIPLIER & _WORD) * _MULTIPLIER & _WORD
        found = (found ^ word) * _MULTIPLIER & _WORD
    if rest := data[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _WORD
    return _mixed(_mixed(found) * _MULTIPLIER & _WORD)


def _mixed(value: int) -> int:
    return value ^ (value >> 47)


def _combine(seed: int, value: int) -> int:
    """Fold a value into a hash, as c10::hash_combine does."""
    return seed ^ ((value + 0x9E3779B9 + (seed << 6) + (seed >> 2)) & _WORD)


def _in_order_of_set(elements: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return (name, hash) pairs in the order of a std::unordered_set into which they were inserted one by one.

    A set is one chain, in which the elements of a bucket stand together. The first element of a bucket goes to the
    front of the chain, another one to the front of its bucket. Growing chains all elements anew, from front to back.
    """
    sizes = iter(_BUCKETS)
    buckets, chain = next(sizes), _Chain()
    for count, element in enumerate(elements):
        if count + 1 > buckets:
            buckets, before = next(sizes), chain
            chain = _Chain()
            for moved in before.elements():
                chain.insert(moved, moved[1] % buckets)
        chain.insert(element, element[1] % buckets)
    return list(chain.elements())


class _Chain:
    """Buckets in the order of the chain, from back to front; each holds its elements in their own order."""

    def __init__(self) -> None:
        self._buckets: dict[int, list[tuple[str, int]]] = {}

    def insert(self, element: tuple[str, int], bucket: int) -> None:
        """Put an element at the front of its bucket, a new bucket at the front of the chain."""
        self._buckets.setdefault(bucket, []).insert(0, element)

    def elements(self) -> Iterable[tuple[str, int]]:
        """Return the elements from the front of the chain to its back."""
        for bucket in reversed(self._buckets.values()):
            yield from bucket

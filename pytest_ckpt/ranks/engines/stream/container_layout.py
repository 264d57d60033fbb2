"""Computes the layout of torch.save's file format (a container) without torch.

The file is a zip file with tensors at block boundaries. It is byte-identical to the file of torch.save for a plain
dictionary of contiguous tensors. For this, torch.save must write to a file object, with
``torch.utils.serialization.config.save.storage_alignment = 4096``. Sources in torch 2.13: torch/serialization.py
(`_save`), caffe2/serialize/inline_container.cc (PyTorchStreamWriter) and miniz.c (mz_zip_writer_add_mem_ex_v2,
mz_zip_writer_finalize_archive). `pytest_ckpt.ranks.engines.container_check` compares the file with the installed
torch's file.

One case is not implemented: a tensor that begins with the signature of a zip data descriptor (one tensor in 2^32).
torch mistakes such a tensor for a descriptor, and folds four bytes of the tensor into the serialization id.

The record ``.data/serialization_id`` contains 40 digits. The first 20 digits are computed from the records' names. The
other 20 digits are computed from the records' CRC-32. Source: PyTorchStreamWriter::writeSerializationId. Both halves
fold hashes with c10::hash_combine. The names are folded in the iteration order of a libstdc++ std::unordered_set. This
module computes that order from std::hash<std::string>, the bucket counts, and the position of each new element.

The pickle of the dictionary is written opcode by opcode, because the pickle refers to functions of torch. The pickle
uses protocol 2, and refers to tensors by their storages. Like CPython's pickler, this module numbers each object when
the object is first written (BINPUT). Later opcodes refer to the object by its number (BINGET).

This module does not import numpy, so a process that only needs sizes starts sooner.
"""

from __future__ import annotations

import pickle
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_ckpt.sizing.models import Tensor

ALIGNMENT_BYTES = 4096

_DIRECTORY = "archive/"
# Version 1 of the record order, version 3 of the container.
_FORMAT = (".format_version", b"1")
_BYTE_ORDER = ("byteorder", b"little")
_BEHIND_TENSORS = (("version", b"3\n"),)

_MAXIMUM_16, _MAXIMUM_32 = 0xFFFF, 0xFFFFFFFF
# Bit 3: sizes and CRC-32 follow the data. Bit 11: names are UTF-8.
_FLAGS = 0x0808
_LOCAL = struct.Struct("<IHHHHHIIIHH")
_CENTRAL = struct.Struct("<IHHHHHHIIIHHHHHII")
_DESCRIPTOR, _DESCRIPTOR_64 = struct.Struct("<IIII"), struct.Struct("<IIQQ")
_END_64, _LOCATOR_64, _END = struct.Struct("<IQHHIIQQQQ"), struct.Struct("<IIQI"), struct.Struct("<IHHHHIIH")
_LOCAL_MARK, _CENTRAL_MARK, _DESCRIPTOR_MARK = 0x04034B50, 0x02014B50, 0x08074B50
_END_64_MARK, _LOCATOR_64_MARK, _END_MARK = 0x06064B50, 0x07064B50, 0x06054B50
# The version that miniz records as the file's writer (3: Unix, 3.0), and the version needed to read it (4.5).
_MADE_BY, _NEEDED = 0x031E, 0x002D
_CHECKSUM_IN_DESCRIPTOR, _CHECKSUM_IN_CENTRAL = 4, 16

_IDENTITY_NAME = ".data/serialization_id"
_IDENTITY_DIGITS = 40

_WORD = (1 << 64) - 1
# std::hash<std::string> of libstdc++ on 64 bits: MurmurHash64A with this multiplier and seed.
_MULTIPLIER, _SEED = 0xC6A4A7935BD1E995, 0xC70F6907
# The bucket counts of a set that grows one insertion at a time.
_BUCKETS = (13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273, 20753, 42043, 85229, 172933)

_STORAGES = {"float16": "torch HalfStorage", "float32": "torch FloatStorage", "uint8": "torch ByteStorage"}
_REBUILD, _HOOKS = "torch._utils _rebuild_tensor_v2", "collections OrderedDict"
# CPython's pickler writes a dictionary's items in batches of this size.
_ITEMS_AT_ONCE = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Filler:
    """Bytes of a container that do not belong to tensors."""

    offset: int
    data: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """The place of a tensor's data, or of the serialization id, in the file.

    The file contains the CRC-32 of the data (4 bytes, little-endian) at each of the ``checksum_offsets``.
    """

    offset: int
    bytes: int
    checksum_offsets: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """The layout of one file of ``bytes`` bytes.

    ``records`` are the file's tensors in order. ``pieces`` are all other bytes. ``identity`` is the record of the
    serialization id. The pieces contain zeros in place of each tensor's CRC-32, and in place of the second half of the
    serialization id. The pieces also contain the CRC-32 of the serialization id with these zeros.
    ``checksums_before`` are the CRC-32 of the records before the tensors. ``checksums_after`` are the CRC-32 of the
    records between the tensors and the serialization id.
    """

    bytes: int
    pieces: tuple[Filler, ...]
    records: tuple[Record, ...]
    identity: Record
    checksums_before: tuple[int, ...]
    checksums_after: tuple[int, ...]


def identity_half(container: Container, checksums: Iterable[int]) -> bytes:
    """Return the second half of a container's serialization id.

    ``checksums`` are the CRC-32 of the container's tensors, in the order of the tensors.
    """
    return checksums_digits((*container.checksums_before, *checksums, *container.checksums_after))


def container_of(tensors: Sequence[Tensor], alignment_bytes: int = ALIGNMENT_BYTES) -> Container:
    """Return the layout of a file with these tensors. Each tensor must have at least one element.

    ``alignment_bytes`` is torch's ``storage_alignment``, a power of two; torch.save's own default is 64.
    """
    file = _File(alignment_bytes)
    alignment = (".storage_alignment", b"%d" % alignment_bytes)
    before = [("data.pkl", pickled(tensors)), _FORMAT, alignment, _BYTE_ORDER]
    names = [name for name, _ in before] + [f"data/{number}" for number in range(len(tensors))]
    names += [name for name, _ in _BEHIND_TENSORS]
    for name, data in before:
        file.add(name, data)
    for number, tensor in enumerate(tensors):
        file.add_hole(f"data/{number}", tensor.bytes)
    for name, data in _BEHIND_TENSORS:
        file.add(name, data)
    zeros = bytes(_IDENTITY_DIGITS // 2)
    identity = file.add(_IDENTITY_NAME, names_digits(names) + zeros)
    records = file.end()
    first = len(before)
    return Container(
        bytes=file.bytes,
        pieces=tuple(file.pieces),
        records=records[first : first + len(tensors)],
        identity=records[identity],
        checksums_before=tuple(zlib.crc32(data) for _, data in before),
        checksums_after=tuple(zlib.crc32(data) for _, data in _BEHIND_TENSORS),
    )


@dataclass(frozen=True, slots=True)
class _Entry:
    """A record of the zip file: its name, size and CRC-32, and three offsets in the file.

    ``header`` is the offset of the header, ``data`` the offset of the data. ``checksum_offset`` is the offset of the
    CRC-32 that follows the data.
    """

    name: bytes
    header: int
    data: int
    bytes: int
    checksum: int
    checksum_offset: int


class _File:
    """A zip file as miniz writes it with MZ_ZIP_FLAG_WRITE_ZIP64, with uncompressed records.

    A hole is a record whose data are not known yet. ``pieces`` contains all bytes of the file except the data of holes.
    """

    def __init__(self, alignment_bytes: int) -> None:
        self._alignment = alignment_bytes
        self.pieces: list[Filler] = []
        self.bytes = 0
        self._open = bytearray()
        self._entries: list[_Entry] = []

    def add(self, name: str, data: bytes) -> int:
        """Add a record; return its number."""
        return self._add(name, len(data), data)

    def add_hole(self, name: str, size: int) -> int:
        """Add a record of ``size`` bytes whose data are not known yet. Return the number of the record.

        The CRC-32 of the record is written as 0.
        """
        return self._add(name, size, None)

    def _add(self, name: str, size: int, data: bytes | None) -> int:
        full, header = (_DIRECTORY + name).encode(), self.bytes
        # miniz does not know the stored size yet when it writes the header.
        large = _large_fields(size, 0, header)
        padding = -(header + _LOCAL.size + len(full) + len(large) + 4) % self._alignment
        extra = large + b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
        self._write(_LOCAL.pack(_LOCAL_MARK, 0, _FLAGS, 0, 0, 0, 0, 0, 0, len(full), len(extra)) + full + extra)
        start = self.bytes
        checksum = 0 if data is None else zlib.crc32(data)
        if data is None:
            self._skip(size)
        else:
            self._write(data)
        place = self.bytes + _CHECKSUM_IN_DESCRIPTOR
        descriptor = _DESCRIPTOR_64 if large else _DESCRIPTOR
        self._write(descriptor.pack(_DESCRIPTOR_MARK, checksum, size, size))
        self._entries.append(_Entry(full, header, start, size, checksum, place))
        return len(self._entries) - 1

    def end(self) -> tuple[Record, ...]:
        """Write the zip's central directory. Return the records in the order in which they were added."""
        start, records = self.bytes, []
        for entry in self._entries:
            places = (entry.checksum_offset, self.bytes + _CHECKSUM_IN_CENTRAL)
            records.append(Record(offset=entry.data, bytes=entry.bytes, checksum_offsets=places))
            self._write(_central(entry))
        count, size, end = len(self._entries), self.bytes - start, self.bytes
        self._write(_END_64.pack(_END_64_MARK, _END_64.size - 12, _MADE_BY, _NEEDED, 0, 0, count, count, size, start))
        self._write(_LOCATOR_64.pack(_LOCATOR_64_MARK, 0, end, 1))
        short = min(count, _MAXIMUM_16)
        self._write(_END.pack(_END_MARK, 0, 0, short, short, min(size, _MAXIMUM_32), min(start, _MAXIMUM_32), 0))
        self._close()
        return tuple(records)

    def _write(self, data: bytes) -> None:
        self._open += data
        self.bytes += len(data)

    def _skip(self, size: int) -> None:
        self._close()
        self.bytes += size

    def _close(self) -> None:
        self.pieces.append(Filler(offset=self.bytes - len(self._open), data=bytes(self._open)))
        self._open.clear()


def _central(entry: _Entry) -> bytes:
    large = _large_fields(entry.bytes, entry.bytes, entry.header)
    size, header = min(entry.bytes, _MAXIMUM_32), min(entry.header, _MAXIMUM_32)
    lengths = (len(entry.name), len(large), 0)
    fixed = _CENTRAL.pack(_CENTRAL_MARK, 0, 0, _FLAGS, 0, 0, 0, entry.checksum, size, size, *lengths, 0, 0, 0, header)
    return fixed + entry.name + large


def _large_fields(size: int, stored: int, header: int) -> bytes:
    """Return the zip64 field, which contains values that do not fit in 32 bits. If all values fit, return no bytes.

    ``size`` is the size of the data, ``stored`` the size of the stored data, ``header`` the offset of the local header.
    If ``size`` does not fit, the field contains both sizes.
    """
    values = ([size, stored] if size >= _MAXIMUM_32 else []) + ([header] if header >= _MAXIMUM_32 else [])
    return struct.pack(f"<HH{len(values)}Q", 1, 8 * len(values), *values) if values else b""


def names_digits(names: Sequence[str]) -> bytes:
    """Return the first half of the serialization id, which is a hash of record names.

    ``names`` are the names of all records except the id, in the order of writing.
    """
    folded = 0
    for _, hashed in _in_order_of_set([(name, hash_of(name.encode())) for name in names]):
        folded = _combine(folded, hashed)
    return b"%020d" % folded


def checksums_digits(checksums: Iterable[int]) -> bytes:
    """Return the second half of the serialization id, which is a hash of CRC-32.

    ``checksums`` are the CRC-32 of all records except the id, in the order of writing.
    """
    folded = 0
    for checksum in checksums:
        folded = _combine(folded, checksum)
    return b"%020d" % folded


def hash_of(data: bytes) -> int:
    """Return the hash that libstdc++'s std::hash<std::string> computes on 64 bits."""
    hashed = _SEED ^ (len(data) * _MULTIPLIER & _WORD)
    whole = len(data) & ~7
    for start in range(0, whole, 8):
        word = int.from_bytes(data[start : start + 8], "little")
        word = _mixed(word * _MULTIPLIER & _WORD) * _MULTIPLIER & _WORD
        hashed = (hashed ^ word) * _MULTIPLIER & _WORD
    if rest := data[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _WORD
    return _mixed(_mixed(hashed) * _MULTIPLIER & _WORD)


def _mixed(value: int) -> int:
    return value ^ (value >> 47)


def _combine(seed: int, value: int) -> int:
    """Fold a value into a hash, as c10::hash_combine does."""
    return seed ^ ((value + 0x9E3779B9 + (seed << 6) + (seed >> 2)) & _WORD)


def _in_order_of_set(elements: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return (name, hash) pairs in the iteration order of a std::unordered_set.

    ``elements`` are the pairs in the order in which they are inserted into the set, one by one. A set is one chain of
    elements; the elements of a bucket are adjacent. The first element of a bucket is inserted at the front of the
    chain. A later element is inserted at the front of its bucket. When the set grows, all elements are inserted again,
    from front to back.
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
    """The chain of elements of a std::unordered_set.

    ``_buckets`` contains the buckets from the back of the chain to its front; the elements of a bucket are in chain
    order.
    """

    def __init__(self) -> None:
        self._buckets: dict[int, list[tuple[str, int]]] = {}

    def insert(self, element: tuple[str, int], bucket: int) -> None:
        """Insert an element at the front of its bucket. A new bucket is inserted at the front of the chain."""
        self._buckets.setdefault(bucket, []).insert(0, element)

    def elements(self) -> Iterable[tuple[str, int]]:
        """Return the elements from the front of the chain to its back."""
        for bucket in reversed(self._buckets.values()):
            yield from bucket


def pickled(tensors: Sequence[Tensor]) -> bytes:
    """Return ``data.pkl``, the pickle of a dictionary of one-dimensional tensors by name.

    The storages are numbered in the order of the tensors.
    """
    out = _Pickle()
    out.write(pickle.PROTO + b"\x02" + pickle.EMPTY_DICT)
    out.number()
    if len(tensors) == 1:
        _item(out, 0, tensors[0])
        out.write(pickle.SETITEM)
    else:
        # Another batch follows a full one, even if it is empty.
        for start in range(0, len(tensors) + (len(tensors) % _ITEMS_AT_ONCE == 0), _ITEMS_AT_ONCE):
            out.write(pickle.MARK)
            for number, tensor in enumerate(tensors[start : start + _ITEMS_AT_ONCE], start):
                _item(out, number, tensor)
            out.write(pickle.SETITEMS)
    out.write(pickle.STOP)
    return bytes(out.data)


def _item(out: _Pickle, number: int, tensor: Tensor) -> None:
    """Write one dictionary item: the tensor's name, and the tensor as a call of torch._utils._rebuild_tensor_v2.

    ``number`` is the number of the tensor's storage.
    """
    out.text(tensor.name)
    out.function(_REBUILD)
    out.write(pickle.MARK)
    out.write(pickle.MARK)
    out.text("storage", again=True)
    out.function(_STORAGES[tensor.dtype])
    out.text(str(number))
    out.text("cpu", again=True)
    out.integer(tensor.elements)
    out.write(pickle.TUPLE)
    out.number()
    out.write(pickle.BINPERSID)
    out.integer(0)
    for one in (tensor.elements, 1):
        out.integer(one)
        out.write(pickle.TUPLE1)
        out.number()
    out.write(pickle.NEWFALSE)
    out.function(_HOOKS)
    out.write(pickle.EMPTY_TUPLE + pickle.REDUCE)
    out.number()
    out.write(pickle.TUPLE)
    out.number()
    out.write(pickle.REDUCE)
    out.number()


class _Pickle:
    """A pickle in protocol 2. It numbers the written objects so that later opcodes can refer to them."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._count = 0
        self._known: dict[str, int] = {}

    def write(self, data: bytes) -> None:
        """Append opcodes unchanged."""
        self.data += data

    def number(self) -> int:
        """Assign the next number to the object that was written last. Return the number."""
        number, self._count = self._count, self._count + 1
        self._reference(pickle.BINPUT, pickle.LONG_BINPUT, number)
        return number

    def text(self, text: str, *, again: bool = False) -> None:
        """Write a text.

        If ``again``, only the first call with the same text writes the text. Later calls write a reference to the first
        text.
        """
        if again and self._refer(text):
            return
        data = text.encode()
        self.write(pickle.BINUNICODE + len(data).to_bytes(4, "little") + data)
        number = self.number()
        if again:
            self._known[text] = number

    def function(self, name: str) -> None:
        """Write a reference to a function or class.

        ``name`` is the module and the name of the function or class, separated by a space.
        """
        if not self._refer(name):
            self.write(pickle.GLOBAL + name.replace(" ", "\n").encode() + b"\n")
            self._known[name] = self.number()

    def integer(self, value: int) -> None:
        """Write a non-negative integer."""
        if value < 1 << 8:
            self.write(pickle.BININT1 + value.to_bytes(1, "little"))
        elif value < 1 << 16:
            self.write(pickle.BININT2 + value.to_bytes(2, "little"))
        elif value < 1 << 31:
            self.write(pickle.BININT + value.to_bytes(4, "little"))
        else:
            size = value.bit_length() // 8 + 1
            self.write(pickle.LONG1 + bytes([size]) + value.to_bytes(size, "little"))

    def _refer(self, name: str) -> bool:
        number = self._known.get(name)
        if number is None:
            return False
        self._reference(pickle.BINGET, pickle.LONG_BINGET, number)
        return True

    def _reference(self, short: bytes, long: bytes, number: int) -> None:
        self.write(short + bytes([number]) if number < 1 << 8 else long + number.to_bytes(4, "little"))

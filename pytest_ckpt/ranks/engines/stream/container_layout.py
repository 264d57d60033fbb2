"""The container in which torch.save puts tensors, laid out without torch: a zip file with tensors at block boundaries.

Byte for byte what torch.save of a plain dictionary of contiguous tensors writes into a file object under
``torch.utils.serialization.config.save.storage_alignment = 4096``. Sources: torch/serialization.py (`_save`),
caffe2/serialize/inline_container.cc (PyTorchStreamWriter) and miniz.c (mz_zip_writer_add_mem_ex_v2,
mz_zip_writer_finalize_archive) of torch 2.13; `pytest_ckpt.ranks.engines.torch.container_check` compares with the
torch that is installed. One case is left out: torch takes a tensor whose own first bytes are the signature of a data
descriptor for one, and folds four of its bytes into the serialization id (one tensor in 2^32).

Without numpy, so that whoever only asks for sizes is ready sooner.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.ranks.engines.stream import serialization_id
from pytest_ckpt.ranks.engines.stream.state_pickle import pickled

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_ckpt.sizing.models import Tensor

ALIGNMENT_BYTES = 4096

_FOLDER = "archive/"
# Version 1 of the order of the records, version 3 of the container.
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
# What miniz says wrote the file (3: Unix, 3.0), and what is needed to read it (4.5).
_MADE_BY, _NEEDED = 0x031E, 0x002D
_CHECKSUM_IN_DESCRIPTOR, _CHECKSUM_IN_CENTRAL = 4, 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Filler:
    """Bytes of a container that are no tensor's."""

    offset: int
    data: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """Where the bytes of one tensor stand, and where its CRC-32 is written (little-endian, 4 bytes each)."""

    offset: int
    bytes: int
    checksum_offsets: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """One file, laid out: ``records`` in the order of its tensors, ``pieces`` between them, ``bytes`` in all.

    The CRC-32 of the tensors are 0 in the pieces, and those of ``identity``, the serialization id, are made from them:
    ``checksums_before`` and ``checksums_behind`` are those of the records before and behind the tensors.
    """

    bytes: int
    pieces: tuple[Filler, ...]
    records: tuple[Record, ...]
    identity: Record
    checksums_before: tuple[int, ...]
    checksums_behind: tuple[int, ...]


def identity_half(container: Container, checksums: Iterable[int]) -> bytes:
    """Return the second half of the serialization id where the tensors have these CRC-32."""
    return serialization_id.checksums_digits((*container.checksums_before, *checksums, *container.checksums_behind))


def container_of(tensors: Sequence[Tensor], alignment_bytes: int = ALIGNMENT_BYTES) -> Container:
    """Return the container of a file with these tensors, each of at least one element.

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
    zeros = bytes(serialization_id.DIGITS // 2)
    identity = file.add(serialization_id.NAME, serialization_id.names_digits(names) + zeros)
    records = file.end()
    first = len(before)
    return Container(
        bytes=file.bytes,
        pieces=tuple(file.pieces),
        records=records[first : first + len(tensors)],
        identity=records[identity],
        checksums_before=tuple(zlib.crc32(data) for _, data in before),
        checksums_behind=tuple(zlib.crc32(data) for _, data in _BEHIND_TENSORS),
    )


@dataclass(frozen=True, slots=True)
class _Entry:
    """A record that has been added: where its header, its data and its descriptor's CRC-32 stand."""

    name: bytes
    header: int
    data: int
    bytes: int
    checksum: int
    checksum_offset: int


class _File:
    """A zip file as miniz writes it with MZ_ZIP_FLAG_WRITE_ZIP64, every record stored; holes are left out."""

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
        """Add a record whose bytes come later, with a CRC-32 of 0 until then; return its number."""
        return self._add(name, size, None)

    def _add(self, name: str, size: int, data: bytes | None) -> int:
        full, header = (_FOLDER + name).encode(), self.bytes
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
        """Write the central directory; return the records in the order in which they were added."""
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
    """Return the zip64 field of what does not fit in 32 bits: sizes of the data, place of the local header."""
    values = ([size, stored] if size >= _MAXIMUM_32 else []) + ([header] if header >= _MAXIMUM_32 else [])
    return struct.pack(f"<HH{len(values)}Q", 1, 8 * len(values), *values) if values else b""

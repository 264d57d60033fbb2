"""Lay out containers once, in one process, so that no rank has to import torch.

``python -m pytest_ckpt.ranks.engines.stream.lay_out``: lists of tensors as JSON on standard input,
containers on standard output.

torch.save writes the container itself, under torch.serialization.skip_data: headers, directory and pickle are its own,
the tensors are holes. Where they stand is asked of torch's own reader of the container; torch.load under FakeTensorMode
would tell the same, and takes 1.7 s to be imported.
"""

from __future__ import annotations

import json
import struct
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch.utils.serialization import config

from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.ranks.engines.stream.container_layout import Container, Piece, Record, container_key, pack
from pytest_ckpt.sizing.models import Tensor

ALIGNMENT_BYTES = 4096

_DTYPES = {"float16": torch.float16, "float32": torch.float32}
# Of the zip format: fixed lengths and the places of the CRC-32 in them.
_CENTRAL_ENTRY = struct.Struct("<I12xIII3H")
_CENTRAL_SIGNATURE = 0x02014B50
_CENTRAL_FIXED_BYTES, _CENTRAL_CHECKSUM = 46, 16
_DESCRIPTOR_SIGNATURE = b"PK\x07\x08"
_DESCRIPTOR_CHECKSUM = 4


def lay_out(tensors: tuple[Tensor, ...], folder: str) -> Container:
    """Return the container of a file with these tensors; ``folder`` takes a sparse file for a moment."""
    with (
        config.patch("save.storage_alignment", ALIGNMENT_BYTES),  # type: ignore[attr-defined]
        tempfile.NamedTemporaryFile(dir=folder) as hole,
        tempfile.NamedTemporaryFile(dir=folder, suffix=".pt") as file,
    ):
        # Mapped from a file without blocks, tensors of any size cost neither memory nor the promise of it.
        state = {
            t.name: torch.from_file(hole.name, shared=True, size=t.elements, dtype=_DTYPES[t.dtype]) for t in tensors
        }
        with torch.serialization.skip_data():
            torch.save(state, file)
        file.flush()
        return read_container(Path(file.name), tensors)


def read_container(path: Path, tensors: tuple[Tensor, ...]) -> Container:
    """Return the layout of a file that torch.save wrote with these tensors."""
    reader: Any = torch._C.PyTorchFileReader(str(path))
    # torch.save numbers the storages in the order in which the state holds its tensors.
    offsets = [reader.get_record_offset(f"data/{number}") for number in range(len(tensors))]
    size = path.stat().st_size
    checksums = _checksum_offsets(path)
    records = tuple(
        Record(offset=offset, bytes=t.bytes, checksum_offsets=checksums[offset])
        for offset, t in zip(offsets, tensors, strict=True)
    )
    pieces = []
    with path.open("rb") as file:
        start = 0
        for stop, after in sorted([(r.offset, r.offset + r.bytes) for r in records] + [(size, size)]):
            file.seek(start)
            if data := file.read(stop - start):
                pieces.append(Piece(offset=start, data=pack(data)))
            start = after
    return Container(key=container_key(tensors), bytes=size, pieces=tuple(pieces), records=records)


def _checksum_offsets(path: Path) -> dict[int, tuple[int, ...]]:
    """Return, by where its data begin, the places at which each record's CRC-32 is written."""
    found = {}
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        entry = archive.start_dir
        for info in archive.infolist():
            file.seek(info.header_offset + 26)
            name_bytes, extra_bytes = struct.unpack("<HH", file.read(4))
            begin = info.header_offset + 30 + name_bytes + extra_bytes
            places = [entry + _CENTRAL_CHECKSUM]
            file.seek(begin + info.file_size)
            if file.read(4) == _DESCRIPTOR_SIGNATURE:
                places.append(begin + info.file_size + _DESCRIPTOR_CHECKSUM)
            found[begin] = tuple(places)
            file.seek(entry)
            signature, _, _, _, *lengths = _CENTRAL_ENTRY.unpack(file.read(_CENTRAL_ENTRY.size))
            assert signature == _CENTRAL_SIGNATURE, "the directory is not where zipfile says"
            entry += _CENTRAL_FIXED_BYTES + sum(lengths)
    return found


def main() -> None:
    """Answer what standard input asks for."""
    asked: list[list[dict[str, Any]]] = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as folder:
        containers = [lay_out(tuple(from_plain(Tensor, t) for t in tensors), folder) for tensors in asked]
    json.dump([to_plain(c) for c in containers], sys.stdout)


if __name__ == "__main__":
    main()

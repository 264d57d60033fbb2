"""Pure functions for the header of a safetensors file and for the index of a checkpoint.

A file begins with its header: eight bytes that contain the length of the JSON, then the JSON, padded with spaces. The
tensors follow. Source: https://huggingface.co/docs/safetensors/index#format. The functions compare a header with the
expected header, byte by byte, and return the offsets of tensors.

The index contains the file name of each tensor, in the format of Hugging Face's writers. Several ranks may have parts
of the same tensor, so each rank's part has a separate name.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.file_rules import SAFETENSORS_FILES
from pytest_ckpt.sizing.files import shard_files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ckpt.sizing.models import RankLayout, Tensor

LENGTH_BYTES = 8
MAXIMUM_HEADER_BYTES = 100_000_000
"""The maximum length of a header that the library accepts."""

METADATA = {"format": "pt"}
"""The metadata that Hugging Face's writers store in every file."""

DTYPES = {"float16": "F16", "float32": "F32", "uint8": "U8"}
_METADATA_KEY = "__metadata__"

(INDEX,) = SAFETENSORS_FILES.shared


def header_end(first: bytes) -> int | None:
    """Return the offset at which the tensors begin in a file; None if the header's length is invalid.

    ``first`` are the first bytes of the file. If they are fewer than eight bytes, return None.
    """
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    return LENGTH_BYTES + length if len(first) >= LENGTH_BYTES and length <= MAXIMUM_HEADER_BYTES else None


def places_in(header: bytes, written: Mapping[str, Tensor]) -> dict[str, int]:
    """Return {name in the file: offset} of the tensors in a file. Offsets are counted from the end of the header.

    ``written`` are the tensors that were saved. Raises ValueError if ``header`` is not the header of these tensors.
    """
    try:
        entries = json.loads(header)
        same = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("its header is nested too deeply") from None
    # JSON with other spaces has the same meaning, but every byte of a file is compared.
    if header.rstrip(b" ") != same or not isinstance(entries, dict) or entries.pop(_METADATA_KEY, None) != METADATA:
        raise ValueError("its header is not what was written")
    if set(entries) != set(written):
        raise ValueError("it contains different tensors from those saved in it")
    places: dict[str, int] = {}
    for name, tensor in written.items():
        begin = _begin(entries[name])
        same_tensor = {
            "dtype": DTYPES[tensor.dtype],
            "shape": [tensor.elements],
            "data_offsets": [begin, begin + tensor.bytes],
        }
        if entries[name] != same_tensor:
            raise ValueError(f"{name} is not the tensor that was saved")
        places[name] = begin
    return places


def _begin(entry: Any) -> int:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    return offsets[0] if isinstance(offsets, list) and offsets and isinstance(offsets[0], int) else 0


def stored_name(tensor: str, rank: int) -> str:
    """Return the name that a rank's part of a tensor has in files."""
    return f"{tensor}/rank{rank}"


def files_of_tensors(shard: RankLayout) -> dict[str, str]:
    """Return {name of a tensor in files: file name} for all tensors of a rank."""
    files = shard_files(shard, SAFETENSORS_FILES)
    return {stored_name(tensor.name, shard.rank): file.name for file in files for tensor in file.tensors}


def index_of(shard: RankLayout) -> bytes:
    """Return the bytes of the index of the complete checkpoint that contains this shard."""
    shards = shard.whole.ranks() if shard.whole else (shard,)
    index = {
        "metadata": {"total_size": sum(each.bytes for each in shards)},
        "weight_map": {name: file for each in shards for name, file in files_of_tensors(each).items()},
    }
    return f"{json.dumps(index, indent=2, sort_keys=True)}\n".encode()


def weight_map(index: bytes) -> Mapping[str, Any]:
    """Return {tensor name: file name}, as an index lists them. Raises ValueError if ``index`` is not a valid index."""
    try:
        document = json.loads(index)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    placed = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(placed, dict):
        raise ValueError("it has no weight_map")
    return placed

"""The header of a safetensors file: eight bytes with its length, then JSON, filled up with spaces. Pure.

https://huggingface.co/docs/safetensors/index#format. The library reads it by itself; here it is held against what was
written, to the byte, and says where a reader's part of a tensor stands.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ckpt.sizing.models import Tensor

LENGTH_BYTES = 8
MAXIMUM_HEADER_BYTES = 100_000_000
"""The library reads no longer one."""

METADATA = {"format": "pt"}
"""What Hugging Face's writers put into every file."""

DTYPES = {"float16": "F16", "float32": "F32", "uint8": "U8"}
_METADATA_KEY = "__metadata__"


def header_end(first: bytes) -> int | None:
    """Return where the tensors begin, from the first bytes of a file; None where these say no length of a header."""
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    return LENGTH_BYTES + length if len(first) >= LENGTH_BYTES and length <= MAXIMUM_HEADER_BYTES else None


def places_in(header: bytes, written: Mapping[str, Tensor]) -> dict[str, int]:
    """Return where behind the header each tensor begins, by its name in the file.

    Raises ValueError where the header is not one of the tensors that were written.
    """
    try:
        found = json.loads(header)
        same = json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("its header is nested too deeply") from None
    # JSON means the same with other spaces, and no byte of a file is to be another one.
    if header.rstrip(b" ") != same or not isinstance(found, dict) or found.pop(_METADATA_KEY, None) != METADATA:
        raise ValueError("its header is not what was written")
    if set(found) != set(written):
        raise ValueError("it holds other tensors than were saved in it")
    places: dict[str, int] = {}
    for name, tensor in written.items():
        begin = _begin(found[name])
        same_tensor = {
            "dtype": DTYPES[tensor.dtype],
            "shape": [tensor.elements],
            "data_offsets": [begin, begin + tensor.bytes],
        }
        if found[name] != same_tensor:
            raise ValueError(f"{name} is not the tensor that was saved")
        places[name] = begin
    return places


def _begin(entry: Any) -> int:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    return offsets[0] if isinstance(offsets, list) and offsets and isinstance(offsets[0], int) else 0

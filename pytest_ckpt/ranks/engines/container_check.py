"""Checks that the files of engine ``stream`` equal the files of the installed torch.save, byte for byte.

``python -m pytest_ckpt.ranks.engines.container_check`` prints the first difference and then exits with 1. The engine
writes the container (file format) of the torch version in constraints.txt. Other torch versions may write other
containers, but they can read the containers of the engine.
"""

from __future__ import annotations

import io
import sys
import zipfile
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch.utils.serialization import config

from pytest_ckpt.ranks.content import Content, TensorKey
from pytest_ckpt.ranks.engines.stream.container import FileImage
from pytest_ckpt.ranks.engines.stream.container_layout import ALIGNMENT_BYTES, container_of
from pytest_ckpt.sizing.models import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.sizing.models import Dtype

_DTYPES = {"float16": torch.float16, "float32": torch.float32, "uint8": torch.uint8}
# Counts of tensors at which the pickle's form or the order of the records' names changes.
_COUNTS = (1, 2, 11, 60, 300, 1001)


def difference(tensors: Sequence[Tensor], alignment_bytes: int = ALIGNMENT_BYTES) -> str:
    """Return the first difference between two containers of ``tensors``, as text; empty if they are equal.

    pytest-ckpt writes one container and torch.save writes the other container.
    """
    content = Content(1)
    image = FileImage(container_of(tensors, alignment_bytes), content, 0, 0)
    image.become(1)
    ours = np.empty(image.bytes, dtype=np.uint8)
    image.make(ours, 0)
    state = {}
    for number, tensor in enumerate(tensors):
        data = content.expected(TensorKey(checkpoint=1, rank=0, tensor=number), 0, tensor.bytes)
        state[tensor.name] = torch.from_numpy(data).view(_DTYPES[tensor.dtype])
    file = io.BytesIO()
    with config.patch("save.storage_alignment", alignment_bytes):  # type: ignore[attr-defined]
        torch.save(state, file)
    theirs = np.frombuffer(file.getvalue(), dtype=np.uint8)
    if len(ours) != len(theirs):
        return f"{len(tensors)} tensors make a file of {len(theirs)} bytes with torch.save, {len(ours)} with ours"
    differing = np.flatnonzero(ours != theirs)
    return f"{len(tensors)} tensors: byte {differing[0]}, {_part(file, int(differing[0]))}" if len(differing) else ""


def differences() -> str:
    """Return the first difference for several numbers of tensors, as text; empty if all containers are equal.

    If this torch version cannot write such containers, return the reason.
    """
    try:
        found = (difference(_some(count)) for count in _COUNTS)
        return next(filter(None, found), "")
    except (AttributeError, ValueError) as error:
        return f"torch {torch.__version__} cannot align tensors to {ALIGNMENT_BYTES} bytes: {error}"


def _some(count: int) -> tuple[Tensor, ...]:
    kinds = ("float16", "float32", "uint8")
    return tuple(
        Tensor(name=f"layer/{number}", dtype=cast("Dtype", kinds[number % 3]), elements=1 + 97 * number % 5000)
        for number in range(count)
    )


def _part(file: io.BytesIO, offset: int) -> str:
    """Return the part of a container that contains ``offset``, as text: the record NAME, or the directory."""
    with zipfile.ZipFile(file) as archive:
        records = [r for r in archive.infolist() if r.header_offset <= offset]
        return "in the directory" if offset >= archive.start_dir else f"in the record {records[-1].filename}"


def main() -> int:
    """Print the first difference. Return the exit code: 1 if there is a difference, 0 otherwise."""
    difference_text = differences()
    print(f"torch {torch.__version__}: {difference_text or 'the containers are the same'}")
    return 1 if difference_text else 0


if __name__ == "__main__":
    sys.exit(main())

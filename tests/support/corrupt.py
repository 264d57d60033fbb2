"""Simulates storage that returns wrong bytes. A run calls this program between its saves and loads.

``corrupt.py TARGET KIND…`` damages the checkpoints of the only run on the target. Each KIND is the name of a function
in this module. A run uses this program in place of the command that drops caches. The program therefore also drops the
checkpoints from the page cache.
"""

from __future__ import annotations

import os
import struct
import sys
import zipfile
from pathlib import Path

PAGE = 4096
MODEL, OPTIMIZER = "model_states.pt", "optim_states.pt"


class Checkpoints:
    """The checkpoints on a target with exactly one run."""

    def __init__(self, target: Path) -> None:
        (self._directory,) = target.glob("pytest-ckpt-*/*/checkpoint-0001")

    def file(self, checkpoint: int, rank: int, name: str) -> Path:
        directory = self._directory.with_name(f"checkpoint-{checkpoint:04d}")
        return directory / f"zero_pp_rank_{rank}_mp_rank_0_{name}"

    def all(self) -> list[Path]:
        return sorted(self._directory.parent.glob("*/*"))


def tensor_start(file: Path, number: int) -> int:
    """Return the offset at which tensor ``number`` begins in a file."""
    with zipfile.ZipFile(file) as archive, file.open("rb") as raw:
        member = next(m for m in archive.infolist() if m.filename.endswith(f"/data/{number}"))
        raw.seek(member.header_offset)
        name_bytes, extra_bytes = struct.unpack("<26xHH", raw.read(30))
        return member.header_offset + 30 + name_bytes + extra_bytes


def change(file: Path, offset: int, data: bytes) -> None:
    with file.open("r+b") as out:
        out.seek(offset)
        out.write(data)


def read(file: Path, offset: int, count: int) -> bytes:
    with file.open("rb") as source:
        source.seek(offset)
        return source.read(count)


def flipped(checkpoints: Checkpoints) -> None:
    """Flip one bit in byte 8,200 of the first tensor of the model."""
    file = checkpoints.file(1, 0, MODEL)
    place = tensor_start(file, 0) + 8_200
    change(file, place, bytes([read(file, place, 1)[0] ^ 4]))


def zeros(checkpoints: Checkpoints) -> None:
    """Replace the third page of the optimizer's first tensor by zeros."""
    file = checkpoints.file(1, 1, OPTIMIZER)
    change(file, tensor_start(file, 0) + 2 * PAGE, bytes(PAGE))


def stale(checkpoints: Checkpoints) -> None:
    """Replace the sixth page of the optimizer's second tensor by the same page of the previous checkpoint."""
    new, old = checkpoints.file(2, 0, OPTIMIZER), checkpoints.file(1, 0, OPTIMIZER)
    place = tensor_start(new, 1) + 5 * PAGE
    change(new, place, read(old, place, PAGE))


def torn(checkpoints: Checkpoints) -> None:
    """Replace the second half of a page of the optimizer's third tensor by zeros, like a torn write."""
    file = checkpoints.file(2, 1, OPTIMIZER)
    change(file, tensor_start(file, 2) + 7 * PAGE + 2048, bytes(2048))


def misplaced(checkpoints: Checkpoints) -> None:
    one, other = checkpoints.file(1, 0, OPTIMIZER), checkpoints.file(1, 1, OPTIMIZER)
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def short(checkpoints: Checkpoints) -> None:
    """Truncate an optimizer file to the first quarter of its bytes."""
    file = checkpoints.file(1, 1, OPTIMIZER)
    os.truncate(file, file.stat().st_size // 4)


def unreadable(checkpoints: Checkpoints) -> None:
    """Overwrite the first 64 bytes of a model file, which belong to the file format."""
    file = checkpoints.file(2, 0, MODEL)
    change(file, 0, bytes(range(255, 191, -1)))


def main() -> None:
    target, *kinds = sys.argv[1:]
    checkpoints = Checkpoints(Path(target))
    for kind in kinds:
        globals()[kind](checkpoints)
    for file in checkpoints.all():
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


if __name__ == "__main__":
    main()

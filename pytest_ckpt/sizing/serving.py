"""The files of a model's weights alone, and which part of them each rank reads as a replica of a serving engine. Pure.

Weights are bf16, 2 bytes a parameter, in files of at most 5 GB: what Hugging Face's transformers 4 write.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ckpt.sizing.models import Layout

BYTES_A_PARAMETER = 2
MAXIMUM_FILE_BYTES = 5_000_000_000
_PAGE_BYTES = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """A model's weights: ``file_pages`` pages of 4 KiB in each file; ``full_bytes`` at scale 1.0 for all processes.

    ``processes`` ranks write the files in turn. The first ``replicas`` x ``readers`` of them read: each replica all
    files, each of its readers a part of every file.
    """

    processes: int
    readers: int
    full_bytes: int
    file_pages: tuple[int, ...]

    @property
    def replicas(self) -> int:
        """Replicas that read at once."""
        return self.processes // self.readers

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(self.file_pages) * _PAGE_BYTES

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the files, in their order."""
        count = len(self.file_pages)
        return tuple(f"weights-{number:05}-of-{count:05}.bin" for number in range(1, count + 1))

    def file_bytes(self, file: int) -> int:
        """Return the bytes of a file."""
        return self.file_pages[file] * _PAGE_BYTES

    def written_by(self, rank: int) -> range:
        """Return the numbers (from 0) of the files that a rank writes."""
        return range(rank, len(self.file_pages), self.processes)

    def read_by(self, rank: int) -> list[tuple[int, int, int]]:
        """Return (file, first byte, byte behind the last) of what a rank reads; nothing where it is no reader."""
        if rank >= self.replicas * self.readers:
            return []
        part = rank % self.readers
        spans = (
            (file, pages * part // self.readers * _PAGE_BYTES, pages * (part + 1) // self.readers * _PAGE_BYTES)
            for file, pages in enumerate(self.file_pages)
        )
        return [(file, start, stop) for file, start, stop in spans if stop > start]


def weights_of(layout: Layout, readers: int) -> Weights:
    """Return the weights of a layout's model at its scale; of a subset of ranks, their share of them."""
    full = BYTES_A_PARAMETER * layout.model.parameters
    share = layout.processes / layout.cluster_processes
    count = max(1, math.ceil(full * share / MAXIMUM_FILE_BYTES))
    pages = max(count, round(full * share * layout.scale / _PAGE_BYTES))
    return Weights(
        processes=layout.processes,
        readers=min(readers, layout.processes),
        full_bytes=full,
        file_pages=tuple(pages * (n + 1) // count - pages * n // count for n in range(count)),
    )

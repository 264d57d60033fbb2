"""The state of a job that saves a copy of it: the bytes of a rank's files, and a staging buffer of the same size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.ranks.engines.stream.buffers import MAXIMUM_ALIGNMENT_BYTES, Buffers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.ranks.content.generator import Bytes
    from pytest_ckpt.ranks.engines.stream.container import FileImage

_PIECE_BYTES = 4 << 20


class StagedFiles:
    """Both buffers are touched when they are made, before any clock."""

    def __init__(self, images: Sequence[FileImage]) -> None:
        self._images = images
        self._state = self._made()
        self._copies = self._made()
        self._is_staged = False

    @property
    def state(self) -> list[Bytes]:
        """The bytes of each file, which a step of training changes."""
        return [data[: image.bytes] for image, data in zip(self._images, self._state, strict=True)]

    def fill(self) -> None:
        """Make the bytes of the checkpoint that the images are turned to."""
        for image, data in zip(self._images, self.state, strict=True):
            for start in range(0, image.bytes, _PIECE_BYTES):
                image.make(data[start : start + _PIECE_BYTES], start)

    def stage(self) -> int:
        """Copy the state; return the bytes copied."""
        for data, copy in zip(self.state, self._copies, strict=True):
            copy[: len(data)] = data
        self._is_staged = True
        return sum(image.bytes for image in self._images)

    def take(self) -> Sequence[Bytes | None]:
        """Return what the next save writes, one a file: the copies, once; None where nothing was staged for it."""
        is_staged, self._is_staged = self._is_staged, False
        return self._copies if is_staged else [None] * len(self._copies)

    def _made(self) -> list[Bytes]:
        return [Buffers(1, image.bytes + MAXIMUM_ALIGNMENT_BYTES).slots[0] for image in self._images]

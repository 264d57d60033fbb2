"""Generates and compares the bytes of a file in torch.save's format (a container), without torch."""

from __future__ import annotations

import bisect
import zlib
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_ckpt.ranks.content import TensorKey
from pytest_ckpt.ranks.engines.stream.container_layout import identity_half

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ckpt.ranks.content import Bytes, Content
    from pytest_ckpt.ranks.engines.stream.container_layout import Container


@dataclass(frozen=True, slots=True)
class _ByteRange:
    """The bytes of a file from ``start`` to ``stop`` - 1.

    ``number`` is the number of the tensor that contains the bytes. If no tensor contains the bytes, ``number`` is -1.
    """

    start: int
    stop: int
    number: int


class FileImage:
    """The content of one file of one rank. Any byte range can be generated, or compared with bytes that were read.

    ``first_tensor`` is the number of the file's first tensor among the rank's tensors.
    """

    def __init__(self, container: Container, content: Content, rank: int, first_tensor: int) -> None:
        self._container = container
        self._content = content
        self._rank = rank
        self._first_tensor = first_tensor
        self._checkpoint = 0
        self._tensors = self._tensors_of(0)
        self._pieces: dict[int, Bytes] = {
            p.offset: np.frombuffer(bytearray(p.data), dtype=np.uint8) for p in container.pieces
        }
        self._checksum_places = [self._places_of(r.checksum_offsets) for r in container.records]
        identity = container.identity
        (self._identity,) = self._places_of([identity.offset], identity.bytes)
        self._identity_checksum_places = self._places_of(identity.checksum_offsets)
        # The checksums of each previous checkpoint are kept, because a load needs the results of the save.
        self._checksums: dict[int, array[int]] = {}
        self._stretches = self._cut()
        self._ends = [stretch.stop for stretch in self._stretches]

    @property
    def bytes(self) -> int:
        """The size of the file in bytes."""
        return self._container.bytes

    def become(self, checkpoint: int) -> None:
        """Switch to the content of checkpoint number ``checkpoint``.

        The bytes between tensors contain the checksums of the checkpoint's tensors, and the serialization id that is
        computed from these checksums. This method writes the new checksums and the new id into these bytes.
        """
        if checkpoint == self._checkpoint:
            return
        self._checkpoint = checkpoint
        self._tensors = self._tensors_of(checkpoint)
        if checkpoint not in self._checksums:
            sizes = (record.bytes for record in self._container.records)
            made = map(self._content.crc32, self._tensors, sizes)
            self._checksums[checkpoint] = array("I", made)
        checksums = self._checksums[checkpoint]
        for places, checksum in zip(self._checksum_places, checksums, strict=True):
            _store_checksum(places, checksum)
        digits = identity_half(self._container, checksums)
        self._identity[-len(digits) :] = np.frombuffer(digits, dtype=np.uint8)
        _store_checksum(self._identity_checksum_places, zlib.crc32(self._identity.tobytes()))

    def make(self, out: Bytes, offset: int) -> None:
        """Write the file's bytes from ``offset`` on into ``out``.

        Fill the space after the end of the file with zeros.
        """
        for part, stretch, inside in self._parts(out, offset):
            if stretch.number < 0:
                part[:] = self._pieces[stretch.start][inside : inside + len(part)]
            else:
                self._content.fill(part, self._tensors[stretch.number], inside)
        if offset + len(out) > self.bytes:
            out[max(0, self.bytes - offset) :] = 0

    def tensor_bytes(self, start: int, stop: int) -> int:
        """Return the number of tensor bytes among the file's bytes from ``start`` to ``stop`` - 1."""
        return sum(last - first for stretch, first, last in self._within(start, stop) if stretch.number >= 0)

    def parts(self, data: Bytes, offset: int) -> Iterator[tuple[Bytes, int, TensorKey | None, int, Bytes | None]]:
        """Split bytes of the file at the start and the end of each tensor. Yield each part.

        ``data`` contains the bytes of the file from ``offset`` on. For a part of a tensor, yield (bytes, number of the
        tensor in the file, tensor's key, offset in the tensor, None). For a part outside tensors, yield (bytes, -1,
        None, offset from the end of the previous tensor or from the start of the file, expected bytes).
        """
        for part, stretch, inside in self._parts(data, offset):
            if stretch.number < 0:
                yield part, -1, None, inside, self._pieces[stretch.start][inside : inside + len(part)]
            else:
                yield part, stretch.number, self._tensors[stretch.number], inside, None

    def _places_of(self, offsets: Sequence[int], size: int = 4) -> list[Bytes]:
        """Return one view for each of the file's ``offsets``: the ``size`` bytes from this offset on.

        The offsets must be outside tensors.
        """
        starts = sorted(self._pieces)
        views = []
        for offset in offsets:
            start = starts[bisect.bisect_right(starts, offset) - 1]
            views.append(self._pieces[start][offset - start : offset - start + size])
        return views

    def _tensors_of(self, checkpoint: int) -> list[TensorKey]:
        """Return the keys that this file's tensors have in checkpoint ``checkpoint``."""
        numbers = range(self._first_tensor, self._first_tensor + len(self._container.records))
        return [TensorKey(checkpoint=checkpoint, rank=self._rank, tensor=number) for number in numbers]

    def _cut(self) -> list[_ByteRange]:
        stretches = [
            _ByteRange(r.offset, r.offset + r.bytes, number) for number, r in enumerate(self._container.records)
        ]
        for piece in self._container.pieces:
            stretches.append(_ByteRange(piece.offset, piece.offset + len(self._pieces[piece.offset]), -1))
        return sorted((s for s in stretches if s.stop > s.start), key=lambda s: s.start)

    def _parts(self, data: Bytes, offset: int) -> Iterator[tuple[Bytes, _ByteRange, int]]:
        for stretch, start, stop in self._within(offset, offset + len(data)):
            yield data[start - offset : stop - offset], stretch, start - stretch.start

    def _within(self, start: int, stop: int) -> Iterator[tuple[_ByteRange, int, int]]:
        """Yield (byte range, start, end) for each byte range that overlaps the bytes ``start`` to ``stop`` - 1.

        The yielded start and end are offsets in the file. The overlap ends before the byte at the yielded end.
        """
        for number in range(bisect.bisect_right(self._ends, start), len(self._stretches)):
            stretch = self._stretches[number]
            if stretch.start >= stop:
                return
            yield stretch, max(start, stretch.start), min(stop, stretch.stop)


def _store_checksum(places: Sequence[Bytes], checksum: int) -> None:
    for place in places:
        place[:] = np.frombuffer(checksum.to_bytes(4, "little"), dtype=np.uint8)

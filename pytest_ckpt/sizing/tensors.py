"""Tensors, and files of them: what layouts consist of. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Dtype = Literal["float16", "float32", "uint8"]

ITEM_BYTES: dict[Dtype, int] = {"float16": 2, "float32": 4, "uint8": 1}
"""Bytes of an element."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    """One one-dimensional tensor; its name is unique within its file."""

    name: str
    dtype: Dtype
    elements: int

    @property
    def bytes(self) -> int:
        """Bytes of its elements."""
        return self.elements * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardFile:
    """One file of one rank; its name is unique within the checkpoint."""

    name: str
    tensors: tuple[Tensor, ...]

    @property
    def bytes(self) -> int:
        """Bytes of its tensors, without what a container adds."""
        return sum(tensor.bytes for tensor in self.tensors)


def dtypes(files: Iterable[ShardFile]) -> tuple[Dtype, ...]:
    """Return the types of a rank's tensors, in the order in which they are numbered."""
    return tuple(tensor.dtype for file in files for tensor in file.tensors)


def reduced(tensors: Sequence[Tensor], scale: float) -> tuple[Tensor, ...]:
    """Return the tensors that a scale leaves of tensors of one type, in their order: at least one.

    Their bytes are those of all tensors, each cut to that share of its elements, rounded down and at least one. Tensors
    keep their sizes: as many are left out as that takes, evenly over the sizes, and the largest of the rest is cut to
    what is then missing. So a reduced checkpoint has about as many tensors, and requests, a byte as a full one.

    What is kept follows from the sizes alone: ranks that hold parts of the same tensors keep parts of the same ones.
    """
    if scale == 1 or not tensors:
        return tuple(tensors)
    kept = _kept(tuple(tensor.elements for tensor in tensors), scale)
    return tuple(replace(tensors[index], elements=elements) for index, elements in kept)


@lru_cache(maxsize=1024)
def _kept(sizes: tuple[int, ...], scale: float) -> tuple[tuple[int, int], ...]:
    """Return which tensors are kept, as indices in ascending order, each with the elements that are left of it."""
    # The decimal that was written: 0.29 of 100 elements is 29, though the float nearest to 0.29 lies below it.
    share = Fraction(repr(scale))
    wanted = min(sum(sizes), sum(max(1, math.floor(size * share)) for size in sizes))
    largest_first = sorted(range(len(sizes)), key=lambda index: (-sizes[index], index))
    # At that share of all tensors or somewhat more, those in the middle of equal steps over the sizes are enough.
    count = -(-len(sizes) * wanted // sum(sizes))
    while sum(sizes[index] for index in _evenly(largest_first, count)) < wanted:
        count += 1
    chosen = _evenly(largest_first, count)
    excess = sum(sizes[index] for index in chosen) - wanted
    kept = []
    for index in chosen:
        # A rank's part of a small tensor may be empty.
        cut = min(excess, max(0, sizes[index] - 1))
        kept.append((index, sizes[index] - cut))
        excess -= cut
    return tuple(sorted(kept))


def _evenly(ordered: Sequence[int], count: int) -> list[int]:
    """Return so many of a sequence, each in the middle of one of as many equal steps: of two middles the first."""
    return [ordered[((2 * step + 1) * len(ordered) - 1) // (2 * count)] for step in range(count)]

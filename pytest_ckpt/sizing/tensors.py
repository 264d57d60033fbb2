"""Tensors, and files of them: what layouts consist of. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

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


def scaled(elements: int, scale: float) -> int:
    """Return the share of some elements that a scale leaves: at least one."""
    if scale == 1:
        return elements
    # The decimal that was written: 0.29 of 100 elements is 29, though the float nearest to 0.29 lies below it.
    return max(1, math.floor(elements * Fraction(repr(scale))))

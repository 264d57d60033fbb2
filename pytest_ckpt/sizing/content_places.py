"""Divides the 64-bit number of each page of content into bits for rank, checkpoint, tensor and page.

All functions are pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.sizing.deltas import PAGE_BYTES
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.units import format_count

if TYPE_CHECKING:
    from pytest_ckpt.sizing.models import Layout

RANK_BITS, CHECKPOINT_BITS = 14, 12
WITHIN_RANK_BITS = 64 - RANK_BITS - CHECKPOINT_BITS
"""The bits that remain for the number of a tensor within a rank, and of a page within the tensor."""

USUAL_TENSOR_BITS = 10
"""The usual number of bits for tensors, sufficient for every model of the workload.

For a model with more tensors per rank, fewer bits remain for pages.
"""


def tensor_bits(tensors: int) -> int:
    """Return the number of bits for the index of a tensor on its rank, if a rank has up to ``tensors`` tensors.

    The result is at least `USUAL_TENSOR_BITS`.
    """
    return max(USUAL_TENSOR_BITS, (tensors - 1).bit_length())


def check_places(layout: Layout) -> None:
    """Raise UsageError if 64 bits are too few to give every page of a layout a different number."""
    name, bits = layout.model.name, WITHIN_RANK_BITS - tensor_bits(layout.most_tensors)
    # Each tensor has one page number more than pages.
    longest = ((1 << max(bits, 0)) - 1) * PAGE_BYTES
    if layout.largest_tensor_bytes > longest:
        raise UsageError(
            f"{name}: a rank has {format_count(layout.most_tensors)} tensors, the largest of "
            f"{format_count(layout.largest_tensor_bytes)} bytes; with so many tensors, content is unique for "
            f"{format_count(longest)} bytes of each.",
            "Cut the model for more ranks (--ckpt-parallel), as its training does.",
        )
    if layout.processes > 1 << RANK_BITS:
        raise UsageError(
            f"{name}: {format_count(layout.processes)} ranks; content is unique for {format_count(1 << RANK_BITS)} "
            "ranks.",
            "Cut the model for fewer ranks (--ckpt-parallel).",
        )

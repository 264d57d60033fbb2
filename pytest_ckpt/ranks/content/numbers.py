"""Content that compresses as the tensors of a training state do: numbers of random mantissas and few exponents.

A small transformer that was trained on text with AdamW (11 M parameters) stored, by zstd 1 in blocks of 1 MiB, 0.77 of
its bf16 weights and 0.91 to 0.93 of its fp32 master weights and moments; LZ4 stored all. Here exponents are drawn from
a normal distribution such that both come out within 0.03. Rows of moments that were never used, which compress to
nearly nothing, are left out. Signs belong to what is called an exponent here: the highest byte of a number.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from pytest_ckpt.sizing.models import ITEM_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_ckpt.sizing.models import Dtype

    Words = NDArray[np.uint64]

SAID = "numbers of few exponents, such that zstd 1 stores 0.77 of 2-byte and 0.92 of 4-byte numbers"
"""What the content is, in words: the ratio is that of one measured state, and of no other job."""

_MIDDLE, _SPREAD = 60, 1.25
# By a random byte, the exponent in its place.
_EXPONENTS = np.array(
    [round(NormalDist(_MIDDLE, _SPREAD).inv_cdf((byte + 0.5) / 256)) for byte in range(256)], dtype=np.uint8
)


def as_numbers(block: Words, kind: Dtype) -> Words:
    """Return a block of random bits as numbers of a type; bytes have no exponent and stay."""
    size = ITEM_BYTES[kind]
    if size == 1:
        return block
    made = block.copy()
    every = made.view(np.uint8)
    every[:, size - 1 :: size] = _EXPONENTS[every[:, size - 1 :: size]]
    # What is zeros for all to see stays so.
    made[block == 0] = 0
    return made


def mantissas(mask: Words, kind: Dtype) -> Words:
    """Return which bits of a page's words differ from page to page, of those that may: all of the first word."""
    size = ITEM_BYTES[kind]
    if size == 1:
        return mask
    bits = np.frombuffer(bytes([255] * (size - 1) + [0]) * (8 // size), dtype="<u8")[0]
    made: Words = mask & bits
    made[0] = mask[0]
    return made

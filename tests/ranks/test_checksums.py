"""The CRC-32 of generated content is computed without creating the content, and equals the result of zlib."""

from __future__ import annotations

import functools
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ckpt.ranks.content import (
    BLOCK_PAGES,
    PAGE_BYTES,
    Content,
    PageChecksums,
    TensorKey,
    WordChecksums,
    join,
    linear,
    of_zeros,
    shift,
)

BLOCK_BYTES = BLOCK_PAGES * PAGE_BYTES
PLACE = TensorKey(checkpoint=1, rank=0, tensor=0)

places = st.builds(
    TensorKey, checkpoint=st.integers(0, 4095), rank=st.integers(0, 16383), tensor=st.integers(0, 1023)
)  # fmt: skip
# Sizes around the edges of pages and blocks, where errors are likely.
edges = st.builds(lambda n, d: max(0, n + d), st.sampled_from([0, PAGE_BYTES, BLOCK_BYTES, 2 * BLOCK_BYTES]),
                  st.integers(-9, 9))  # fmt: skip
sizes = st.one_of(st.integers(0, 3 * PAGE_BYTES), st.integers(0, 3 * BLOCK_BYTES), edges)
shares = st.sampled_from([0.001, 0.25, 0.5, 0.9, 0.998, 0.9999])
registers = st.integers(0, 0xFFFFFFFF)
counts = st.integers(0, 1 << 40)


@functools.cache
def content(compressible=0.0, constant=False):
    return Content(7, compressible=compressible, constant=constant)


def is_right(of, place, size):
    return of.crc32(place, size) == zlib.crc32(of.expected(place, 0, size))


@settings(deadline=None)
@given(place=places, size=sizes)
def test_the_checksum_is_right_at_any_place_and_size(place, size):
    assert is_right(content(), place, size)


@settings(deadline=None, max_examples=40)
@given(place=places, size=sizes, compressible=shares)
def test_the_checksum_is_right_with_any_share_of_zeros(place, size, compressible):
    assert is_right(content(compressible), place, size)


@settings(deadline=None, max_examples=20)
@given(place=places, size=sizes)
def test_the_checksum_of_constant_content_is_right(place, size):
    assert is_right(content(constant=True), place, size)


def test_the_checksum_of_constant_content_with_zeros_is_right():
    assert all(is_right(content(0.5, constant=True), PLACE, size) for size in (1, PAGE_BYTES, 3 * PAGE_BYTES + 5))


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**63 - 1), place=places, size=sizes)
def test_the_checksum_is_right_with_any_seed(seed, place, size):
    assert is_right(Content(seed), place, size)


def test_the_checksum_of_more_than_one_batch_is_right():
    size = (1 << 15) * PAGE_BYTES + 3 * PAGE_BYTES + 5
    expected = 0
    for start in range(0, size, BLOCK_BYTES):
        expected = zlib.crc32(content().expected(PLACE, start, min(BLOCK_BYTES, size - start)), expected)
    assert content().crc32(PLACE, size) == expected


@pytest.mark.parametrize("other", [{"checkpoint": 2}, {"rank": 1}, {"tensor": 1}])
def test_another_place_has_another_sum(other):
    elsewhere = TensorKey(**{"checkpoint": 1, "rank": 0, "tensor": 0, **other})
    assert content().crc32(PLACE, BLOCK_BYTES) != content().crc32(elsewhere, BLOCK_BYTES)


@settings(deadline=None)
@given(data=st.data(), rows=st.integers(1, 5), width=st.sampled_from([1, 2, 4, 16]), first=st.integers(0, 9))
def test_the_sum_of_pages_is_that_of_their_rows_and_words(data, rows, width, first):
    word = st.integers(0, 2**64 - 1)
    # Some words have all or no bits, others have random bits.
    bits = st.lists(st.one_of(st.sampled_from([0, 2**64 - 1]), word), min_size=width, max_size=width)
    mask = np.array(data.draw(bits), dtype=np.uint64)
    words = np.array(data.draw(st.lists(word, min_size=1, max_size=20)), dtype=np.uint64)
    block = np.random.default_rng(first).integers(0, 2**64, size=(rows, width), dtype=np.uint64)
    pages = block[(np.arange(len(words)) + first) % rows]
    pages ^= words[:, None] & mask
    assert PageChecksums(block, WordChecksums(mask)).of_pages(first, words) == linear(pages.tobytes())


@given(first=st.binary(max_size=300), second=st.binary(max_size=300))
def test_two_stretches_are_joined_as_if_they_were_one(first, second):
    assert join(linear(first), linear(second), len(second)) == linear(first + second)


@given(first=st.binary(min_size=1, max_size=300), data=st.data())
def test_the_sum_without_its_start_is_linear(first, data):
    second = data.draw(st.binary(min_size=len(first), max_size=len(first)))
    both = bytes(a ^ b for a, b in zip(first, second, strict=True))
    assert linear(both) == linear(first) ^ linear(second)


@given(count=st.integers(0, 100_000))
def test_zeros_have_the_sum_that_zlib_gives_them(count):
    assert of_zeros(count) == zlib.crc32(bytes(count))


@settings(deadline=None)
@given(register=registers, first=counts, second=counts)
def test_shifts_add_up_over_any_distance(register, first, second):
    assert shift(shift(register, first), second) == shift(register, first + second)


@settings(deadline=None)
@given(one=registers, other=registers, count=counts)
def test_a_shift_is_linear(one, other, count):
    assert shift(one ^ other, count) == shift(one, count) ^ shift(other, count)

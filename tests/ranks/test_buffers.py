"""Buffers for direct requests (O_DIRECT): their alignment, their separation, and their share in huge pages."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ckpt.ranks.engines.stream.buffers import Buffers

HUGE = 2 << 20
BLOCK = 4096
shapes = st.tuples(st.integers(1, 9), st.integers(1, 16).map(lambda n: n * (64 << 10)))


def places(buffers):
    return [(slot.ctypes.data, slot.ctypes.data + len(slot)) for slot in buffers.slots]


@settings(deadline=None, max_examples=30)
@given(shape=shapes)
def test_the_requested_number_of_buffers_has_the_requested_size(shape):
    count, size = shape
    assert [len(slot) for slot in Buffers(count, size).slots] == [size] * count


@settings(deadline=None, max_examples=30)
@given(shape=shapes)
def test_buffers_begin_at_a_huge_page_and_each_at_a_block(shape):
    starts = [start for start, _ in places(Buffers(*shape))]
    assert starts[0] % HUGE == 0
    assert all(start % BLOCK == 0 for start in starts)


@pytest.mark.parametrize("size", [HUGE, 2 * HUGE, 8 * HUGE])
def test_every_buffer_of_complete_huge_pages_begins_at_a_huge_page(size):
    assert [start % HUGE for start, _ in places(Buffers(3, size))] == [0, 0, 0]


@settings(deadline=None, max_examples=30)
@given(shape=shapes)
def test_no_two_share_a_byte(shape):
    ordered = sorted(places(Buffers(*shape)))
    assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(ordered))


def test_a_write_into_one_buffer_changes_no_other():
    buffers = Buffers(8, 64 << 10)
    for number, slot in enumerate(buffers.slots, 1):
        slot[:] = number
    assert [(slot.min(), slot.max()) for slot in buffers.slots] == [(n, n) for n in range(1, 9)]


def test_buffers_are_writable_zeros():
    (slot,) = Buffers(1, HUGE).slots
    assert not slot.any()
    assert slot.flags.writeable
    assert slot.flags.c_contiguous
    assert slot.dtype == np.uint8


@pytest.mark.parametrize(("count", "size"), [(1, 64 << 10), (8, 4 << 20)])
def test_no_more_is_in_huge_pages_than_there_is(count, size):
    huge = Buffers(count, size).huge_bytes()
    assert 0 <= huge <= -(-count * size // HUGE) * HUGE
    assert huge % HUGE == 0


def test_buffers_that_are_given_back_do_not_count_for_others():
    kept = Buffers(1, HUGE)
    before = kept.huge_bytes()
    other = Buffers(4, 4 * HUGE)
    other.slots[0][:] = 1
    assert kept.huge_bytes() == before

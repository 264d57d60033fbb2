"""The generated content of a page depends only on seed, subject and the page's place, is unique, and does not compress.

A place is a combination of checkpoint, rank, tensor and page number.
"""

from __future__ import annotations

import itertools
import zlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ckpt.ranks.content import BLOCK_PAGES, PAGE_BYTES, Content, TensorKey, content_seed
from pytest_ckpt.sizing.content_places import tensor_bits

CONTENT = Content(content_seed(7, "llama3-8b-full"))
PLACE = TensorKey(checkpoint=1, rank=0, tensor=0)
BLOCK_BYTES = PAGE_BYTES * BLOCK_PAGES
# Two blocks, and a last page that is incomplete.
WHOLE_BYTES = 2 * BLOCK_BYTES + 3 * PAGE_BYTES + 1234
MAXIMUM_PAGES = 1 << 28

places = st.builds(
    TensorKey, checkpoint=st.integers(0, 4095), rank=st.integers(0, 16383), tensor=st.integers(0, 1023)
)  # fmt: skip
page_numbers = st.integers(0, MAXIMUM_PAGES - 2)
# Offsets around the edges of pages and blocks, where errors are likely.
edges = st.builds(lambda n, d: max(0, n + d), st.sampled_from([0, PAGE_BYTES, BLOCK_BYTES, 2 * BLOCK_BYTES]),
                  st.integers(-9, 9))  # fmt: skip
offsets = st.one_of(st.integers(0, WHOLE_BYTES), edges)
lengths = st.one_of(st.integers(0, 3 * PAGE_BYTES), st.integers(0, WHOLE_BYTES), edges)


def page_of(place, number, content=CONTENT):
    return content.expected(place, number * PAGE_BYTES, PAGE_BYTES)


@settings(deadline=None)
@given(place=places, offset=offsets, length=lengths)
def test_bytes_at_any_offset_are_a_slice_of_the_whole(place, offset, length):
    whole = CONTENT.expected(place, 0, WHOLE_BYTES)
    stop = min(WHOLE_BYTES, offset + length)
    part = CONTENT.expected(place, offset, stop - offset) if stop > offset else np.empty(0, np.uint8)
    assert np.array_equal(part, whole[offset:stop])


@settings(deadline=None)
@given(
    place=places, number=st.integers(0, MAXIMUM_PAGES - 3), head=st.integers(0, PAGE_BYTES), length=st.integers(1, 4096)
)
def test_far_into_a_tensor_a_cut_is_as_exact(place, number, head, length):
    pages = np.concatenate([page_of(place, number), page_of(place, number + 1)])
    part = CONTENT.expected(place, number * PAGE_BYTES + head, length)
    assert np.array_equal(part, pages[head : head + length])


def test_filling_touches_nothing_beside_what_it_was_given():
    out = np.full(5 * PAGE_BYTES, 0xAA, np.uint8)
    CONTENT.fill(out[100 : 100 + 2 * PAGE_BYTES], PLACE, 50)
    assert (out[:100] == 0xAA).all()
    assert (out[100 + 2 * PAGE_BYTES :] == 0xAA).all()
    assert np.array_equal(out[100 : 100 + 2 * PAGE_BYTES], CONTENT.expected(PLACE, 50, 2 * PAGE_BYTES))


def test_all_pages_of_many_checkpoints_ranks_and_tensors_differ():
    """The pages of all checkpoints, ranks and tensors differ, also between two blocks of one tensor.

    Both blocks consist of the same rows of random data. In the second block, other words are XORed to the rows.
    """
    seen = set()
    count = 0
    for checkpoint, rank, tensor in itertools.product((1, 2, 10), (0, 1, 7, 1023), (0, 1, 5)):
        data = CONTENT.expected(TensorKey(checkpoint=checkpoint, rank=rank, tensor=tensor), 0, 2 * BLOCK_BYTES)
        pages = data.reshape(-1, PAGE_BYTES)
        seen.update(zlib.crc32(p) << 64 | int.from_bytes(p[:8].tobytes(), "little") for p in pages)
        count += len(pages)
    assert len(seen) == count


@given(one=st.tuples(places, page_numbers), other=st.tuples(places, page_numbers))
def test_two_places_never_hold_the_same_page(one, other):
    assert np.array_equal(page_of(*one), page_of(*other)) == (one == other)


def test_two_subjects_and_two_seeds_share_no_page():
    seeds = {content_seed(seed, subject) for seed in (0, 1, 2**62) for subject in ("llama3-8b-full", "llama3-70b-full")}
    assert len(seeds) == 6
    pages = {page_of(PLACE, number, Content(seed)).tobytes() for seed in seeds for number in range(BLOCK_PAGES)}
    assert len(pages) == 6 * BLOCK_PAGES


def test_the_same_seed_gives_the_same_bytes():
    again = Content(content_seed(7, "llama3-8b-full"))
    assert np.array_equal(again.expected(PLACE, 0, WHOLE_BYTES), CONTENT.expected(PLACE, 0, WHOLE_BYTES))


@pytest.mark.parametrize("checkpoint", [1, 2])
def test_content_does_not_compress(checkpoint):
    data = CONTENT.expected(TensorKey(checkpoint=checkpoint, rank=3, tensor=2), 0, 2 * BLOCK_BYTES).tobytes()
    assert len(zlib.compress(data, 9)) > 0.99 * len(data)


def test_the_same_page_of_several_checkpoints_does_not_compress():
    """One page of eight checkpoints has different content in each checkpoint, so the eight pages do not compress."""
    pages = [page_of(TensorKey(checkpoint=c, rank=0, tensor=0), 5) for c in range(1, 9)]
    data = np.concatenate(pages).tobytes()
    assert len(zlib.compress(data, 9)) > 0.99 * len(data)


@settings(deadline=None)
@given(place=places, number=page_numbers)
def test_a_page_identifies_its_place(place, number):
    assert CONTENT.origin(page_of(place, number)) == (place, number)


@settings(deadline=None)
@given(number=st.integers(0, 1000), position=st.integers(0, PAGE_BYTES - 1), bit=st.integers(0, 7))
def test_a_page_with_a_wrong_bit_belongs_nowhere(number, position, bit):
    page = page_of(PLACE, number)
    page[position] ^= 1 << bit
    assert CONTENT.origin(page) is None


@pytest.mark.parametrize("page", [np.zeros(PAGE_BYTES, np.uint8), np.full(PAGE_BYTES, 255, np.uint8),
                                  page_of(PLACE, 0, Content(1))], ids=["zeros", "ones", "another run"])  # fmt: skip
def test_pages_that_are_not_ours_belong_nowhere(page):
    assert CONTENT.origin(page) is None


@settings(deadline=None)
@given(place=places, offset=offsets, length=lengths)
def test_filled_data_have_no_differing_pages(place, offset, length):
    assert CONTENT.differing_pages(CONTENT.expected(place, offset, length), place, offset) == []


@settings(deadline=None)
@given(data=st.data(), place=places, offset=offsets, length=lengths.filter(bool), bit=st.integers(0, 7))
def test_any_flipped_bit_is_found_in_its_page(data, place, offset, length, bit):
    position = data.draw(st.integers(0, length - 1))
    seen = CONTENT.expected(place, offset, length)
    seen[position] ^= 1 << bit
    ((start, stop),) = CONTENT.differing_pages(seen, place, offset)
    assert start <= position < stop
    assert (offset + start) // PAGE_BYTES == (offset + stop - 1) // PAGE_BYTES == (offset + position) // PAGE_BYTES
    assert start == 0 or (offset + start) % PAGE_BYTES == 0
    assert stop == length or (offset + stop) % PAGE_BYTES == 0


@settings(deadline=None)
@given(wrong=st.sets(st.integers(0, 2 * BLOCK_PAGES + 2), max_size=12))
def test_every_wrong_page_is_reported_in_order(wrong):
    seen = CONTENT.expected(PLACE, 0, WHOLE_BYTES)
    for number in wrong:
        seen[number * PAGE_BYTES + 17] ^= 1
    starts = [start // PAGE_BYTES for start, _ in CONTENT.differing_pages(seen, PLACE)]
    assert starts == sorted(wrong)


@pytest.mark.parametrize("other", [TensorKey(checkpoint=2, rank=0, tensor=0), TensorKey(checkpoint=1, rank=1, tensor=0),
                                   TensorKey(checkpoint=1, rank=0, tensor=1)])  # fmt: skip
def test_bytes_of_another_place_differ_in_every_page(other):
    seen = CONTENT.expected(other, 0, WHOLE_BYTES)
    assert len(CONTENT.differing_pages(seen, PLACE)) == 2 * BLOCK_PAGES + 4


@pytest.mark.parametrize("wrong", [{"checkpoint": 4096}, {"rank": 16384}, {"tensor": 1 << 38}, {"rank": -1}])
def test_a_place_that_could_be_taken_for_another_is_refused(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        TensorKey(**{"checkpoint": 1, "rank": 0, "tensor": 0, **wrong})


def test_a_tensor_beyond_the_bits_of_its_content_is_refused():
    with pytest.raises(ValueError, match="tensor 1024 is outside"):
        CONTENT.expected(TensorKey(checkpoint=1, rank=0, tensor=1024), 0, 1)


def test_with_more_bits_for_tensors_every_page_still_identifies_its_place():
    content = Content(7, tensor_bits=tensor_bits(60_000))
    for tensor, number in ((0, 0), (1024, 5), (59_999, (1 << 22) - 2)):
        place = TensorKey(checkpoint=4095, rank=16383, tensor=tensor)
        page = content.expected(place, number * PAGE_BYTES, PAGE_BYTES)
        assert content.origin(page) == (place, number)


def test_a_tensor_longer_than_the_size_field_is_refused():
    with pytest.raises(ValueError, match="at most"):
        CONTENT.expected(PLACE, MAXIMUM_PAGES * PAGE_BYTES, 1)


def row_of_page(place, number, content=CONTENT):
    """Return bytes that identify the row of random data from which a page was generated.

    The bytes are the words after the first word of the page, each XORed with the first word.
    """
    words = page_of(place, number, content).view(np.uint64)
    return (words[1:] ^ words[0]).tobytes()


def test_after_a_gib_at_most_no_row_comes_again():
    pages_of_a_gib = (1 << 30) // PAGE_BYTES
    # All these pages use the same row of the block.
    numbers = range(5, 2 * pages_of_a_gib, 64 * BLOCK_PAGES)
    places = [TensorKey(checkpoint=c, rank=r, tensor=t) for c in (1, 2) for r in (0, 1) for t in range(32)]
    seen = Counter(row_of_page(place, number) for place in places for number in numbers)
    each = 64 * BLOCK_PAGES * PAGE_BYTES
    assert max(seen.values()) * each <= 1 << 30
    assert len(seen) >= len(places) * len(numbers) * each >> 30


@pytest.mark.parametrize("number", [(1 << 14) - 1, 1 << 14, (1 << 18) + 7])
def test_bytes_are_the_same_at_any_cut_where_the_block_is_another(number):
    place = TensorKey(checkpoint=3, rank=2, tensor=9)
    start = number * PAGE_BYTES - 3 * PAGE_BYTES - 100
    whole = CONTENT.expected(place, start, 7 * PAGE_BYTES)
    pieces = [CONTENT.expected(place, start + at, 1000) for at in range(0, 7 * PAGE_BYTES - 1000, 1000)]
    assert np.array_equal(np.concatenate(pieces), whole[: len(pieces) * 1000])
    assert CONTENT.origin(page_of(place, number)) == (place, number)

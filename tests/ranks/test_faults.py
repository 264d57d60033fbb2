"""The comparison finds each page that differs from the saved page, and names the kind of the fault."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ckpt.ranks.content import PAGE_BYTES, Content, Finding, TensorKey, compare

CONTENT = Content(7)
PLACE = TensorKey(checkpoint=3, rank=5, tensor=2)
PAGES = 600
SIZE = PAGES * PAGE_BYTES + 700


def written():
    return CONTENT.expected(PLACE, 0, SIZE)


def page(number, **elsewhere):
    return CONTENT.expected(dataclasses.replace(PLACE, **elsewhere), number * PAGE_BYTES, PAGE_BYTES)


def findings_of(data, **how):
    count, findings = compare(CONTENT, data, PLACE, **how)
    return count, [(f.kind, f.offset, f.bytes) for f in findings]


def only_finding(data):
    count, findings = compare(CONTENT, data, PLACE)
    assert count == 1
    return findings[0]


def with_content(data, number, content):
    data[number * PAGE_BYTES : number * PAGE_BYTES + len(content)] = content
    return data


def test_unchanged_data_have_no_fault():
    assert compare(CONTENT, written(), PLACE) == (0, [])


@settings(deadline=None)
@given(position=st.integers(0, SIZE - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_is_located_to_the_byte(position, bit):
    data = written()
    data[position] ^= 1 << bit
    finding = only_finding(data)
    assert finding.kind == "flipped"
    assert finding.offset == position // PAGE_BYTES * PAGE_BYTES
    assert finding.detail == f"1 bit differs in 1 byte, the first at byte {position}"


def test_sixteen_wrong_bytes_are_still_flipped_bits():
    data = written()
    data[40:56] ^= 0xFF
    assert only_finding(data).kind == "flipped"
    assert "128 bits differ in 16 bytes, the first at byte 40" in only_finding(data).detail
    data[56] ^= 0xFF
    assert only_finding(data).kind == "foreign"


def test_a_page_of_zeros_is_zeros():
    assert only_finding(with_content(written(), 9, np.zeros(PAGE_BYTES, np.uint8))) == Finding(
        kind="zeros", offset=9 * PAGE_BYTES, bytes=PAGE_BYTES, detail="the page contains zeros"
    )


@pytest.mark.parametrize("right", [512, 1024, 2048, 4000])
def test_a_page_that_is_right_up_to_a_place_was_torn(right):
    start = 9 * PAGE_BYTES
    data = written()
    data[start + right : start + PAGE_BYTES] = 0
    finding = only_finding(data)
    assert finding.kind == "torn"
    assert f"right up to byte {start + right} and contains zeros after it" in finding.detail


def test_a_page_whose_rest_is_of_an_older_checkpoint_was_torn():
    data = written()
    with_content(data, 9, page(9, checkpoint=2))
    data[9 * PAGE_BYTES : 9 * PAGE_BYTES + 2048] = page(9)[:2048]
    finding = only_finding(data)
    assert (finding.kind, "other bytes after it" in finding.detail) == ("torn", True)


@settings(deadline=None)
@given(checkpoint=st.integers(0, 4095).filter(lambda c: c != PLACE.checkpoint), number=st.integers(0, PAGES - 1))
def test_a_page_of_another_checkpoint_at_its_place_is_stale(checkpoint, number):
    finding = only_finding(with_content(written(), number, page(number, checkpoint=checkpoint)))
    assert (finding.kind, finding.offset) == ("stale", number * PAGE_BYTES)
    assert finding.detail == f"the page is from checkpoint {checkpoint} at the same place"


@pytest.mark.parametrize(
    ("there", "expected_text"),
    [
        (page(400), "rank 5, tensor 2, offset 1638400 of checkpoint 3"),
        (page(9, rank=6), "rank 6, tensor 2, offset 36864 of checkpoint 3"),
        (page(9, tensor=0), "rank 5, tensor 0, offset 36864 of checkpoint 3"),
        (page(70_000, rank=16383, tensor=9, checkpoint=1), "rank 16383, tensor 9, offset 286720000 of checkpoint 1"),
    ],
    ids=["another page", "another rank", "another tensor", "all of it"],
)  # fmt: skip
def test_a_page_at_the_wrong_place_is_reported_as_misplaced_with_its_right_place(there, expected_text):
    finding = only_finding(with_content(written(), 9, there))
    assert (finding.kind, finding.offset) == ("misplaced", 9 * PAGE_BYTES)
    assert expected_text in finding.detail


def test_bytes_that_nobody_of_this_run_wrote_are_foreign():
    noise = np.random.default_rng(1).integers(0, 256, PAGE_BYTES, dtype=np.uint8)
    assert only_finding(with_content(written(), 9, noise)).kind == "foreign"
    assert (
        only_finding(with_content(written(), 9, Content(8).expected(PLACE, 9 * PAGE_BYTES, PAGE_BYTES))).kind
        == "foreign"
    )


def test_the_incomplete_last_page_is_compared_too():
    data = written()
    data[PAGES * PAGE_BYTES :] = 0
    assert findings_of(data) == (1, [("zeros", PAGES * PAGE_BYTES, 700)])


def test_neighbours_of_one_kind_are_one_finding_and_every_page_counts():
    data = written()
    data[9 * PAGE_BYTES : 12 * PAGE_BYTES] = 0
    with_content(data, 12, page(12, checkpoint=1))
    data[20 * PAGE_BYTES : 21 * PAGE_BYTES] = 0
    assert findings_of(data) == (
        5,
        [
            ("zeros", 9 * PAGE_BYTES, 3 * PAGE_BYTES),
            ("stale", 12 * PAGE_BYTES, PAGE_BYTES),
            ("zeros", 20 * PAGE_BYTES, PAGE_BYTES),
        ],
    )


def test_only_the_first_findings_are_reported_and_all_are_counted():
    data = written()
    for number in range(0, PAGES, 2):
        data[number * PAGE_BYTES] ^= 1
    count, findings = compare(CONTENT, data, PLACE, maximum=4)
    assert count == PAGES // 2
    assert [f.offset // PAGE_BYTES for f in findings] == [0, 2, 4, 6]


@settings(deadline=None)
@given(offset=st.integers(0, 3 * PAGE_BYTES), pages=st.integers(2, 5), data=st.data())
def test_a_fault_has_its_offset_in_the_tensor_whatever_part_was_read(offset, pages, data):
    seen = CONTENT.expected(PLACE, offset, pages * PAGE_BYTES)
    position = data.draw(st.integers(0, len(seen) - 1))
    seen[position] ^= 0x10
    count, (finding,) = compare(CONTENT, seen, PLACE, offset)
    assert count == 1
    assert finding.offset <= offset + position < finding.offset + finding.bytes
    assert f"the first at byte {offset + position}" in finding.detail


@settings(deadline=None)
@given(noise=st.binary(min_size=1, max_size=3 * PAGE_BYTES), start=st.integers(0, SIZE - 3 * PAGE_BYTES))
def test_every_page_that_differs_counts_whatever_is_in_it(noise, start):
    right, data = written(), written()
    data[start : start + len(noise)] = np.frombuffer(noise, np.uint8)
    differing = {position // PAGE_BYTES for position in np.flatnonzero(right != data)}
    count, findings = compare(CONTENT, data, PLACE)
    assert count == len(differing)
    pages = {p for f in findings for p in range(f.offset // PAGE_BYTES, (f.offset + f.bytes - 1) // PAGE_BYTES + 1)}
    assert pages == differing


@pytest.mark.parametrize(("elsewhere", "kind"), [({"checkpoint": 2}, "stale"), ({"rank": 4}, "misplaced")])
def test_a_long_run_of_pages_of_another_place_makes_few_blocks(elsewhere, kind):
    """The comparison of many stale or misplaced pages creates few blocks of expected content.

    If each page needed a new block, the comparison would take a day on a rank of llama3-70b.
    """
    content = Content(8)
    data = content.expected(dataclasses.replace(PLACE, **elsewhere), 0, SIZE)
    groups = []

    def counted(kind, group):
        groups.append(group)
        return content._generate(kind, group)

    content._cached_block = functools.lru_cache(maxsize=8)(counted)
    content._cached_elsewhere = functools.lru_cache(maxsize=2)(counted)
    count, findings = compare(content, data, PLACE)
    assert count == PAGES + 1
    assert findings[0].kind == kind
    assert findings[0].bytes == PAGES * PAGE_BYTES
    assert len(groups) == 2

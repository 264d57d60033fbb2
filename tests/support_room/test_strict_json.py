"""JSON is read strictly: what is no number, or could be seen differently by another reader, is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.support.strict_json import parse

NUMBERS = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(DOCUMENTS)
def test_what_json_writes_is_read(document):
    assert parse(json.dumps(document).encode()) == document


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("NaN", "NaN is no number of JSON"),
        ("[-Infinity]", "-Infinity is no number of JSON"),
        ("1e400", "1e400 is too large for a number"),
        ("1" * 30, "is too large for a whole number"),
        ('{"a": 1, "b": {"c": 1, "c": 1}}', "the name 'c' stands twice in one table"),
        ("[" * 65 + "]" * 65, "lie too deep in each other"),
        ('["]]]]", "\\"[[[["]' + " " * 9 + "]", "Extra data"),
    ],
)
def test_what_two_readers_could_see_differently_is_refused(text, why):
    with pytest.raises(ValueError, match=why):
        parse(text.encode())


def test_brackets_in_texts_are_no_depth():
    assert parse(json.dumps(["[" * 500, "\\", '"']).encode()) == ["[" * 500, "\\", '"']

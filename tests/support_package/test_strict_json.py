"""JSON is parsed strictly: invalid numbers, and documents that parsers interpret differently, are refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.support import strict_json
from pytest_ckpt.support.strict_json import parse, read, read_lines

NUMBERS = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(DOCUMENTS)
def test_documents_written_by_json_are_read(document):
    assert parse(json.dumps(document).encode()) == document


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("NaN", "NaN is not a number of JSON"),
        ("[-Infinity]", "-Infinity is not a number of JSON"),
        ("1e400", "1e400 is too large for a number"),
        ("1" * 30, "is too large for a whole number"),
        ('{"a": 1, "b": {"c": 1, "c": 1}}', "the name 'c' appears twice in one table"),
        ("[" * 65 + "]" * 65, "lie too deep in each other"),
        ('["]]]]", "\\"[[[["]' + " " * 9 + "]", "Extra data"),
    ],
)
def test_ambiguous_json_is_refused(text, why):
    with pytest.raises(ValueError, match=why):
        parse(text.encode())


def test_brackets_in_texts_are_no_depth():
    assert parse(json.dumps(["[" * 500, "\\", '"']).encode()) == ["[" * 500, "\\", '"']


def test_a_name_that_is_no_text_in_utf8_is_refused_before_anything_is_made_of_it():
    with pytest.raises(ValueError, match="it is not UTF-8"):
        parse(b'{"\xff": 1}')


@pytest.mark.parametrize("piece", [b"{},", b"[],", b"1,"])
def test_more_values_than_any_document_has_are_refused_unread(piece):
    with pytest.raises(ValueError, match="it has more than 2,000,000 values"):
        parse(b"[" + piece * 2_000_001 + b"0]")


def test_a_file_that_is_far_too_large_is_not_read(tmp_path):
    with (tmp_path / "file").open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(OSError, match="far too large"):
        read(tmp_path / "file")


def test_lines_are_read_one_by_one_and_not_without_end(tmp_path, monkeypatch):
    file = tmp_path / "events.jsonl"
    file.write_bytes(b'{"a": 1}\n\n \n{"b": 2}')
    assert list(read_lines(file)) == [b'{"a": 1}\n', b'{"b": 2}']
    file.write_bytes(b"{}\n" * 250_001)
    with pytest.raises(ValueError, match="it has more than 250,000 lines"):
        list(read_lines(file))
    monkeypatch.setattr(strict_json, "_MAXIMUM_BYTES", 10)
    file.write_bytes(b"{}\n" + b"1" * 11)
    with pytest.raises(ValueError, match="line 2 is too long"):
        list(read_lines(file))
    with file.open("wb") as hole:
        hole.truncate((256 << 20) + 1)
    with pytest.raises(OSError, match="far too large"):
        list(read_lines(file))

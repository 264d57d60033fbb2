"""Files of safetensors: the reader refuses invalid headers and indexes, and the library reads the engine's files."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.ranks.engines.safetensors_files import INDEX, index_of, places_in, weight_map
from pytest_ckpt.sizing.models import Tensor, layout
from tests.support.bare_safetensors import load_bare, save_bare
from tests.support.safetensors_files import SHARD, engine_of, expected_files, load, save, tensors_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
ONE = {"w": Tensor(name="w", dtype="float16", elements=3)}
ENTRY = {"dtype": "F16", "shape": [3], "data_offsets": [0, 6]}


@given(JSON, JSON)
def test_a_header_of_anything_else_is_refused(entry, metadata):
    for header in (entry, {"__metadata__": metadata, "w": ENTRY}, {"__metadata__": {"format": "pt"}, "w": entry}):
        if header != {"__metadata__": {"format": "pt"}, "w": ENTRY}:
            with pytest.raises(ValueError, match=r"header|tensor"):
                places_in(json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode(), ONE)


@pytest.mark.parametrize(
    ("header", "expected_text"),
    [
        (b"[" * 100_000, "nested"),
        (b'{"__metadata__":{"format":"pt"},"w":{"dtype":"F16","shape":[3],"data_offsets":[0,6]}}\n', "not what"),
        (b'{"__metadata__":{"format":"pt"},"w":{"dtype":"F16","shape":[3],"data_offsets":[0, 6]}}', "not what"),
        (b'{"__metadata__":{"format":"pt"},"w":{"dtype":"F16","shape":[3],"data_offsets":[1,6]}}', "not the tensor"),
        (b'{"__metadata__":{"format":"pt"}}', "different tensors"),
    ],
)
def test_a_header_that_does_not_match_the_tensors_is_refused_with_the_reason(header, expected_text):
    with pytest.raises(ValueError, match=expected_text):
        places_in(header, ONE)


@given(JSON)
def test_an_index_of_anything_else_is_refused(found):
    if not (isinstance(found, dict) and isinstance(found.get("weight_map"), dict)):
        with pytest.raises(ValueError, match="weight_map"):
            weight_map(json.dumps(found).encode())


def test_the_library_alone_finds_every_tensor_by_the_index(tmp_path):
    """A program that uses only the library loads the files of two ranks. The index names the file of each tensor."""
    whole = layout("llama3-8b", mode="open", processes=2, scale=1e-5)
    directory, scratch = tmp_path / "saved", tmp_path / "scratch"
    scratch.mkdir()
    for shard in whole.ranks():
        save(directory, engine=engine_of(shard))
    wanted = {
        name: (kind, data, place)
        for shard in whole.ranks()
        for place, tensors in tensors_of(shard).items()
        for name, (kind, data) in tensors.items()
    }
    assert load_bare(directory, scratch) == wanted


def test_a_file_saved_by_the_library_alone_is_identical_and_can_be_loaded(tmp_path):
    directory, scratch = tmp_path / "bare", tmp_path / "scratch"
    directory.mkdir()
    scratch.mkdir()
    save_bare(directory, scratch, tensors_of())
    assert {path.name: path.read_bytes() for path in directory.iterdir()} | {INDEX: index_of(SHARD)} == expected_files()
    (directory / INDEX).write_bytes(index_of(SHARD))
    loaded, check = load(directory)
    assert loaded == check.bytes_checked == SHARD.bytes
    assert check.faults == ()

"""Containers: laid out without their bytes, they are files of torch.save to torch.load and to anyone who reads zip."""

from __future__ import annotations

import io
import itertools
import json
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.launching import layout_cache as launches
from pytest_ckpt.ranks.content.generator import Content, Place
from pytest_ckpt.ranks.engines.stream import lay_out as laying_out
from pytest_ckpt.ranks.engines.stream.container import FileImage
from pytest_ckpt.ranks.engines.stream.container_layout import Container, container_key, pack, unpack
from pytest_ckpt.ranks.engines.stream.lay_out import ALIGNMENT_BYTES, lay_out, read_container
from pytest_ckpt.sizing.models import MODELS, Tensor, layout

CONTENT = Content(7)
RANK, FIRST_TENSOR = 3, 11
# Most tensors have one element at this scale, and hardly any fills its last block.
SCALE = 1 / 100_000
LAYOUTS = [
    layout(m.name, mode=mode, processes=3 * m.model_parallel if mode == "open" else None, scale=SCALE)
    for m in MODELS.values()
    for mode in ("full", "subset", "open")
]
of_layouts = pytest.mark.parametrize("shards", LAYOUTS, ids=lambda shards: shards.subject)

ODD = tuple(
    Tensor(name=f"odd/{number}", dtype=dtype, elements=elements)
    for number, (dtype, elements) in enumerate(
        [("float16", 1), ("float32", 1), ("float16", 2047), ("float32", 1024), ("float32", 1025), ("float16", 9_999)]
    )
)
tensor_lists = st.lists(
    st.tuples(st.sampled_from(["float16", "float32"]), st.integers(1, 5_000)), min_size=1, max_size=6
).map(lambda shapes: tuple(Tensor(name=f"t/{n}", dtype=d, elements=e) for n, (d, e) in enumerate(shapes)))


def kinds(shards):
    """Return the tensors of each kind of file that a layout has."""
    return {container_key(f.tensors): f.tensors for rank in shards.ranks() for f in rank.files}


def image_of(container, checkpoint=1):
    image = FileImage(container, CONTENT, RANK, FIRST_TENSOR)
    image.become(checkpoint)
    return image


def made(container, start=0, stop=None, checkpoint=1):
    out = np.full((container.bytes if stop is None else stop) - start, 0xAA, np.uint8)
    image_of(container, checkpoint).make(out, start)
    return out


def expected(number, tensor, checkpoint=1):
    place = Place(checkpoint=checkpoint, rank=RANK, tensor=FIRST_TENSOR + number)
    return CONTENT.expected(place, 0, tensor.bytes)


def is_a_file_of_torch(data, container, tensors):
    """Check a file with everybody who reads such files: torch's offsets, torch's tensors, zip's checksums."""
    with FakeTensorMode():
        holes = torch.load(io.BytesIO(data), weights_only=True)
    offsets = [holes[t.name].untyped_storage()._checkpoint_offset for t in tensors]
    assert offsets == [r.offset for r in container.records]
    state = torch.load(io.BytesIO(data), weights_only=True)
    assert list(state) == [t.name for t in tensors]
    for number, tensor in enumerate(tensors):
        seen = state[tensor.name]
        assert (str(seen.dtype), tuple(seen.shape)) == (f"torch.{tensor.dtype}", (tensor.elements,))
        assert np.array_equal(seen.view(torch.uint8).numpy(), expected(number, tensor))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None


@pytest.fixture(scope="module")
def laid_out():
    """The containers of all layouts, as a launch gets them: made by one other process and sent as JSON."""
    return {c.key: c for c in launches.lay_out(LAYOUTS)}


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    return lay_out(ODD, str(tmp_path_factory.mktemp("odd")))


@of_layouts
def test_torch_load_reads_every_kind_of_file_of_every_layout(laid_out, shards):
    for key, tensors in kinds(shards).items():
        is_a_file_of_torch(made(laid_out[key]).tobytes(), laid_out[key], tensors)


@of_layouts
def test_pieces_and_records_cover_every_byte_once(laid_out, shards):
    for key, tensors in kinds(shards).items():
        container = laid_out[key]
        spans = [(p.offset, p.offset + len(unpack(p.data))) for p in container.pieces]
        spans += [(r.offset, r.offset + r.bytes) for r in container.records]
        at = 0
        for start, stop in sorted(spans):
            assert start == at
            at = stop
        assert at == container.bytes
        assert [r.bytes for r in container.records] == [t.bytes for t in tensors]


@of_layouts
def test_tensors_begin_at_blocks(laid_out, shards):
    for key in kinds(shards):
        assert {r.offset % ALIGNMENT_BYTES for r in laid_out[key].records} == {0}


@settings(deadline=None, max_examples=25)
@given(tensors=tensor_lists)
def test_torch_load_reads_files_of_tensors_of_any_size(tmp_path_factory, tensors):
    container = lay_out(tensors, str(tmp_path_factory.getbasetemp()))
    is_a_file_of_torch(made(container).tobytes(), container, tensors)


@settings(deadline=None, max_examples=25)
@given(tensors=tensor_lists, checkpoint=st.integers(2, 9))
def test_the_layout_of_a_file_that_torch_saved_gives_its_bytes(tmp_path_factory, tensors, checkpoint):
    file = tmp_path_factory.getbasetemp() / "of-torch.pt"
    dtypes = {"float16": torch.float16, "float32": torch.float32}
    state = {
        t.name: torch.from_numpy(expected(number, t, checkpoint)).view(dtypes[t.dtype])
        for number, t in enumerate(tensors)
    }
    with file.open("wb") as out:
        torch.save(state, out)
    container = read_container(file, tensors)
    assert made(container, checkpoint=checkpoint).tobytes() == file.read_bytes()


@settings(deadline=None)
@given(data=st.data())
def test_a_file_is_the_same_however_it_is_cut(odd, data):
    cuts = data.draw(st.sets(st.integers(0, odd.bytes), max_size=20))
    edges = sorted({0, *cuts, odd.bytes})
    parts = [made(odd, start, stop) for start, stop in itertools.pairwise(edges)]
    assert np.array_equal(np.concatenate(parts), made(odd))


@pytest.mark.parametrize("size", [512, 4096, 5000, 64 << 10, 1 << 20])
def test_a_file_that_was_made_in_requests_of_one_size_is_read_by_torch(odd, size):
    parts = [made(odd, start, min(start + size, odd.bytes)) for start in range(0, odd.bytes, size)]
    is_a_file_of_torch(b"".join(part.tobytes() for part in parts), odd, ODD)


@settings(deadline=None)
@given(data=st.data(), beyond=st.integers(1, 20_000))
def test_behind_the_end_of_a_file_come_zeros(odd, data, beyond):
    start = data.draw(st.integers(max(0, odd.bytes - 20_000), odd.bytes + 5_000))
    stop = max(start, odd.bytes) + beyond
    whole = np.concatenate([made(odd), np.zeros(stop, np.uint8)])
    assert np.array_equal(made(odd, start, stop), whole[start:stop])


@settings(deadline=None)
@given(data=st.data())
def test_what_is_read_is_cut_where_tensors_begin_and_end(odd, data):
    start = data.draw(st.integers(0, odd.bytes))
    stop = data.draw(st.integers(start, odd.bytes))
    image = image_of(odd)
    whole, at = made(odd), start
    for part, number, place, offset, piece in image.parts(whole[start:stop], start):
        assert np.array_equal(part, whole[at : at + len(part)])
        if number < 0:
            assert place is None
            assert np.array_equal(part, piece)
        else:
            assert piece is None
            assert place == Place(checkpoint=1, rank=RANK, tensor=FIRST_TENSOR + number)
            assert at == odd.records[number].offset + offset
            assert at + len(part) <= odd.records[number].offset + odd.records[number].bytes
        at += len(part)
    assert at == stop


@given(data=st.data())
def test_tensor_bytes_add_up_over_any_cut(odd, data):
    image = image_of(odd)
    middle = data.draw(st.integers(0, odd.bytes))
    assert image.tensor_bytes(0, odd.bytes) == sum(t.bytes for t in ODD)
    assert image.tensor_bytes(0, middle) + image.tensor_bytes(middle, odd.bytes) == sum(t.bytes for t in ODD)


def test_another_checkpoint_has_other_tensors_and_checksums_and_the_same_shape(odd):
    first, second = made(odd, checkpoint=1), made(odd, checkpoint=2)
    assert first.tobytes() != second.tobytes()
    image = image_of(odd, 1)
    image.become(2)
    image.become(1)
    out = np.empty(odd.bytes, np.uint8)
    image.make(out, 0)
    assert np.array_equal(out, first)
    differing = set(np.flatnonzero(first != second).tolist())
    for record in odd.records:
        differing -= set(range(record.offset, record.offset + record.bytes))
        differing -= {place + byte for place in record.checksum_offsets for byte in range(4)}
    assert not differing


def test_a_wrong_byte_in_a_tensor_is_seen_by_whoever_checks_the_file(odd):
    data = made(odd)
    data[odd.records[2].offset] ^= 1
    with zipfile.ZipFile(io.BytesIO(data.tobytes())) as archive:
        assert archive.testzip() == "archive/data/2"


@pytest.mark.parametrize("model", ["llama3-8b", "llama3-1t"])
def test_files_of_full_size_are_laid_out_without_memory_or_space(tmp_path, monkeypatch, model):
    """The optimizer of llama3-8b for one process has 96 GB in one file."""
    one = layout(model, mode="open", processes=MODELS[model].model_parallel).rank(0)
    file = max(one.files, key=lambda f: f.bytes)
    blocks = []

    def look(path, tensors):
        blocks.append(sum(p.stat().st_blocks for p in tmp_path.iterdir()))
        return read_container(path, tensors)

    monkeypatch.setattr(laying_out, "read_container", look)
    lay_out(ODD, str(tmp_path))
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is resident now
    before = memory_bytes("VmRSS")
    container = lay_out(file.tensors, str(tmp_path))
    assert memory_bytes("VmHWM") - before < 32 << 20
    assert blocks[-1] * 512 < 1 << 20
    assert list(tmp_path.iterdir()) == []
    assert container.bytes > sum(r.bytes for r in container.records) == file.bytes > 12e9
    assert len(json.dumps(to_plain(container))) < 1 << 20


def memory_bytes(name):
    """Return what the kernel counts of this process: VmRSS is resident now, VmHWM was the most."""
    (kib,) = re.findall(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(kib) * 1024


def test_a_container_crosses_to_the_ranks_as_it_is(odd):
    assert from_plain(Container, json.loads(json.dumps(to_plain(odd)))) == odd


def test_a_launch_lays_each_kind_of_file_out_once(laid_out):
    wanted = {key for shards in LAYOUTS for key in kinds(shards)}
    assert set(laid_out) == wanted
    assert {c.key for c in laid_out.values()} == wanted


def test_what_torch_cannot_lay_out_is_told_by_its_own_words(monkeypatch, tmp_path):
    # Nothing that an earlier run has kept.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(launches, "to_plain", lambda _: [[{"name": "a", "dtype": "float8", "elements": 1}]])
    with pytest.raises(RuntimeError, match=r"could not be laid out: [\s\S]*float8"):
        launches.lay_out(LAYOUTS[:1])


@pytest.mark.parametrize("change", [{"name": "a/1"}, {"dtype": "float32"}, {"elements": 6}])
def test_another_tensor_is_another_kind_of_file(change):
    tensor = Tensor(name="a/0", dtype="float16", elements=5)
    other = Tensor(**{"name": "a/0", "dtype": "float16", "elements": 5, **change})
    assert container_key((tensor,)) != container_key((other,))
    assert container_key((tensor,)) != container_key((tensor, other))
    assert container_key((tensor,)) == container_key((Tensor(name="a/0", dtype="float16", elements=5),))


@given(data=st.binary(max_size=500))
def test_what_was_packed_is_unpacked(data):
    assert unpack(pack(data)) == data

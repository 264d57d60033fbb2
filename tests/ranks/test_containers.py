"""Files in torch's format that are written without torch: the same bytes as torch.save, and valid zip files."""

from __future__ import annotations

import io
import itertools
import re
import zipfile
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ckpt.ranks.content import Content, TensorKey
from pytest_ckpt.ranks.engines.stream import container_layout
from pytest_ckpt.ranks.engines.stream.container import FileImage
from pytest_ckpt.ranks.engines.stream.container_layout import ALIGNMENT_BYTES, container_of, identity_half
from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.sizing.models import Tensor, layout

PINNED = re.findall(r"^torch==(.+)$", Path(__file__).parents[2].joinpath("constraints.txt").read_text(), re.MULTILINE)
CONTENT = Content(7)
RANK, FIRST_TENSOR = 3, 11
# At this scale most tensors have one element, and almost none fills its last block.
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
    """Return the set of different file contents in a layout. The content of a file is its tuple of tensors."""
    return {f.tensors for rank in shards.ranks() for f in rank.files}


def image_of(container, checkpoint=1):
    image = FileImage(container, CONTENT, RANK, FIRST_TENSOR)
    image.become(checkpoint)
    return image


def image_bytes(container, start=0, stop=None, checkpoint=1):
    out = np.full((container.bytes if stop is None else stop) - start, 0xAA, np.uint8)
    image_of(container, checkpoint).make(out, start)
    return out


def expected(number, tensor, checkpoint=1):
    place = TensorKey(checkpoint=checkpoint, rank=RANK, tensor=FIRST_TENSOR + number)
    return CONTENT.expected(place, 0, tensor.bytes)


def check_torch_file(data, container, tensors):
    """Check that torch loads the tensors of a file from the expected offsets, and that the zip checksums are right."""
    import torch  # noqa: PLC0415 - every worker collects this module, and torch takes seconds
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415

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
def odd_container():
    return container_of(ODD)


@of_layouts
def test_pieces_and_records_cover_every_byte_once(shards):
    for tensors in kinds(shards):
        container = container_of(tensors)
        spans = [(p.offset, p.offset + len(p.data)) for p in container.pieces]
        spans += [(r.offset, r.offset + r.bytes) for r in container.records]
        at = 0
        for start, stop in sorted(spans):
            assert start == at
            at = stop
        assert at == container.bytes
        assert [r.bytes for r in container.records] == [t.bytes for t in tensors]


@of_layouts
def test_tensors_begin_at_blocks(shards):
    for tensors in kinds(shards):
        assert {r.offset % ALIGNMENT_BYTES for r in container_of(tensors).records} == {0}


of_the_pinned_torch = pytest.mark.skipif(
    version("torch").split("+")[0] not in PINNED, reason="another torch than the one whose bytes ours are"
)


def difference(tensors, *alignment):
    from pytest_ckpt.ranks.engines import container_check  # noqa: PLC0415 - every worker collects this module, and torch takes seconds

    return container_check.difference(tensors, *alignment)


@of_the_pinned_torch
@of_layouts
def test_every_kind_of_file_of_every_layout_has_the_bytes_of_torch_save(shards):
    for tensors in kinds(shards):
        assert not difference(tensors)


@of_the_pinned_torch
@settings(deadline=None, max_examples=100)
@given(tensors=tensor_lists, alignment=st.sampled_from([64, 512, 4096, 8192]))
def test_files_of_tensors_of_any_size_have_the_bytes_of_torch_save(tensors, alignment):
    assert not difference(tensors, alignment)


# At these counts a pickle's numbers need more bytes, its items come in batches, or the set of records' names grows.
@of_the_pinned_torch
@pytest.mark.parametrize(
    "count", [1, 2, 7, 8, 22, 23, 24, 25, 52, 53, 54, 120, 121, 122, 534, 535, 536, 999, 1000, 1001, 1023]
)
def test_files_of_many_tensors_have_the_bytes_of_torch_save(count):
    assert not difference([Tensor(name=f"{n}" + "-" * (n % 30 + 2), dtype="float16", elements=1) for n in range(count)])


def in_blocks(*shapes):
    return tuple(Tensor(name=f"t/{n}", dtype=dtype, elements=count) for n, (dtype, count) in enumerate(shapes))


GIB_4, MIB = 4 << 30, 1 << 20


@of_the_pinned_torch
@pytest.mark.parametrize(
    "tensors",
    [
        in_blocks(("float32", GIB_4 // 4 - 1), ("float16", MIB)),  # the largest size that 32 bits hold
        in_blocks(("float32", GIB_4 // 4), ("float16", MIB + 1)),
        in_blocks(("float16", MIB), ("float16", GIB_4 // 2 + 1), ("float32", MIB + 7), ("float32", GIB_4 // 4 + 3)),
        in_blocks(("float32", GIB_4 // 4 - 8000), *[("float16", MIB)] * 9),  # offsets pass 32 bits, sizes do not
        in_blocks(*[("float32", 3 << 28)] * 3, ("float32", 9 << 30)),  # a number of elements beyond 32 bits
    ],
    ids=["below", "at", "beyond", "offsets", "elements"],
)
def test_headers_around_tensors_of_gigabytes_have_the_bytes_of_torch_save(tensors, tmp_path, monkeypatch):
    """All bytes outside of the tensors equal the bytes of torch.save, even if sizes and offsets need more than 32 bits.

    The computation of CRC-32 is switched off, so that neither torch nor the kernel reads the tensors.
    """
    import torch  # noqa: PLC0415 - every worker collects this module, and torch takes seconds
    from torch.utils.serialization import config  # noqa: PLC0415

    monkeypatch.setattr(container_layout, "zlib", SimpleNamespace(crc32=lambda _data: 0))
    container = container_of(tensors)
    theirs = _Written()
    # Tensors of any size that are mapped from a file without blocks need no memory, and no reserved memory.
    hole = str(tmp_path / "hole")
    state = {
        t.name: torch.from_file(hole, shared=True, size=t.elements, dtype=getattr(torch, t.dtype)) for t in tensors
    }
    computes = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        with config.patch("save.storage_alignment", ALIGNMENT_BYTES):
            torch.save(state, theirs)
    finally:
        torch.serialization.set_crc32_options(computes)
    pieces = {p.offset: bytearray(p.data) for p in container.pieces}
    start = max(offset for offset in pieces if offset <= container.identity.offset)
    half = identity_half(container, [0] * len(tensors))
    end = container.identity.offset - start + container.identity.bytes
    pieces[start][end - len(half) : end] = half
    assert theirs.pieces == pieces
    assert theirs.at == container.bytes


class _Written(io.RawIOBase):
    """A file that counts all bytes written to it, and keeps the bytes of writes below 1 MiB."""

    def __init__(self):
        self.at, self.pieces, self._new = 0, {}, True

    def writable(self):
        return True

    def write(self, data):
        size = len(data)
        if size >= MIB:
            self._new = True
        else:
            if self._new:
                self.pieces[self.at], self._new = bytearray(), False
            self.pieces[max(self.pieces)] += bytes(data)
        self.at += size
        return size


def test_another_version_of_torch_is_compared_and_its_difference_named(monkeypatch):
    from pytest_ckpt.ranks.engines import container_check  # noqa: PLC0415 - every worker collects this module, and torch takes seconds

    assert container_check.differences() == "" or version("torch").split("+")[0] not in PINNED
    monkeypatch.setattr(container_layout, "_FORMAT", (".format_version", b"2"))
    assert "in the record archive/.format_version" in container_check.differences()
    assert container_check.main() == 1


@settings(deadline=None)
@given(data=st.data())
def test_a_file_is_the_same_however_it_is_cut(odd_container, data):
    cuts = data.draw(st.sets(st.integers(0, odd_container.bytes), max_size=20))
    edges = sorted({0, *cuts, odd_container.bytes})
    parts = [image_bytes(odd_container, start, stop) for start, stop in itertools.pairwise(edges)]
    assert np.array_equal(np.concatenate(parts), image_bytes(odd_container))


@pytest.mark.parametrize("size", [512, 4096, 5000, 64 << 10, 1 << 20])
def test_a_file_that_was_made_in_requests_of_one_size_is_read_by_torch(odd_container, size):
    parts = [
        image_bytes(odd_container, start, min(start + size, odd_container.bytes))
        for start in range(0, odd_container.bytes, size)
    ]
    check_torch_file(b"".join(part.tobytes() for part in parts), odd_container, ODD)


@settings(deadline=None)
@given(data=st.data(), beyond=st.integers(1, 20_000))
def test_behind_the_end_of_a_file_come_zeros(odd_container, data, beyond):
    start = data.draw(st.integers(max(0, odd_container.bytes - 20_000), odd_container.bytes + 5_000))
    stop = max(start, odd_container.bytes) + beyond
    whole = np.concatenate([image_bytes(odd_container), np.zeros(stop, np.uint8)])
    assert np.array_equal(image_bytes(odd_container, start, stop), whole[start:stop])


@settings(deadline=None)
@given(data=st.data())
def test_read_data_are_split_at_the_ends_of_tensors(odd_container, data):
    start = data.draw(st.integers(0, odd_container.bytes))
    stop = data.draw(st.integers(start, odd_container.bytes))
    image = image_of(odd_container)
    whole, at = image_bytes(odd_container), start
    for part, number, place, offset, piece in image.parts(whole[start:stop], start):
        assert np.array_equal(part, whole[at : at + len(part)])
        if number < 0:
            assert place is None
            assert np.array_equal(part, piece)
        else:
            assert piece is None
            assert place == TensorKey(checkpoint=1, rank=RANK, tensor=FIRST_TENSOR + number)
            assert at == odd_container.records[number].offset + offset
            assert at + len(part) <= odd_container.records[number].offset + odd_container.records[number].bytes
        at += len(part)
    assert at == stop


@given(data=st.data())
def test_tensor_bytes_add_up_over_any_cut(odd_container, data):
    image = image_of(odd_container)
    middle = data.draw(st.integers(0, odd_container.bytes))
    assert image.tensor_bytes(0, odd_container.bytes) == sum(t.bytes for t in ODD)
    assert image.tensor_bytes(0, middle) + image.tensor_bytes(middle, odd_container.bytes) == sum(t.bytes for t in ODD)


def test_another_checkpoint_has_other_tensors_and_checksums_and_the_same_shape(odd_container):
    first, second = image_bytes(odd_container, checkpoint=1), image_bytes(odd_container, checkpoint=2)
    assert first.tobytes() != second.tobytes()
    image = image_of(odd_container, 1)
    image.become(2)
    image.become(1)
    out = np.empty(odd_container.bytes, np.uint8)
    image.make(out, 0)
    assert np.array_equal(out, first)
    differing = set(np.flatnonzero(first != second).tolist())
    for record in (*odd_container.records, odd_container.identity):
        differing -= set(range(record.offset, record.offset + record.bytes))
        differing -= {place + byte for place in record.checksum_offsets for byte in range(4)}
    assert not differing


def test_a_wrong_byte_in_a_tensor_is_seen_by_whoever_checks_the_file(odd_container):
    data = image_bytes(odd_container)
    data[odd_container.records[2].offset] ^= 1
    with zipfile.ZipFile(io.BytesIO(data.tobytes())) as archive:
        assert archive.testzip() == "archive/data/2"


@pytest.mark.parametrize("model", ["llama3-8b", "llama3-1t"])
def test_files_of_full_size_are_laid_out_without_memory(model):
    """The layout of a full-size file needs less than 32 MiB of memory.

    The largest file is the optimizer of llama3-8b in one process, with 96 GB.
    """
    one = layout(model, mode="open", processes=MODELS[model].model_parallel).rank(0)
    file = max(one.files, key=lambda f: f.bytes)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from the current size
    before = memory_bytes("VmRSS")
    container = container_of(file.tensors)
    assert memory_bytes("VmHWM") - before < 32 << 20
    assert container.bytes > sum(r.bytes for r in container.records) == file.bytes > 12e9
    assert sum(len(p.data) for p in container.pieces) < 1 << 20


def memory_bytes(name):
    """Return the memory of this process in bytes. ``name`` is the field of the process status.

    Examples are VmRSS (resident) and VmHWM (highest resident).
    """
    (kib,) = re.findall(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(kib) * 1024

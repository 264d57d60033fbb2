"""Files that pass through a compression codec: loaded bytes, damage, and the compression ratio of the content."""

from __future__ import annotations

from pathlib import Path

import lz4.frame
import numpy as np
import pytest
import zstandard

from pytest_ckpt.facts.compression import FRAME_BYTES
from pytest_ckpt.facts.engines import built_in
from pytest_ckpt.ranks.content import BLOCK_PAGES, PAGE_BYTES, Content, TensorKey
from pytest_ckpt.ranks.engines.compressed import CompressedEngine, CompressingDraft, DecompressingCheckpoint
from pytest_ckpt.ranks.engines.factory import engine_maker
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.process.job import EngineOptions
from pytest_ckpt.sizing.models import dtypes, layout
from tests.support.one_rank import SingleRankGroup
from tests.support.posix_files import clock_of, committed_in, draft_in

SHARD = layout("llama3-8b", mode="full", scale=1 / 500).rank(0)
ENGINES = ("torch", "stream", "safetensors")
CODECS = ("zstd:1", "lz4:0")


def compressed(engine="stream", codec="zstd:1", **options):
    made = engine_maker(built_in(engine).make)(
        shard=SHARD, content=Content(7, tensors=dtypes(SHARD.files)), group=SingleRankGroup(), activity=Activity(),
        options=EngineOptions(request_bytes=256 << 10, **options),
    )  # fmt: skip
    return CompressedEngine(made, codec)


def save(directory: Path, engine, checkpoint=1):
    directory.mkdir(exist_ok=True)
    draft = draft_in(directory)
    engine.fill(checkpoint)
    engine.save(draft, clock_of())
    entries, proof = draft.seal()
    engine.release()
    return entries, proof


def restored(directory: Path, engine, checkpoint=1):
    """Load a checkpoint; return (number of loaded bytes, number of compared bytes, faults)."""
    loaded, checks = 0, []
    engine.expect(checkpoint)
    for step in range(engine.load_steps()):
        loaded += engine.load(committed_in(directory), step, clock_of())
        checks.append(engine.verify(checkpoint))
    engine.release()
    faults = [fault for check in checks for fault in check.faults]
    assert sum(check.fault_count for check in checks) >= len(faults)
    return loaded, sum(check.bytes_checked for check in checks), faults


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_byte_comes_back_and_is_compared(tmp_path, engine, codec):
    saver = compressed(engine, codec)
    entries, proof = save(tmp_path / "1", saver)
    assert restored(tmp_path / "1", compressed(engine, codec)) == (SHARD.bytes, SHARD.bytes, [])
    # Entries, engine and files agree on the stored size.
    stored = sum(file.stat().st_size for file in (tmp_path / "1").iterdir())
    assert stored == sum(entry.bytes for entry in entries) == saver.stored_bytes
    assert proof.files_returned == len(entries) == len(list((tmp_path / "1").iterdir()))
    assert saver.codec_seconds > 0


@pytest.mark.parametrize("engine", ENGINES)
def test_a_part_of_every_file_is_read_through_the_codec(tmp_path, engine):
    save(tmp_path / "1", compressed(engine))
    parts = [restored(tmp_path / "1", compressed(engine, part=part, parts=3)) for part in range(3)]
    assert sum(loaded for loaded, _, _ in parts) == SHARD.bytes
    assert not any(faults for _, _, faults in parts)


def test_content_is_stored_as_the_measured_state_was(tmp_path):
    """Generated content compresses to the same share of its size as the measured states of real jobs.

    With zstd, the share is 0.77 for 2-byte weights and 0.91 to 0.93 for 4-byte states. LZ4 does not compress the
    content.
    """
    content = Content(3, tensors=("float16", "float32", "uint8"))
    for tensor, expected in ((0, 0.77), (1, 0.92), (2, 1.0)):
        place = TensorKey(checkpoint=1, rank=0, tensor=tensor)
        data = content.expected(place, 0, 4 * BLOCK_PAGES * PAGE_BYTES).tobytes()
        blocks = [data[at : at + (1 << 20)] for at in range(0, len(data), 1 << 20)]
        for level in (1, 3):
            codec = zstandard.ZstdCompressor(level=level)
            assert sum(len(codec.compress(block)) for block in blocks) / len(data) == pytest.approx(expected, abs=0.03)
        assert sum(len(lz4.frame.compress(block)) for block in blocks) / len(data) == pytest.approx(1.0, abs=0.01)
    for engine in ENGINES:
        saver = compressed(engine)
        save(tmp_path / engine, saver)
        assert saver.stored_bytes / SHARD.bytes == pytest.approx(0.90, abs=0.01)


def test_compressible_pages_still_identify_their_place():
    tensors = ("float16", "float32", "float32")
    content = Content(9, tensors=tensors)
    for tensor in range(len(tensors)):
        place = TensorKey(checkpoint=5, rank=3, tensor=tensor)
        page = content.expected(place, 700 * PAGE_BYTES, PAGE_BYTES)
        assert content.origin(page) == (place, 700)
        newer = content.expected(TensorKey(checkpoint=6, rank=3, tensor=tensor), 700 * PAGE_BYTES, PAGE_BYTES)
        assert not np.array_equal(page, newer)


def flip(file: Path, offset: int) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= 0x10
    file.write_bytes(data)


DAMAGE = {
    "a bit of a frame": lambda file: flip(file, 100_000),
    "the head of a frame": lambda file: flip(file, 1),
    "a bit of the table": lambda file: flip(file, -60),
    "a bit of the tail": lambda file: flip(file, -20),
    "a page of zeros": lambda file: file.write_bytes(file.read_bytes()[:4096] + bytes(4096) + file.read_bytes()[8192:]),
    "an end that is missing": lambda file: file.write_bytes(file.read_bytes()[:-5000]),
    "more bytes": lambda file: file.write_bytes(file.read_bytes() + b"more"),
    "zeros alone": lambda file: file.write_bytes(bytes(file.stat().st_size)),
    "nothing": lambda file: file.write_bytes(b""),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(("engine", "codec"), [(engine, "zstd:1") for engine in ENGINES] + [("stream", "lz4:0")])
def test_damage_in_a_compressed_file_is_found(tmp_path, engine, codec, damage):
    save(tmp_path / "1", compressed(engine, codec))
    file = max((tmp_path / "1").iterdir(), key=lambda file: file.stat().st_size)
    DAMAGE[damage](file)
    loaded, checked, faults = restored(tmp_path / "1", compressed(engine, codec))
    assert faults, (loaded, checked)
    assert {fault.file for fault in faults} == {file.name}
    assert faults[0].kind == "unreadable"
    assert "damaged" in faults[0].detail or "cannot be decompressed" in faults[0].detail


def test_an_older_file_in_the_place_of_a_newer_one_is_stale(tmp_path):
    save(tmp_path / "1", compressed())
    save(tmp_path / "2", compressed(), checkpoint=2)
    for file in (tmp_path / "1").iterdir():
        (tmp_path / "2" / file.name).write_bytes(file.read_bytes())
    _, _, faults = restored(tmp_path / "2", compressed(), checkpoint=2)
    assert "stale" in {fault.kind for fault in faults}


def test_a_draft_with_compression_gives_no_path_to_write_to(tmp_path):
    engine = compressed()
    draft = CompressingDraft(draft_in(tmp_path), engine._codec, engine._count)
    with pytest.raises(NotImplementedError):
        draft.location()


@pytest.mark.parametrize("sizes", [(1, 70, FRAME_BYTES, 3 * FRAME_BYTES + 5, 9), (0,), (FRAME_BYTES,), ()])
def test_a_file_is_what_was_written_however_it_was_cut(tmp_path, sizes):
    engine, data = compressed(), np.random.default_rng(1).bytes(sum(sizes))
    sink = CompressingDraft(draft_in(tmp_path), engine._codec, engine._count).create("a", None)
    at = 0
    for size in sizes:
        assert sink.write(data[at : at + size]) == size
        at += size
    assert sink.finish().bytes == len(data)
    file = DecompressingCheckpoint(committed_in(tmp_path), engine._codec, engine._note).file("a")
    assert file.size == len(data)
    assert file.read(-1) == data
    for at in (0, 70, FRAME_BYTES + 1):
        file.seek(at)
        assert file.read(100) == data[at : at + 100]
    file.close()
    assert not engine._damage

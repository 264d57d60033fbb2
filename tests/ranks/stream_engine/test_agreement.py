"""The engine stream writes and reads the same files as the engine torch, for any request size."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ckpt.ranks.content import PAGE_BYTES
from pytest_ckpt.ranks.engines.protocol import Comparison
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.sizing.models import layout
from tests.support.posix_files import clock_of, committed_in, draft_in
from tests.support.streaming import (
    ODD,
    REQUEST,
    by_torch,
    bytes_of,
    everything,
    load,
    open_files,
    save,
    shard_of,
    streaming,
)

SMALL_SCALE = 1 / 10_000
LAYOUTS = [
    layout(m.name, mode=mode, processes=3 * m.model_parallel if mode == "open" else None, scale=SMALL_SCALE)
    for m in MODELS.values()
    for mode in ("full", "subset", "open")
]
# torch.save aligns tensors to this number of bytes if no other alignment is set.
OF_TORCH = 64


def different_ranks(shards):
    """Return up to three ranks of a layout. The files of these ranks contain different tensors."""
    ranks = list({tuple(f.tensors for f in r.files): r for r in shards.ranks()}.values())
    return {r.rank: r for r in (ranks[0], ranks[len(ranks) // 2], ranks[-1])}.values()


@pytest.mark.parametrize("shards", LAYOUTS, ids=lambda shards: shards.subject)
def test_each_engine_loads_the_checkpoint_of_the_other(tmp_path, shards):
    for rank in different_ranks(shards):
        ours, theirs = tmp_path / f"stream-{rank.rank}", tmp_path / f"torch-{rank.rank}"
        ours.mkdir()
        theirs.mkdir()
        save(streaming(rank), ours, checkpoint=2)
        save(by_torch(rank), theirs, checkpoint=2)
        assert {p.name for p in ours.iterdir()} == {p.name for p in theirs.iterdir()} == {f.name for f in rank.files}
        # In torch's files, tensors have other offsets. If an engine had saved only some tensors, fewer bytes would come
        # back.
        assert load(by_torch(rank), ours, checkpoint=2) == everything(rank)
        assert load(streaming(rank), ours, checkpoint=2) == everything(rank)
        assert load(streaming(rank, alignment=OF_TORCH), theirs, checkpoint=2) == everything(rank)


def test_files_of_many_requests_are_those_of_the_torch_engine(tmp_path):
    rank = layout("llama3-8b", mode="open", processes=2, scale=1 / 1000).rank(1)
    engine = streaming(rank, request=4 << 20)
    save(engine, tmp_path)
    assert load(engine, tmp_path) == everything(rank)
    torch_engine = by_torch(rank)
    assert load(torch_engine, tmp_path) == everything(rank)
    for file in tmp_path.iterdir():
        file.unlink()
    save(torch_engine, tmp_path, checkpoint=2)
    engine = streaming(rank, alignment=OF_TORCH, request=4 << 20)
    assert load(engine, tmp_path, checkpoint=2) == everything(rank)


@settings(deadline=None, max_examples=15)
@given(
    files=st.lists(
        st.lists(st.tuples(st.sampled_from(["float16", "float32"]), st.integers(1, 70_000)), min_size=1, max_size=4),
        min_size=1,
        max_size=3,
    ),
    request=st.sampled_from([1, 2, 3, 16, 256]).map(lambda n: n * (64 << 10)),
    depth=st.integers(1, 16),
)
def test_tensors_of_any_size_come_back_from_either_engine(files, request, depth):
    shard = shard_of(1, *files)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        save(streaming(shard, request=request, depth=depth), directory)
        assert load(by_torch(shard), directory) == everything(shard)
        assert load(streaming(shard, request=request, depth=depth), directory) == everything(shard)


@pytest.mark.parametrize("request_kib", [64, 192, 1024, 16384])
@pytest.mark.parametrize("depth", [1, 3, 16])
def test_request_and_depth_change_no_byte_of_a_file(tmp_path, expected_files, request_kib, depth):
    save(streaming(ODD, request=request_kib << 10, depth=depth), tmp_path)
    assert bytes_of(tmp_path) == expected_files


def test_as_many_requests_are_in_flight_as_were_requested(tmp_path):
    """With a depth of 48, a rank creates a buffer for each of 48 requests in flight."""
    shard = shard_of(0, [("float32", 14 << 20)])
    engine = streaming(shard, request=1 << 20, depth=48)
    save(engine, tmp_path)
    assert load(engine, tmp_path) == everything(shard)
    assert engine.facts()["requests"] == "1 MiB, 48 in flight for each rank"
    assert engine.facts()["buffers"].startswith("54.5 MB a rank, ")


def test_a_save_counts_its_files_and_fsyncs_and_times_its_phases(tmp_path):
    proof, clock = save(streaming(ODD), tmp_path)
    assert (proof.files_attempted, proof.files_returned) == (3, 3)
    assert (proof.directories_attempted, proof.directories_returned) == (1, 1)
    assert set(clock.phases) == {"open", "write", "fsync", "close", "directory"}


def test_every_byte_that_is_moved_is_progress(tmp_path):
    activity = Activity()
    clock = clock_of(activity)
    streaming(ODD, depth=1).save(draft_in(tmp_path, clock), clock)
    assert activity.bytes_done >= sum(file.stat().st_size for file in tmp_path.iterdir())


def test_files_that_are_there_already_are_not_written_over(tmp_path):
    (tmp_path / ODD.files[1].name).write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        save(streaming(ODD), tmp_path)
    assert (tmp_path / ODD.files[1].name).read_bytes() == b"mine"


def test_a_rank_that_has_read_all_has_nothing_to_do_in_later_steps(saved):
    engine = streaming(ODD)
    assert load(engine, saved) == everything(ODD)
    assert engine.load(committed_in(saved), engine.load_steps(), clock_of()) == 0
    assert engine.verify(1) == Comparison(bytes_checked=0, fault_count=0, faults=())


@pytest.mark.parametrize("checkpoint", [2, 3])
def test_files_of_another_checkpoint_are_stale_in_every_page(saved, checkpoint):
    _, _, faults = load(streaming(ODD), saved, checkpoint)
    assert {f.kind for f in faults if f.bytes == PAGE_BYTES} <= {"stale"}
    assert any(f.detail.startswith("the page is from checkpoint 1 ") for f in faults)


@pytest.mark.parametrize("size", [1, 3 * REQUEST])
def test_no_descriptor_stays_open(saved, size):
    shard = shard_of(2, [("float32", size)])
    before = open_files()
    engine = streaming(shard)
    directory = saved / "other"
    directory.mkdir()
    save(engine, directory)
    load(engine, directory)
    engine.load(committed_in(directory), 0, clock_of())
    engine.release()
    assert open_files() == before

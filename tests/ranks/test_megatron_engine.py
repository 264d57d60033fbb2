"""The engine megatron with one rank: its files, system calls and commit, and the detection of failures."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator

import pytest

from pytest_ckpt.facts.file_rules import MEGATRON_FILES
from pytest_ckpt.ranks.content import Content, TensorKey
from pytest_ckpt.ranks.engines.factory import engine_maker
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.process.job import EngineOptions
from pytest_ckpt.sizing.files import files_of, shard_files
from pytest_ckpt.sizing.models import layout
from tests.support.bare_dcp import load_bare
from tests.support.one_rank import SingleRankGroup
from tests.support.posix_files import (
    CHECKPOINT,
    assert_each_checkpoint_loads,
    clock_of,
    committed_in,
    load,
    save,
)
from tests.support.traced_jobs import calls_by_file, need_strace, traced_save

WHOLE = layout("llama3-8b", mode="open", processes=1, scale=1e-5)
SHARD = WHOLE.rank(0)
LARGE = ("__0_0.distcp", "__0_1.distcp")
SMALL = ("common.pt", "metadata.json", "latest_checkpointed_iteration.txt")
ALL = {*LARGE, *SMALL, ".metadata"}
# Bytes of a tensor's small zip file before and after its data, as torch 2.13.0 writes them.
HEAD_BYTES, MAXIMUM_TAIL_BYTES = 704, 900


class OneRank(SingleRankGroup):
    def largest(self, value):
        return value


@pytest.fixture
def engine() -> Iterator[object]:
    make = engine_maker("pytest_ckpt.ranks.engines.megatron:make")
    made = make(shard=SHARD, content=Content(7), group=OneRank(), activity=Activity(), options=EngineOptions())
    yield made
    made.release()


def test_a_rank_has_two_files_of_like_size_and_the_first_has_the_small_ones(engine, tmp_path):
    entries, proof, clock = save(engine, tmp_path)
    assert {entry.name for entry in entries} == {path.name for path in tmp_path.iterdir()} == ALL
    assert {file.name for file in files_of(SHARD, MEGATRON_FILES)} == ALL
    # The job syncs some files; the store syncs the others and counts them all.
    assert (proof.files_attempted, proof.files_returned, proof.directories_returned) == (6, 6, 1)
    planned = {file.name: file for file in shard_files(SHARD, MEGATRON_FILES)}
    for entry in entries:
        if entry.name in LARGE:
            file = planned[entry.name]
            beside = entry.bytes - file.bytes
            assert 0 < beside <= (HEAD_BYTES + MAXIMUM_TAIL_BYTES) * len(file.tensors)
    assert sum(file.bytes for file in planned.values()) == SHARD.bytes
    sizes = {entry.name: entry.bytes for entry in entries}
    assert (sizes["metadata.json"], json.loads((tmp_path / "metadata.json").read_text())["sharded_backend"]) == (
        119,
        "torch_dist",
    )
    assert 1000 < sizes["common.pt"] < 2000
    assert set(clock.phases) == {"open", "write", "fsync", "directory"}


def test_every_byte_comes_back_of_each_checkpoint(engine, tmp_path):
    assert_each_checkpoint_loads(engine, tmp_path, SHARD.bytes)


def test_another_checkpoint_in_its_place_is_found_in_its_large_and_small_files(engine, tmp_path):
    save(engine, tmp_path, 1)
    _, check = load(engine, tmp_path, 2)
    assert {fault.kind for fault in check.faults} >= {"stale", "foreign"}
    files = {fault.file for fault in check.faults}
    assert files >= {"common.pt", "latest_checkpointed_iteration.txt"}
    assert files & set(LARGE)


@pytest.mark.parametrize("name", SMALL)
def test_a_small_file_that_is_another_one_is_named(engine, tmp_path, name):
    save(engine, tmp_path)
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-1])
    loaded, check = load(engine, tmp_path)
    assert [(fault.kind, fault.file) for fault in check.faults] == [("foreign", name)]
    assert loaded == check.bytes_checked == SHARD.bytes


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_file_that_is_not_there_is_an_error_of_the_storage(engine, tmp_path, name):
    save(engine, tmp_path)
    (tmp_path / name).unlink()
    engine.load_steps()
    with pytest.raises(FileNotFoundError) as caught:
        engine.load(committed_in(tmp_path), 0, clock_of())
    assert caught.value.errno == errno.ENOENT


@pytest.mark.parametrize("name", LARGE)
def test_a_file_of_either_writer_that_has_grown_is_found(engine, tmp_path, name):
    save(engine, tmp_path)
    with (tmp_path / name).open("ab") as file:
        file.write(b"more")
    _, check = load(engine, tmp_path)
    assert [(fault.kind, fault.file) for fault in check.faults] == [("foreign", name)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("name", [*LARGE, "common.pt", "metadata.json"])
def test_an_error_of_any_writer_is_raised(engine, tmp_path, name):
    """An error in a thread of the library fails the save.

    The library itself ignores such an error. Its save would end normally, although data are missing.
    """
    (tmp_path / name).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        save(engine, tmp_path)
    assert caught.value.errno == errno.ENOSPC


@pytest.mark.thorough
@pytest.mark.parametrize("processes", [1, 2])
def test_the_bare_library_loads_what_was_saved(engine, tmp_path, processes):
    directory, scratch = tmp_path / "saved", tmp_path / "scratch"
    directory.mkdir()
    scratch.mkdir()
    save(engine, directory)
    loaded = load_bare(directory, scratch, processes)
    tensors = [tensor for file in SHARD.files for tensor in file.tensors]
    assert set(loaded) == {tensor.name for tensor in tensors}
    for number, tensor in enumerate(tensors):
        key = TensorKey(checkpoint=CHECKPOINT, rank=0, tensor=number)
        assert loaded[tensor.name] == Content(7).expected(key, 0, tensor.bytes).tobytes()


def test_the_calls_are_those_of_the_traced_library(tmp_path):
    """The engine's system calls are those in the table of docs/engines.md.

    The order of the files is common.pt, two large files, .metadata with a rename, metadata.json, and the file that
    names the latest step.
    """
    need_strace()
    made = calls_by_file(traced_save(tmp_path, "megatron", WHOLE))
    ours = [("open to read", 0), ("fsync", 0), ("close", 0)]
    tensors = {file.name: len(file.tensors) for file in shard_files(SHARD, MEGATRON_FILES)}
    for name in LARGE:
        calls = made[name]
        assert calls[-3:] == ours
        writes = [count for call, count in calls if call == "write"]
        assert [call for call, _ in calls[:-3]] == ["create", *["write"] * len(writes), "fsync", "close"]
        # Each tensor is a small zip file. A tensor of whole blocks is written together with the bytes before it.
        assert len(writes) <= 3 * tensors[name]
    for name in SMALL:
        # The job does not sync these files.
        assert [call for call, _ in made[name]] == ["create", "write", "close", *(call for call, _ in ours)]
    metadata = made[".metadata"]
    assert [call for call, _ in metadata if call != "write"][:4] == ["create", "fsync", "close", "rename"]
    order = [name for name in made if name in ALL]
    assert order[0] == "common.pt"
    assert set(order[1:3]) == set(LARGE)
    assert order[3:] == [".metadata", "metadata.json", "latest_checkpointed_iteration.txt"]

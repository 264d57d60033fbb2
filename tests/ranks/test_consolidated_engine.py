"""The engine safetensors-consolidated with one rank: its files, the loaded bytes, and the detection of damage."""

from __future__ import annotations

import errno
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_ckpt.facts.engines import built_in
from pytest_ckpt.facts.file_rules import CONSOLIDATED_FILES
from pytest_ckpt.ranks.content import Content, TensorKey
from pytest_ckpt.ranks.engines.factory import engine_maker
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.process.job import EngineOptions
from pytest_ckpt.sizing.files import consolidated_files, consolidating_bytes, files_of, largest_file_bytes, shard_files
from pytest_ckpt.sizing.models import layout
from tests.support.bare_safetensors import load_bare
from tests.support.one_rank import SingleRankGroup, area_in, as_one_rank
from tests.support.posix_files import (
    CHECKPOINT,
    assert_each_checkpoint_loads,
    clock_of,
    committed_in,
    draft_in,
    load,
    save,
)
from tests.support.traced_jobs import calls_by_file, need_strace, traced_save

WHOLE = layout("llama3-8b", mode="open", processes=1, scale=1e-5)
SHARD = WHOLE.rank(0)
SHARDS = [file.name for file in shard_files(SHARD, CONSOLIDATED_FILES)]
MADE = [file.name for file in consolidated_files(SHARD, CONSOLIDATED_FILES)]
INDEX = "model.safetensors.index.json"
# The file of the optimizer's first tensor, which is larger than a page.
LARGE = MADE[-2]


@pytest.fixture
def engine() -> Iterator[object]:
    make = engine_maker("pytest_ckpt.ranks.engines.consolidated:make")
    made = make(shard=SHARD, content=Content(7), group=SingleRankGroup(), activity=Activity(), options=EngineOptions())
    yield made
    made.release()


def test_the_shards_become_files_of_complete_tensors_and_all_are_made_durable(engine, tmp_path):
    entries, proof, clock = save(engine, tmp_path)
    assert {entry.name for entry in entries} == {path.name for path in tmp_path.iterdir()} == {*SHARDS, *MADE, INDEX}
    assert {file.name for file in files_of(SHARD, CONSOLIDATED_FILES)} == {entry.name for entry in entries}
    assert proof.files_attempted == proof.files_returned == len(entries)
    # All tensors twice, plus headers and the index.
    assert 2 * SHARD.bytes < sum(entry.bytes for entry in entries) < 2.2 * SHARD.bytes + 100_000
    assert set(clock.phases) == {"open", "write", "read", "fsync", "directory"}
    assert "only rank 0, in every save" in engine.facts()["consolidation"]


def test_the_consolidation_shows_what_it_moves(engine, tmp_path):
    """The bytes that a consolidation moves count as progress. A slow consolidation is therefore not ended as a hang."""
    engine.fill(CHECKPOINT)
    clock = clock_of()
    engine.save(draft_in(tmp_path, clock), clock)
    # Tensors are written as shards, read, and written again.
    assert clock.activity.bytes_done > 3 * SHARD.bytes


def test_every_byte_comes_back_of_each_checkpoint(engine, tmp_path):
    assert_each_checkpoint_loads(engine, tmp_path, SHARD.bytes)


def test_another_checkpoint_in_its_place_is_found(engine, tmp_path):
    save(engine, tmp_path, 1)
    _, check = load(engine, tmp_path, 2)
    assert "stale" in {fault.kind for fault in check.faults}
    assert {fault.file for fault in check.faults} <= set(MADE)


def test_a_load_reads_complete_tensors_and_no_shard(engine, tmp_path):
    save(engine, tmp_path)
    for name in SHARDS:
        (tmp_path / name).unlink()
    loaded, check = load(engine, tmp_path)
    assert (loaded, check.faults) == (SHARD.bytes, ())


@pytest.mark.parametrize(
    ("way", "kind"), [("zeros", "zeros"), ("header", "foreign"), ("longer", "foreign"), ("shorter", "short")]
)
def test_damage_of_a_consolidated_file_is_a_fault_of_it(engine, tmp_path, way, kind):
    save(engine, tmp_path)
    file = tmp_path / LARGE
    data = file.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    changed = {
        "zeros": data[:begin] + bytes(8192) + data[begin + 8192 :],
        "header": data.replace(b'"shape"', b'"Shape"', 1),
        "longer": data + b"more",
        "shorter": data[:-5],
    }[way]
    file.write_bytes(changed)
    loaded, check = load(engine, tmp_path)
    assert check.faults
    assert {fault.file for fault in check.faults} == {LARGE}
    assert kind in {fault.kind for fault in check.faults}
    assert (loaded == SHARD.bytes) is (way in {"zeros", "longer"})


@pytest.mark.parametrize(
    ("index", "kind", "loads"),
    [(b"{", "unreadable", False), (b"{}", "unreadable", False), (b'{"weight_map": {}}', "foreign", False),
     (None, "foreign", True)],
)  # fmt: skip
def test_an_index_by_which_a_job_finds_nothing_or_that_is_another_one_is_a_fault(engine, tmp_path, index, kind, loads):
    save(engine, tmp_path)
    file = tmp_path / INDEX
    # None: the index with an additional byte that does not change its meaning.
    file.write_bytes(file.read_bytes() + b"\n" if index is None else index)
    loaded, check = load(engine, tmp_path)
    assert [(fault.kind, fault.file) for fault in check.faults] == [(kind, INDEX)]
    assert loaded == (SHARD.bytes if loads else 0)


@pytest.mark.parametrize("name", [MADE[0], INDEX])
def test_a_file_that_is_not_there_is_an_error_of_the_storage(engine, tmp_path, name):
    save(engine, tmp_path)
    (tmp_path / name).unlink()
    engine.load_steps()
    with pytest.raises(FileNotFoundError):
        engine.load(committed_in(tmp_path), 0, clock_of())


@pytest.mark.parametrize("name", [SHARDS[0], INDEX])
def test_an_error_during_consolidation_is_the_error_of_the_save(engine, tmp_path, name):
    tmp_path.joinpath(name).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        save(engine, tmp_path)
    assert caught.value.errno == errno.ENOSPC


def test_the_bare_library_loads_the_consolidated_files_by_their_index(engine, tmp_path):
    directory, scratch = tmp_path / "saved", tmp_path / "scratch"
    directory.mkdir()
    scratch.mkdir()
    save(engine, directory)
    loaded = load_bare(directory, scratch, metadata=None, dimensions=2)
    tensors = [tensor for file in SHARD.files for tensor in file.tensors]
    assert set(loaded) == {tensor.name for tensor in tensors}
    assert {place for _, _, place in loaded.values()} == set(MADE)
    for number, tensor in enumerate(tensors):
        key = TensorKey(checkpoint=CHECKPOINT, rank=0, tensor=number)
        kind, data, _ = loaded[tensor.name]
        assert (kind, data) == (tensor.dtype, Content(7).expected(key, 0, tensor.bytes).tobytes())
    assert json.loads((directory / INDEX).read_text())["metadata"]["total_size"] == SHARD.bytes


def test_the_calls_are_those_of_the_table(tmp_path):
    """The engine's system calls are those in the table of docs/engines.md.

    The library syncs the shards. pytest-ckpt syncs the consolidated files and the index.
    """
    need_strace()
    found = traced_save(tmp_path, "safetensors-consolidated", WHOLE)
    made = calls_by_file(found)
    ours = ["open to read", "fsync", "close"]
    for name in SHARDS:
        calls = [call for call, _ in made[name]]
        (written,) = [count for call, count in made[name] if call == "write"]
        # Bytes that fit into the library's buffer are written when the file is closed, so its fsync comes before the
        # write.
        one = ["write", "fsync"] if written > io.DEFAULT_BUFFER_SIZE else ["fsync", "write"]
        assert calls[:4] == ["create", *one, "close"]
        assert set(calls[4:-3]) == {"open to read", "read", "close"}
        assert calls[-3:] == ours
    tensors = {file.name: list(file.tensors) for file in consolidated_files(SHARD, CONSOLIDATED_FILES)}
    for name in MADE:
        writes = [count for call, count in made[name] if call == "write"]
        assert [call for call, _ in made[name]] == [
            "create", "write", "close", "open", *["write"] * (len(writes) - 1), "close", *ours
        ]  # fmt: skip
        # The library's buffer joins the writes of small tensors.
        assert 2 <= len(writes) <= 1 + len(tensors[name])
    assert sum(count for name in MADE for call, count in made[name][2:] if call == "write") == SHARD.bytes
    writes = [call for call, _ in made[INDEX] if call == "write"]
    assert [call for call, _ in made[INDEX]] == ["create", *writes, "close", *ours]
    assert list(made) == [*SHARDS, *MADE, INDEX]
    assert "rename" not in {act.call for act in found.acts}


@pytest.mark.thorough
def test_rank_0_needs_no_more_memory_than_planned(tmp_path: Path) -> None:
    spec = built_in("safetensors-consolidated")
    whole = layout("llama3-8b", mode="open", processes=1, scale=0.004)
    area, state = area_in(tmp_path), whole.rank(0).bytes
    saved = as_one_rank(spec.name, whole, area, "save")["peak_bytes"]
    loaded = as_one_rank(spec.name, whole, area, "load")
    assert (loaded["loaded"], loaded["checked"], loaded["faults"]) == (state, state, 0)
    of_rank = spec.memory.process_bytes + spec.memory.state_bytes(state, largest_file_bytes(whole.rank(0), spec.files))
    stated = of_rank + consolidating_bytes(whole, spec.files)
    assert state + largest_file_bytes(whole.rank(0), spec.files) < saved < stated
    assert loaded["peak_bytes"] < stated

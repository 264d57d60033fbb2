"""The engine dcp with one rank: its files, the loaded bytes, and the detection of damage."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_ckpt.ranks.content import Content, TensorKey
from pytest_ckpt.ranks.engines.factory import engine_maker
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.process.job import EngineOptions
from pytest_ckpt.sizing.models import layout
from tests.support.bare_dcp import save_bare
from tests.support.posix_files import CHECKPOINT, clock_of, committed_in, load, save

SHARD = layout("llama3-8b", mode="open", processes=1, scale=1e-5).rank(0)
TENSORS = [tensor for file in SHARD.files for tensor in file.tensors]
CONTENT = Content(7)
OWN, METADATA = "__0_0.distcp", ".metadata"


class SingleRank:
    rank, size, host = 0, 1, "here"

    def wait(self): ...

    def gather(self, value):
        return [value]

    def share(self, value):
        return value

    def largest(self, value):
        return value


@pytest.fixture
def engine() -> Iterator[object]:
    # Imported here, because every worker collects this module and torch takes seconds.
    make = engine_maker("pytest_ckpt.ranks.engines.dcp:make")
    made = make(shard=SHARD, content=CONTENT, group=SingleRank(), activity=Activity(), options=EngineOptions())
    yield made
    made.release()


def start_of(file: Path, name: str) -> int:
    """Return the offset of the tensor ``name`` in the file."""
    number = next(number for number, tensor in enumerate(TENSORS) if tensor.name == name)
    wanted = CONTENT.expected(TensorKey(checkpoint=CHECKPOINT, rank=0, tensor=number), 0, 64).tobytes()
    return file.read_bytes().index(wanted)


def change(file: Path, offset: int, data: bytes) -> None:
    with file.open("r+b") as out:
        out.seek(offset)
        out.write(data)


def test_the_library_writes_one_file_a_rank_and_the_metadata(engine, tmp_path):
    entries, proof, clock = save(engine, tmp_path)
    assert {entry.name for entry in entries} == {path.name for path in tmp_path.iterdir()} == {OWN, METADATA}
    assert (proof.files_attempted, proof.files_returned, proof.directories_returned) == (2, 2, 1)
    # In addition to its bytes, each tensor has the head and the tail of a small zip file.
    assert SHARD.bytes < next(e.bytes for e in entries if e.name == OWN) < SHARD.bytes + 2048 * len(TENSORS)
    assert set(clock.phases) == {"open", "write", "fsync", "directory"}


def test_every_byte_comes_back_also_when_all_was_let_go_of_between(engine, tmp_path):
    for number in (1, 2):
        save(engine, tmp_path / str(number), number)
    engine.release()
    for number in (2, 1, 2):
        loaded, check = load(engine, tmp_path / str(number), number)
        assert loaded == check.bytes_checked == SHARD.bytes
        assert check.faults == ()


def test_another_checkpoint_in_its_place_is_stale(engine, tmp_path):
    save(engine, tmp_path, 1)
    _, check = load(engine, tmp_path, 2)
    assert {fault.kind for fault in check.faults} >= {"stale"}


def test_a_flipped_bit_is_named_with_file_tensor_and_offset(engine, tmp_path):
    save(engine, tmp_path)
    place = start_of(tmp_path / OWN, "optimizer/2") + 8200
    change(tmp_path / OWN, place, bytes([(tmp_path / OWN).read_bytes()[place] ^ 4]))
    loaded, check = load(engine, tmp_path)
    (fault,) = check.faults
    assert (fault.kind, fault.file, fault.tensor, fault.offset) == ("flipped", OWN, "optimizer/2", 8192)
    assert loaded == check.bytes_checked == SHARD.bytes


def test_a_file_that_ends_early_is_short_at_the_part_that_is_missing(engine, tmp_path):
    save(engine, tmp_path)
    with (tmp_path / OWN).open("r+b") as file:
        file.truncate(start_of(tmp_path / OWN, "optimizer/2") + 4096)
    loaded, check = load(engine, tmp_path)
    (fault,) = check.faults
    assert (fault.kind, fault.file, fault.tensor, fault.offset) == ("short", OWN, "optimizer/2", 0)
    assert check.fault_count == 1
    assert 0 < loaded == check.bytes_checked < SHARD.bytes


def test_a_part_that_the_library_cannot_read_is_unreadable(engine, tmp_path):
    save(engine, tmp_path)
    change(tmp_path / OWN, 0, bytes(512))
    loaded, check = load(engine, tmp_path)
    (fault,) = check.faults
    assert (fault.kind, fault.file, fault.tensor) == ("unreadable", OWN, TENSORS[0].name)
    assert "torch.distributed.checkpoint cannot read it" in fault.detail
    assert loaded == check.bytes_checked == 0


def test_a_file_that_has_grown_is_not_the_one_that_was_written(engine, tmp_path):
    save(engine, tmp_path)
    with (tmp_path / OWN).open("ab") as file:
        file.write(b"more")
    _, check = load(engine, tmp_path)
    (fault,) = check.faults
    assert (fault.kind, fault.file) == ("foreign", OWN)
    assert "were written" in fault.detail


@pytest.mark.parametrize("name", [OWN, METADATA])
def test_a_file_that_is_not_there_is_an_error_of_the_storage(engine, tmp_path, name):
    save(engine, tmp_path)
    (tmp_path / name).unlink()
    engine.load_steps()
    with pytest.raises(FileNotFoundError) as caught:
        engine.load(committed_in(tmp_path), 0, clock_of())
    assert caught.value.errno == errno.ENOENT


def test_metadata_that_cannot_be_read_are_a_fault(engine, tmp_path):
    save(engine, tmp_path)
    change(tmp_path / METADATA, 0, b"no pickle at all")
    loaded, check = load(engine, tmp_path)
    (fault,) = check.faults
    assert (fault.kind, fault.file, loaded) == ("unreadable", METADATA, 0)
    # The fault does not affect later checkpoints.
    save(engine, tmp_path / "again")
    assert load(engine, tmp_path / "again")[1].faults == ()


def test_metadata_that_the_library_takes_though_a_byte_is_another_one_are_found(engine, tmp_path):
    save(engine, tmp_path)
    # The library stores the path of the checkpoint, but never uses it.
    place = (tmp_path / METADATA).read_bytes().index(tmp_path.name.encode())
    change(tmp_path / METADATA, place, b"X")
    loaded, check = load(engine, tmp_path)
    (fault,) = check.faults
    assert (fault.kind, fault.file) == ("foreign", METADATA)
    assert loaded == check.bytes_checked == SHARD.bytes


def test_a_target_that_takes_no_bytes_is_an_error_with_its_number(engine, tmp_path):
    (tmp_path / OWN).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        save(engine, tmp_path)
    assert caught.value.errno == errno.ENOSPC


def test_the_report_lists_the_calls_added_to_the_library(engine, tmp_path):
    save(engine, tmp_path)
    facts = engine.facts()
    assert "fsync of each file once more, in every save" in facts["added"]
    assert set(facts) == {"torch", "save", "load", "added"}


@pytest.mark.thorough
def test_one_rank_loads_the_checkpoint_of_a_job_with_two_processes(engine, tmp_path):
    """One rank loads complete tensors. Two processes saved a half of each tensor, with only the library."""
    scratch, directory = tmp_path / "scratch", tmp_path / "saved"
    scratch.mkdir()
    keys = [TensorKey(checkpoint=CHECKPOINT, rank=0, tensor=number) for number in range(len(TENSORS))]
    data = [CONTENT.expected(key, 0, tensor.bytes).tobytes() for key, tensor in zip(keys, TENSORS, strict=True)]
    save_bare(directory, scratch, 2, {t.name: (t.dtype, of) for t, of in zip(TENSORS, data, strict=True)})
    assert {path.name for path in directory.iterdir()} == {OWN, "__1_0.distcp", METADATA}
    loaded, check = load(engine, directory)
    assert loaded == check.bytes_checked == SHARD.bytes
    assert check.faults == ()

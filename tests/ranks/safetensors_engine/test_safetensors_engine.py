"""The engine safetensors with one rank: its files, the loaded bytes, and the detection of damage."""

from __future__ import annotations

import errno
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ckpt.facts.engines import built_in
from pytest_ckpt.facts.file_rules import SAFETENSORS_FILES
from pytest_ckpt.ranks.content import PAGE_BYTES
from pytest_ckpt.ranks.engines.safetensors_files import INDEX, header_end, index_of
from pytest_ckpt.sizing.files import largest_file_bytes, shard_files
from pytest_ckpt.sizing.models import layout
from tests.support.one_rank import area_in, as_one_rank, checkpoint_in
from tests.support.posix_files import CHECKPOINT, clock_of, draft_in
from tests.support.safetensors_files import SHARD, WHOLE, engine_of, expected, expected_files, load, save

FILES = shard_files(SHARD, SAFETENSORS_FILES)
TENSORS = [tensor for file in FILES for tensor in file.tensors]
MODEL = FILES[0].name
OPTIMIZER = FILES[1].name
BIG = "optimizer/0"


def start_of(file: Path, name: str) -> int:
    """Return the offset of the tensor ``name`` in its file."""
    number = next(number for number, tensor in enumerate(TENSORS) if tensor.name == name)
    return file.read_bytes().index(expected(number, TENSORS[number])[:64])


def change(file: Path, offset: int, data: bytes) -> None:
    with file.open("r+b") as out:
        out.seek(offset)
        out.write(data)


def test_each_file_is_the_library_s_and_the_index_names_them_all(tmp_path):
    entries, proof, clock = save(tmp_path)
    names = ["shard-00001-model-00001-of-00004.safetensors", "shard-00001-model-00002-of-00004.safetensors",
             "shard-00001-model-00003-of-00004.safetensors", "shard-00001-model-00004-of-00004.safetensors",
             "model.safetensors.index.json"]  # fmt: skip
    # The index sorts after the shards, so a writer in order knows all shards when it writes the index.
    assert [entry.name for entry in entries] == names
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == expected_files()
    assert (proof.files_attempted, proof.files_returned, proof.directories_returned) == (5, 5, 1)
    assert set(clock.phases) == {"open", "write", "fsync", "close", "directory"}


def test_only_rank_0_writes_the_index(tmp_path):
    entries, _, _ = save(tmp_path, engine=engine_of(WHOLE.rank(3)))
    assert {entry.name for entry in entries} == {path.name for path in tmp_path.iterdir()}
    assert all(entry.name.startswith("shard-00004-model-") for entry in entries)


def test_the_index_places_every_tensor_of_every_rank_once():
    index = json.loads(index_of(SHARD))
    assert index_of(SHARD) == index_of(WHOLE.rank(7))
    assert index["metadata"] == {"total_size": WHOLE.bytes}
    assert len(index["weight_map"]) == sum(len(f.tensors) for shard in WHOLE.ranks() for f in shard.files)
    files = {file.name for shard in WHOLE.ranks() for file in shard_files(shard, SAFETENSORS_FILES)}
    assert set(index["weight_map"].values()) == files


def test_every_byte_comes_back_also_when_all_was_let_go_of_between(tmp_path):
    engine = engine_of()
    for number in (1, 2):
        save(tmp_path / str(number), number, engine)
    engine.release()
    for number in (2, 1, 2):
        loaded, check = load(tmp_path / str(number), number, engine)
        assert loaded == check.bytes_checked == SHARD.bytes
        assert check.faults == ()


def test_the_staged_copy_is_saved_even_if_the_state_changes(tmp_path):
    engine = engine_of(stages=True)
    engine.fill(CHECKPOINT)
    assert engine.stage() == SHARD.bytes
    for data in engine.state():
        data[:] = 0
    engine.save(draft_in(tmp_path), clock_of())
    assert load(tmp_path)[1].faults == ()
    # Without a new copy, the next save writes the current state.
    engine.save(draft_in(tmp_path / "next"), clock_of())
    assert {fault.kind for fault in load(tmp_path / "next")[1].faults} == {"zeros"}


@pytest.mark.parametrize("parts", [2, 3])
def test_readers_of_parts_read_every_byte_once(saved, parts):
    found = [load(saved, engine=engine_of(part=part, parts=parts)) for part in range(parts)]
    assert sum(loaded for loaded, _ in found) == sum(check.bytes_checked for _, check in found) == SHARD.bytes
    assert [check.faults for _, check in found] == [()] * parts


@pytest.mark.parametrize("parts", [1, 2])
def test_a_flipped_bit_is_named_with_file_tensor_and_offset(saved, parts):
    place = start_of(saved / OPTIMIZER, BIG) + 8200
    change(saved / OPTIMIZER, place, bytes([(saved / OPTIMIZER).read_bytes()[place] ^ 4]))
    loaded, check = load(saved, engine=engine_of(parts=parts))
    (fault,) = check.faults
    assert (fault.kind, fault.file, fault.tensor, fault.offset) == ("flipped", OPTIMIZER, BIG, 8192)
    assert loaded == check.bytes_checked
    assert parts > 1 or loaded == SHARD.bytes


def test_a_page_of_zeros_is_named(saved):
    change(saved / OPTIMIZER, start_of(saved / OPTIMIZER, BIG) + PAGE_BYTES, bytes(PAGE_BYTES))
    (fault,) = load(saved)[1].faults
    assert (fault.kind, fault.tensor, fault.offset) == ("zeros", BIG, PAGE_BYTES)


def test_an_older_shard_in_the_place_of_a_new_one_is_stale(saved, tmp_path):
    save(tmp_path / "older", CHECKPOINT - 1)
    shutil.copy(tmp_path / "older" / OPTIMIZER, saved)
    _, check = load(saved)
    assert {fault.file for fault in check.faults} == {OPTIMIZER}
    assert (check.faults[0].kind, check.faults[0].tensor) == ("stale", BIG)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("left", [0, 5, 60, 0.5, -1])
def test_a_file_that_ends_early_is_short(saved, left, parts):
    size = (saved / OPTIMIZER).stat().st_size
    with (saved / OPTIMIZER).open("r+b") as file:
        file.truncate(int(size * left) if isinstance(left, float) else left % size)
    loaded, check = load(saved, engine=engine_of(parts=parts))
    assert {(fault.kind, fault.file) for fault in check.faults} == {("short", OPTIMIZER)}
    assert check.fault_count == 1
    assert loaded == check.bytes_checked < SHARD.bytes


@pytest.mark.parametrize("parts", [1, 2])
def test_a_file_that_has_grown_is_not_the_one_that_was_written(saved, parts):
    with (saved / MODEL).open("ab") as file:
        file.write(b"more")
    (fault,) = load(saved, engine=engine_of(parts=parts))[1].faults
    assert (fault.kind, fault.file) == ("foreign", MODEL)


def test_a_file_that_has_grown_beyond_all_measure_is_not_read(saved):
    with (saved / MODEL).open("r+b") as file:
        file.truncate(1 << 40)
    (fault,) = load(saved)[1].faults
    assert (fault.kind, fault.file, fault.bytes) == ("foreign", MODEL, 1 << 40)


@pytest.mark.parametrize("name", [MODEL, INDEX])
def test_a_file_that_is_not_there_is_an_error_of_the_storage(saved, name):
    (saved / name).unlink()
    with pytest.raises(FileNotFoundError) as caught:
        load(saved)
    assert caught.value.errno == errno.ENOENT


@pytest.mark.parametrize(
    ("change_index", "kind"),
    [
        (lambda index: index[:-1], "short"),
        (lambda index: index + b" ", "foreign"),
        (lambda index: bytes(len(index)), "unreadable"),
        (lambda index: b"[" * len(index), "unreadable"),
        (lambda index: b"[1]".ljust(len(index)), "unreadable"),
        (lambda index: index.replace(b"shard-00001", b"shard-00002"), "foreign"),
        (lambda index: index.replace(b"optimizer/0/rank0", b"optimizer/0/rankX"), "foreign"),
    ],
)
def test_an_index_by_which_no_job_finds_its_files_ends_the_load(saved, change_index, kind):
    (saved / INDEX).write_bytes(change_index((saved / INDEX).read_bytes()))
    loaded, check = load(saved)
    (fault,) = check.faults
    assert (fault.kind, fault.file, check.fault_count) == (kind, INDEX, 1)
    assert loaded == check.bytes_checked == 0


def test_an_index_that_is_wrong_for_other_ranks_is_found_and_the_load_continues(saved):
    index = (saved / INDEX).read_bytes()
    (saved / INDEX).write_bytes(index.replace(b"shard-00002-model-00001", b"shard-00003-model-00001"))
    loaded, check = load(saved)
    (fault,) = check.faults
    assert (fault.kind, fault.file) == ("foreign", INDEX)
    assert loaded == check.bytes_checked == SHARD.bytes


@settings(deadline=None, max_examples=40)
@given(name=st.sampled_from([MODEL, OPTIMIZER, FILES[-1].name, INDEX]), place=st.floats(0, 1), bit=st.integers(0, 7))
def test_whichever_bit_flips_is_found_in_its_file(tmp_path_factory, name, place, bit):
    _find_flipped(tmp_path_factory, name, int(place * (len(expected_files()[name]) - 1)), bit)


@settings(deadline=None, max_examples=40)
@given(name=st.sampled_from([MODEL, OPTIMIZER]), place=st.floats(0, 1), bit=st.integers(0, 7))
def test_whichever_bit_of_a_header_flips_is_found(tmp_path_factory, name, place, bit):
    _find_flipped(tmp_path_factory, name, int(place * (header_end(expected_files()[name]) - 1)), bit)


def _find_flipped(factory, name, place, bit):
    directory = factory.getbasetemp() / "flipped"
    directory.mkdir(exist_ok=True)
    for each, data in expected_files().items():
        (directory / each).write_bytes(data)
    change(directory / name, place, bytes([expected_files()[name][place] ^ 1 << bit]))
    loaded, check = load(directory)
    assert check.fault_count >= 1
    assert check.faults[0].file == name
    assert loaded == check.bytes_checked


def test_a_target_that_takes_no_bytes_is_an_error_with_its_number(tmp_path):
    engine = engine_of()
    engine.fill(CHECKPOINT)
    draft = draft_in(tmp_path)
    sink = draft.create

    def into_nothing(data):
        with Path("/dev/full").open("wb", buffering=0) as nothing:
            return nothing.write(data)

    def full(name, size):
        made = sink(name, size)
        made.write = into_nothing
        return made

    draft.create = full
    with pytest.raises(OSError, match="No space left") as caught:
        engine.save(draft, clock_of())
    assert caught.value.errno == errno.ENOSPC


def test_the_report_is_told_what_is_the_library_s_and_what_is_added():
    facts = engine_of().facts()
    assert set(facts) == {"safetensors", "save", "load", "added"}
    assert facts["added"].startswith("the index with an fsync, in every save")
    assert "safetensors.numpy.save" in facts["save"]


def test_the_engine_needs_no_more_memory_than_declared_and_no_torch(tmp_path):
    """Saves and loads need less memory than the engine declares, and do not import torch.

    A rank needs the most memory if the optimizer is a single file, as here. The file needs memory in addition to the
    state.
    """
    rule = built_in("safetensors").memory
    whole = layout("llama3-8b", mode="open", processes=64, scale=0.06)
    area, state = area_in(tmp_path), whole.rank(0).bytes
    fields = {action: as_one_rank("safetensors", whole, area, action) for action in ("save", "load")}
    assert (fields["load"]["loaded"], fields["load"]["checked"], fields["load"]["faults"]) == (state, state, 0)
    largest = largest_file_bytes(whole.rank(0), SAFETENSORS_FILES)
    stated = rule.process_bytes + rule.state_bytes(state, largest)
    for action, copies in (("save", 2), ("load", 1)):
        # The stated memory is enough, and not so large that it says nothing.
        assert state + copies * largest < fields[action]["peak_bytes"] < stated
        assert not {"torch", "jinja2"} & set(fields[action]["modules"])


CALLS = "openat,write,pwrite64,fsync,fdatasync,close,rename,renameat,renameat2,unlink,unlinkat,ftruncate,mmap"


def test_each_file_is_one_write_and_one_fsync_and_the_commit_comes_last(tmp_path):
    target, trace = tmp_path / "target", tmp_path / "trace"
    target.mkdir()
    strace = shutil.which("strace")
    front = (strace, "-f", "-q", "-y", "-s", "0", "-e", f"trace={CALLS}", "-o", str(trace))
    if not strace or subprocess.run([*front, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no strace that may trace")
    as_one_rank("safetensors", WHOLE, area_in(target), "save", front=front)
    directory = checkpoint_in(target)
    wanted = []
    for name in (*(file.name for file in FILES), INDEX):
        size = (directory / name).stat().st_size
        wanted += [f"create {name}", f"write {name} {size}", f"fsync {name}", f"close {name}"]
    # Then the store makes the names durable and gives the checkpoint its final name, as for every engine.
    wanted += [f"fsync {directory.name}", "rename", f"fsync {directory.parent.name}"]
    assert calls_in(trace.read_text(), target) == wanted


def calls_in(trace: str, target: Path) -> list[str]:
    """Return the traced system calls that change files below ``target``, each as a text such as "create NAME"."""
    calls, began = [], False
    for line in trace.splitlines():
        if str(target) not in line or "O_RDONLY" in line:
            continue
        name = re.sub(r"\.partial$", "", re.sub(r".*/", "", re.findall(rf"{re.escape(str(target))}[^>\"]*", line)[0]))
        call = re.search(r" (\w+)\(", f" {line}")[1]
        began = began or (call == "openat" and "O_CREAT" in line and name.startswith("shard-"))
        if not began or (call == "close" and "." not in name):
            continue
        if call == "openat":
            assert "O_EXCL" in line
            call = "create"
        size = f" {line.rpartition('= ')[2].split()[0]}" if call == "write" else ""
        calls.append("rename" if call.startswith("rename") else f"{call} {name}{size}")
    return calls

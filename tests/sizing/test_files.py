"""The files that a rank writes, as the layout states or as the engine's library splits them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.config.engines import recorded_engine
from pytest_ckpt.facts.engines import BUILT_IN
from pytest_ckpt.facts.file_rules import FileRule
from pytest_ckpt.sizing.files import file_count, files_of, largest_file_bytes, names_of, names_to_read, shard_files
from pytest_ckpt.sizing.models import RankLayout, ShardFile, Tensor, layout

TWO = layout("llama3-8b", mode="open", processes=2, scale=1e-4)
RULE = FileRule(of_rank="part-{rank}.bin", shared=("index",), passing=("index.new",))
OF_A_SIZE = FileRule(of_rank="{shard}-{number}-{count}", shared=("index",), maximum_bytes=5_000_000_000)


def test_without_a_rule_they_are_those_of_the_layout():
    for shard in TWO.ranks():
        assert [file.name for file in files_of(shard, FileRule())] == [file.name for file in shard.files]
        assert sum(file.bytes for file in files_of(shard, FileRule())) == shard.bytes
    assert file_count(TWO, FileRule()) == TWO.files
    assert len(names_of(TWO, FileRule())) == TWO.files


def test_a_library_names_one_of_each_rank_and_rank_0_writes_what_all_read():
    first, second = (files_of(shard, RULE) for shard in TWO.ranks())
    assert first == (("part-0.bin", TWO.rank(0).bytes), ("index", 0))
    assert second == (("part-1.bin", TWO.rank(1).bytes),)
    assert file_count(TWO, RULE) == 3


def test_clean_up_includes_the_temporary_files_of_a_save():
    assert names_of(TWO, RULE) == {"part-0.bin", "part-1.bin", "index", "index.new"}


def test_only_the_rank_is_replaced_in_a_file_name():
    """Only {rank} is replaced in a file name, because file names may come from an untrusted report."""
    rule = FileRule(of_rank="{rank}{rank.__class__}{0:9999999}")
    assert files_of(TWO.rank(1), rule)[0].name == "1{rank.__class__}{0:9999999}"


@pytest.mark.parametrize("spec", BUILT_IN, ids=lambda spec: spec.name)
def test_a_plan_keeps_which_files_an_engine_has(spec):
    assert recorded_engine(spec.to_plain()).files == spec.files
    assert ("files" in spec.to_plain()) is bool(spec.files.of_rank)


def rank_layout(model, optimizer):
    """Return a rank layout whose model and optimizer tensors have these sizes in bytes."""
    both = [
        ShardFile(name=name, tensors=tuple(Tensor(name=f"{name}/{n}", dtype="float32", elements=size // 4)
                                           for n, size in enumerate(sizes)))
        for name, sizes in (("model", model), ("optimizer", optimizer))
    ]  # fmt: skip
    return RankLayout(rank=3, files=tuple(both))


SIZES = st.lists(st.integers(1, 9).map(lambda n: 4 * n), min_size=1, max_size=8)


@given(SIZES, SIZES, st.integers(4, 60))
def test_files_of_a_size_hold_every_tensor_once_in_its_order(model, optimizer, maximum):
    shard = rank_layout(model, optimizer)
    files = shard_files(shard, OF_A_SIZE._replace(maximum_bytes=maximum))
    assert [t for file in files for t in file.tensors] == [t for file in shard.files for t in file.tensors]
    count = len(files)
    assert [file.name for file in files] == [f"00004-{n:05}-{count:05}" for n in range(1, count + 1)]
    for file, following in zip(files, (*files[1:], None), strict=True):
        # Only a tensor that is too large gets a file alone, and no file ends earlier than necessary.
        assert file.bytes <= maximum or len(file.tensors) == 1
        kinds = {tensor.name.partition("/")[0] for tensor in file.tensors}
        assert len(kinds) == 1
        if following and following.tensors[0].name.startswith(kinds.pop()):
            assert file.bytes + following.tensors[0].bytes > maximum


@pytest.mark.parametrize(("model", "mode"), [("llama3-8b", "full"), ("llama3-70b", "subset"), ("llama3-405b", "full")])
def test_a_scale_leaves_the_files_as_they_are(model, mode):
    whole = layout(model, mode=mode)
    small = layout(model, mode=mode, scale=1e-6)
    for rank in (0, whole.processes - 1):
        files = shard_files(whole.rank(rank), OF_A_SIZE)
        assert len(files) > 1
        assert [f.name for f in shard_files(small.rank(rank), OF_A_SIZE)] == [f.name for f in files]
        assert max(file.bytes for file in files) <= 5_000_000_000
    assert file_count(small, OF_A_SIZE) == file_count(whole, OF_A_SIZE)
    assert len(names_of(small, OF_A_SIZE)) == file_count(small, OF_A_SIZE)


def test_files_keep_their_names_for_whom_reads_the_model_alone():
    """The model files of a rank have the same names, whether the rank also has an optimizer or not.

    Other replicas read the model files of the first replica, but not its optimizer.
    """
    shard = layout("llama3-405b", mode="full", scale=1e-6).rank(1)
    some = replace(shard, files=shard.files[:-1])
    assert shard_files(some, OF_A_SIZE) == shard_files(shard, OF_A_SIZE)[: len(shard_files(some, OF_A_SIZE))]
    assert sum(file.bytes for file in shard_files(some, OF_A_SIZE)) == some.bytes


def test_whoever_loads_reads_what_ranks_share_too():
    assert names_to_read(TWO.rank(0), RULE) == ("part-0.bin", "index")
    assert names_to_read(TWO.rank(1), RULE) == ("part-1.bin", "index")
    assert names_to_read(TWO.rank(1), FileRule()) == tuple(file.name for file in TWO.rank(1).files)


def test_memory_may_grow_with_the_largest_file_of_a_rank():
    """The declared memory of an engine may include a multiple of the largest file of a rank, here 3 x 4 GB."""
    spec = next(spec for spec in BUILT_IN if spec.memory.file_share)
    shard = layout("llama3-8b", mode="full").rank(0)
    file = largest_file_bytes(shard, spec.files)
    assert 4.0e9 < file < 4.1e9
    assert spec.memory.state_bytes(shard.bytes, file) == shard.bytes + 3 * file
    assert recorded_engine(spec.to_plain()).memory == spec.memory
    assert "file_share" not in BUILT_IN[0].to_plain()

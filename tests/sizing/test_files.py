"""Which files of a checkpoint a rank writes: the layout's, or those that a library names."""

from __future__ import annotations

import pytest

from pytest_ckpt.facts.engines import BUILT_IN, FileRule, recorded_engine
from pytest_ckpt.sizing.files import file_count, files_of, names_of
from pytest_ckpt.sizing.models import layout

TWO = layout("llama3-8b", mode="open", processes=2, scale=1e-4)
RULE = FileRule(of_rank="part-{rank}.bin", shared=("index",), passing=("index.new",))


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


def test_clean_up_knows_also_what_stands_there_only_while_a_save_goes_on():
    assert names_of(TWO, RULE) == {"part-0.bin", "part-1.bin", "index", "index.new"}


def test_what_stands_in_a_name_beside_the_rank_is_taken_as_it_is():
    """A report of another hand names files, too."""
    rule = FileRule(of_rank="{rank}{rank.__class__}{0:9999999}")
    assert files_of(TWO.rank(1), rule)[0].name == "1{rank.__class__}{0:9999999}"


@pytest.mark.parametrize("spec", BUILT_IN, ids=lambda spec: spec.name)
def test_a_plan_keeps_which_files_an_engine_has(spec):
    assert recorded_engine(spec.to_plain()).files == spec.files
    assert ("files" in spec.to_plain()) is bool(spec.files.of_rank)

"""Runs with the suite scaling: 1, 2, 4 … of the ranks save and load while the others wait."""

from __future__ import annotations

import pytest

from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.judging.scaling import MAXIMUM_LOST, growths
from pytest_ckpt.ranks.process.job import OF_SCALING
from tests.support.front_door import TINY, FrontDoor
from tests.support.machine import need_fuse
from tests.support.targets.misbehaving import misbehaving

SCALING = ("--ckpt-suite=performance,scaling", "--ckpt-engine=stream", "--ckpt-gates=speed-only")
SUBJECT = "llama3-8b-open-4/stream"


def test_growing_counts_of_ranks_save_and_load_their_parts(door: FrontDoor) -> None:
    # A ceiling that every storage reaches: how this one grows beside other tests says nothing.
    run = door.run(*TINY, *SCALING, "--ckpt-processes=4", "--ckpt-ceiling=1KB/s")
    assert run.code == 0, run.text
    assert run.verdict("SCALING", SUBJECT)["outcome"] == "met"
    measurement = run.measurement(SUBJECT)
    found = measurement["patterns"]["scaling"]
    assert (found["unit"], found["save_ceiling"], found["load_ceiling"]) == ("ranks", 1000.0, 1000.0)
    ranks = measurement["rank_bytes"]
    assert [(count["clients"], count["bytes"]) for count in found["counts"]] == [(n, sum(ranks[:n])) for n in (1, 2, 4)]
    assert all(len(count["saves"]) == len(count["loads"]) == 3 for count in found["counts"])
    moved = 3 * sum(count["bytes"] for count in found["counts"])
    assert found["integrity"]["bytes_checked"] == found["integrity"]["bytes_expected"] == moved
    assert all(load["mapped_bytes"] >= count["bytes"] for count in found["counts"] for load in count["loads"])
    assert run.left_on_target == []


@pytest.mark.thorough
def test_a_ceiling_chooses_the_suite_and_one_rank_has_nothing_to_grow_from(door: FrontDoor) -> None:
    run = door.run(*TINY, *SCALING[1:], "--ckpt-processes=1", "--ckpt-ceiling=1GB/s,2GB/s")
    assert run.code == 0, run.text
    verdict = run.verdict("SCALING", "llama3-8b-open-1/stream")
    assert (verdict["outcome"], verdict["reason"]) == ("not run", "not possible")


@pytest.mark.thorough
def test_storage_that_gives_so_much_and_no_more_loses_what_a_doubling_should_bring(door: FrontDoor, make_home) -> None:
    need_fuse()
    with misbehaving(make_home("target")) as target:
        target.fault("slow")
        run = door.run(*TINY, *SCALING, "--ckpt-processes=4", target=target.path)
        target.clear()
    found = from_plain(Measurement, run.measurement(SUBJECT)).patterns.scaling
    assert max(growth.lost for growth in growths(found)) > MAXIMUM_LOST, run.text
    # Where nothing shows what is cached, loads prove nothing.
    verdict = run.verdict("SCALING", SUBJECT)
    assert (verdict["outcome"], verdict["reason"]) in {("failed", "over limit"), ("not run", "unproven")}


@pytest.mark.thorough
def test_wrong_bytes_of_some_of_the_clients_are_found(door: FrontDoor, make_home) -> None:
    need_fuse()
    with misbehaving(make_home("target")) as target:
        target.fault("flipped bit in reads", path=f"*-0{2 + OF_SCALING + 1}/*")
        run = door.run(*TINY, *SCALING, target=target.path)
        target.clear()
    assert run.verdict("SCALING")["reason"] == "wrong bytes"
    assert run.verdict("INTEGRITY")["outcome"] == "met"
    assert run.left_on_target == []

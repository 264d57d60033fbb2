"""End-to-end runs of the suite scaling: 1, 2, 4 and more ranks save and load while the other ranks wait."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_ckpt.sizing.patterns import PATTERNS
from tests.support.end_to_end import TINY, Runner
from tests.support.hosts.lab import Step, need_hosts, on_hosts
from tests.support.hosts.storage import HONEST_FUSE
from tests.support.machine import need_fuse
from tests.support.targets.misbehaving import misbehaving

SCALING = ("--ckpt-suite=performance,scaling", "--ckpt-engine=stream", "--ckpt-gate-table=speed-only")
SUBJECT = "llama3-8b-open-4/stream"


def test_growing_counts_of_ranks_save_and_load_their_parts(runner: Runner) -> None:
    # Every storage reaches this stated maximum, so no growth is required; growth during other tests has no meaning.
    run = runner.run(*TINY, *SCALING, "--ckpt-ranks=4", "--ckpt-suite=vendor-max-rate=1KB/s")
    assert run.code == 0, run.text
    assert run.verdict("SCALING", SUBJECT)["outcome"] == "met"
    measurement = run.measurement(SUBJECT)
    found = measurement["patterns"]["scaling"]
    assert found["unit"] == "ranks"
    ranks = measurement["rank_bytes"]
    assert [(count["clients"], count["bytes"]) for count in found["counts"]] == [(n, sum(ranks[:n])) for n in (1, 2, 4)]
    assert all(len(count["saves"]) == len(count["loads"]) == 3 for count in found["counts"])
    moved = 3 * sum(count["bytes"] for count in found["counts"])
    assert found["integrity"]["bytes_checked"] == found["integrity"]["bytes_expected"] == moved
    assert all(load["mapped_bytes"] >= count["bytes"] for count in found["counts"] for load in count["loads"])
    assert run.left_on_target == []


@pytest.mark.thorough
def test_a_ceiling_chooses_the_suite_and_one_rank_has_nothing_to_grow_from(runner: Runner) -> None:
    run = runner.run(*TINY, *SCALING[1:], "--ckpt-ranks=1", "--ckpt-suite=vendor-max-rate=1GB/s:2GB/s")
    assert run.code == 0, run.text
    verdict = run.verdict("SCALING", "llama3-8b-open-1/stream")
    assert (verdict["outcome"], verdict["reason"]) == ("not run", "not possible")


# One device for all ranks: 20 MB/s in total, so two clients get no more than one.
THROTTLED = ("slow", {"bytes_per_second": 20e6})


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("ceiling", "decided"), [("", ("failed", "over limit")), ("--ckpt-suite=vendor-max-rate=5MB/s", ("met", "met"))]
)
def test_storage_that_gives_so_much_and_no_more_loses_what_a_doubling_should_bring(
    runner: Runner, create_home, ceiling, decided
) -> None:
    need_fuse()
    with misbehaving(create_home("target"), keep_cache=True) as target:
        target.fault(THROTTLED[0], **THROTTLED[1])
        words = filter(None, (*TINY, *SCALING, "--ckpt-ranks=4", ceiling))
        run = runner.run(*words, target=target.path)
        target.clear()
    verdict = run.verdict("SCALING", SUBJECT)
    assert (verdict["outcome"], verdict["reason"]) == decided, run.text + verdict["because"]


@pytest.mark.thorough
def test_storage_that_gives_each_client_as_much_as_the_first_is_met_by_its_growth(runner: Runner, create_home) -> None:
    need_fuse()
    with misbehaving(create_home("target"), keep_cache=True) as target:
        # So slow (5 s for each rank) that neither this machine nor other load on it is the limit.
        target.fault("slow", bytes_per_second=0.6e6, is_by_file=True)
        run = runner.run(*TINY, *SCALING, "--ckpt-ranks=4", target=target.path)
        target.clear()
    verdict = run.verdict("SCALING", SUBJECT)
    assert (verdict["outcome"], verdict["reason"]) == ("met", "met"), run.text + verdict["because"]


@pytest.mark.thorough
@pytest.mark.parametrize(("ceiling", "outcome"), [("", "failed"), ("--ckpt-suite=vendor-max-rate=5MB/s", "met")])
def test_hosts_that_share_one_device_are_clients_that_do_not_grow(create_home, ceiling, outcome) -> None:
    storage = dataclasses.replace(HONEST_FUSE, keep_cache=True, faults=dict([THROTTLED]))
    need_hosts(storage)
    hosts = ("--ckpt-ranks=4", "--ckpt-hosts=h1:2,h2:2")
    words = tuple(filter(None, (*TINY, *SCALING, *hosts, ceiling)))
    (done,) = on_hosts(create_home("hosts"), 2, Step(options=words), storage=storage)
    found = done.run.measurement(SUBJECT)["patterns"]["scaling"]
    assert (found["unit"], [count["clients"] for count in found["counts"]]) == ("hosts", [1, 2])
    verdict = done.run.verdict("SCALING", SUBJECT)
    assert verdict["outcome"] == outcome, done.text + verdict["because"]
    assert done.left == ()


@pytest.mark.thorough
def test_wrong_bytes_of_some_of_the_clients_are_found(runner: Runner, create_home) -> None:
    need_fuse()
    with misbehaving(create_home("target")) as target:
        target.fault("flipped bit in reads", path=f"*-0{2 + PATTERNS['scaling'].first + 1}/*")
        run = runner.run(*TINY, *SCALING, target=target.path)
        target.clear()
    assert run.verdict("SCALING")["reason"] == "wrong bytes"
    assert run.verdict("INTEGRITY")["outcome"] == "met"
    assert run.left_on_target == []

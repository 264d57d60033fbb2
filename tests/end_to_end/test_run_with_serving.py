"""End-to-end runs of the suite serving: replicas load only the weights, and one client rewrites the weights."""

from __future__ import annotations

import pytest

from pytest_ckpt.sizing.patterns import PATTERNS
from tests.support.end_to_end import TINY, Runner
from tests.support.machine import need_fuse
from tests.support.targets.misbehaving import misbehaving

SERVING = ("--ckpt-suite=performance,serving:readers=2",)


def test_replicas_load_weights_and_one_client_rewrites_them(runner: Runner) -> None:
    # The limit of a consolidation is scaled down with the checkpoint, to 36 s.
    run = runner.run(*TINY, *SERVING, "--ckpt-suite=consolidate-limit=100h", "--ckpt-ranks=4")
    assert run.code == 8, run.text
    subject = "llama3-8b-open-4"
    assert run.verdict("MODEL-LOAD", subject)["outcome"] == "met"
    assert run.verdict("CONSOLIDATE", subject)["outcome"] == "met"
    patterns = run.measurement(subject)["patterns"]
    found = patterns["serving"]
    assert (found["replicas"], found["readers"]) == (2, 2)
    assert [(load["io_mode"], load["is_warm"]) for load in found["loads"]] == [
        ("reads", False),
        ("reads", True),
        ("mmap", False),
        ("mmap", True),
    ]
    assert all(load["integrity"]["bytes_checked"] == 2 * found["bytes"] for load in found["loads"])
    assert all(0 <= load["stalled_seconds"] <= load["seconds"] for load in found["loads"])
    assert patterns["consolidation"]["integrity"]["bytes_checked"] == 2 * found["bytes"]
    assert run.left_on_target == []


@pytest.mark.thorough
def test_a_load_that_is_too_slow_is_reported_and_does_not_lower_the_grade(runner: Runner) -> None:
    # Giving the limit selects the suite.
    run = runner.run(*TINY, "--ckpt-suite=load-limit=1ms,consolidate-limit=1ms")
    assert run.code == 0, run.text
    for requirement in ("MODEL-LOAD", "CONSOLIDATE"):
        assert (run.verdict(requirement)["outcome"], run.verdict(requirement)["severity"]) == ("failed", "advisory")


@pytest.mark.thorough
def test_wrong_bytes_of_weights_are_found(runner: Runner, create_home) -> None:
    need_fuse()
    with misbehaving(create_home("target")) as target:
        # Only files that the ranks wrote are affected. The consolidated copy already contains the flipped bit, and a
        # second flip would correct it.
        target.fault("flipped bit in reads", path=f"*-0{2 + PATTERNS['serving'].first}/weights-*")
        run = runner.run(*TINY, *SERVING, target=target.path)
        target.clear()
    assert run.verdict("MODEL-LOAD")["reason"] == "wrong bytes"
    assert run.verdict("CONSOLIDATE")["reason"] == "wrong bytes"
    assert run.verdict("INTEGRITY")["outcome"] == "met"
    assert run.left_on_target == []

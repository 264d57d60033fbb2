"""A gateway that refuses to rename a directory: a marker file commits, and the report says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.front_door import TINY, Run, opened_door
from tests.support.machine import need_fuse
from tests.support.targets.misbehaving import misbehaving

FAULT = "rename of a directory is refused"


@pytest.fixture(scope="module")
def run(make_home: Callable[[str], Path]) -> Iterator[Run]:
    need_fuse()
    with opened_door(make_home("gateway")) as door, misbehaving(make_home("target")) as target:
        target.fault(FAULT)
        yield door.run(*TINY, "--ckpt-gate-table=gateway", "--ckpt-suite=performance", target=target.path)
        assert target.hits(FAULT)


def test_saves_are_committed_by_a_marker_and_load(run: Run) -> None:
    outcomes = run.outcomes()
    assert {name: outcomes[name] for name in ("SAVE", "LOAD", "INTEGRITY", "DURABLE-CALLS")} == {
        "SAVE": "met",
        "LOAD": "met",
        "INTEGRITY": "met",
        "DURABLE-CALLS": "met",
    }, run.text
    durability = run.measurement()["durability"]
    assert durability["commit_methods"] == ["marker"]
    assert durability["commits"] == durability["saves"] == 2
    # Of each save the fsync of the directory by one rank of the host, and that after the marker.
    assert durability["directories"] == durability["directories_synced"] == 4


def test_the_first_page_tells_it(run: Run) -> None:
    words = "The target refuses to rename a directory: a marker file committed each checkpoint"
    assert words in (run.report / "certificate.html").read_text()
    assert "committed by marker" in run.text or "committed by marker" in str(run.document["requirements"])


def test_nothing_is_left_on_the_target(run: Run) -> None:
    assert run.left_on_target == []

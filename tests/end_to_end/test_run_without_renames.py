"""End-to-end runs on a gateway that refuses to rename directories.

A save on this gateway commits with a marker file, and the report states this.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.actions import actions
from tests.support.end_to_end import SUBJECT, TINY, Run, temporary_runner
from tests.support.machine import need_fuse
from tests.support.targets.misbehaving import misbehaving, with_small_volume

FAULT = "rename of a directory is refused"


@pytest.fixture(scope="module")
def run(create_home: Callable[[str], Path]) -> Iterator[Run]:
    need_fuse()
    with temporary_runner(create_home("gateway")) as runner, misbehaving(create_home("target")) as target:
        target.fault(FAULT)
        yield runner.run(*TINY, "--ckpt-gate-table=gateway", "--ckpt-suite=performance", target=target.path)
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
    # Three per save: one rank of the host syncs the checkpoint's directory. After the marker, that directory and its
    # parent, which contains its name, are synced.
    assert durability["directories"] == durability["directories_synced"] == 6


def test_the_first_page_mentions_commits_by_marker(run: Run) -> None:
    words = "The target refuses to rename a directory: a marker file committed each checkpoint"
    assert words in (run.report / "certificate.html").read_text()
    assert "committed by marker" in run.text or "committed by marker" in str(run.document["requirements"])


def test_nothing_is_left_on_the_target(run: Run) -> None:
    assert run.left_on_target == []


@pytest.fixture(scope="module")
def behaviour(create_home: Callable[[str], Path]) -> Iterator[Run]:
    """A run of the conformance suite with a second client, a small volume and a command that cuts the power."""
    with temporary_runner(create_home("behaviour")) as runner, with_small_volume(create_home) as (target, small):
        target.fault(FAULT)
        small.fault(FAULT)
        yield runner.run(
            *TINY,
            "--ckpt-gate-table=gateway",
            "--ckpt-suite=conformance",
            f"--ckpt-second-mount={target.second}",
            f"--ckpt-small-volume={small.path}",
            actions(power_cut=shlex.join(target.power_cut_command), power_cuts="1"),
            target=target.path,
        )


@pytest.mark.thorough
def test_every_check_of_behaviour_has_the_verdict_that_the_target_deserves(behaviour: Run) -> None:
    verdicts = {
        f"{v['id']}.{v['subject']}": v
        for v in behaviour.document["requirements"]
        if not v["subject"].startswith(SUBJECT)
    }
    others = {name: (v["outcome"], v["severity"]) for name, v in verdicts.items() if v["outcome"] != "met"}
    assert others == {
        "COMMIT.directory": ("failed", "advisory"),
        "COMMIT.directory-second-client": ("failed", "advisory"),
        "PUBLISH.directory": ("not run", "advisory"),
    }, behaviour.text
    assert "refuses to rename a directory" in verdicts["PUBLISH.directory"]["because"]
    for name in (
        "DURABLE.rank-killed",
        "DURABLE.power-cut",
        "LIVE.calls",
        "FULL.mid-save",
        "COMMIT-FULL.each-phase",
    ):
        assert "commit: by a marker file" in verdicts[name]["detail"], name
        assert " --commit=marker" in verdicts[name]["detail"], name

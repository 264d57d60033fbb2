"""End-to-end runs of the engine megatron, which writes checkpoints in the format of Megatron."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.cli.main import main
from tests.support.end_to_end import TINY, Runner
from tests.support.machine import need_fuse
from tests.support.targets.misbehaving import misbehaving

MEGATRON = ("--ckpt-engine=megatron",)
OTHERS = {"async": (), "hybrid": ("--ckpt-strategy=changed=10%",)}


@pytest.mark.parametrize("strategy", ["sync", *(pytest.param(name, marks=pytest.mark.thorough) for name in OTHERS)])
def test_a_run_meets_all_requirements_and_leaves_nothing(runner: Runner, strategy: str) -> None:
    run = runner.run(*TINY, *MEGATRON, f"--ckpt-strategy={strategy}", *OTHERS.get(strategy, ()))
    assert run.code == 0, run.text
    if strategy in OTHERS:
        assert run.verdict("CRASH-ASYNC")["outcome"] == "met"
    measurement = run.measurement()
    assert measurement["failure"] is None
    assert measurement["integrity"]["bytes_checked"] == measurement["integrity"]["bytes_expected"] > 0
    assert measurement["durability"]["files_synced"] == measurement["durability"]["files"]
    assert "as megatron-core 0.16.1 was traced" in measurement["engine_facts"]["save"]
    assert "the tracker and every directory without fsync" in measurement["engine_facts"]["the job itself"]
    assert run.left_on_target == []
    assert main(["verify", str(run.report)]) == 0


@pytest.mark.thorough
def test_an_error_in_the_second_writer_of_a_rank_ends_the_launch(
    runner: Runner, create_home: Callable[[str], Path]
) -> None:
    need_fuse()
    with misbehaving(create_home("broken")) as target:
        target.fault("EIO in fsync", path="*__1_1.distcp")
        run = runner.run(*TINY, *MEGATRON, target=target.path)
        target.clear()
    assert run.code == 1, run.text
    failure = run.measurement()["failure"]
    assert (failure["rank"], failure["file"], failure["errno"]) == (1, "__1_1.distcp", "EIO")

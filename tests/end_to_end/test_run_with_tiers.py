"""End-to-end runs that save to a local tier, from which files are drained (copied) to the target.

The tests check measurements, verdicts, refused options, and which files remain.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.cli.main import main
from tests.support.actions import actions
from tests.support.end_to_end import STREAM, TINY, TORCH, Run, Runner, in_every_rank, temporary_runner
from tests.support.machine import Mounts, need_fuse
from tests.support.targets.misbehaving import misbehaving

THREE = (*TINY, "--ckpt-operations=3")
TIERED = "--ckpt-strategy=tiered"
OWN = ("DRAIN", "TIER-ORDER")

# Two faults: a target that acknowledges a drained checkpoint and then loses it, or a local tier that still shows
# deleted files.
OF_TIERS = """
import os, pathlib, sys

if "pytest_ckpt.ranks" in sys.orig_argv:
    from pytest_ckpt.targets.posix.store import PosixStore

    delete, finish_delete, committed = PosixStore.delete, PosixStore.finish_delete, PosixStore.committed
    local = os.environ["CKPT_LOCAL"]

    def hidden(store, subject):
        return committed(store, subject) if str(store._directory).startswith(local) else []

    def kept(store, ref, names):
        if not str(store._directory).startswith(local) or ref.number < 163:
            delete(store, ref, names)

    def finished(store, ref):
        if not str(store._directory).startswith(local) or ref.number < 163:
            finish_delete(store, ref)

    if os.environ["CKPT_WAY"] == "hide":
        PosixStore.committed = hidden
    else:
        PosixStore.delete, PosixStore.finish_delete = kept, finished
"""


def required_outcomes(run: Run) -> dict[str, str]:
    return {v["id"]: v["outcome"] for v in run.document["requirements"] if v["severity"] == "required"}


@pytest.fixture
def tier(create_home: Callable[[str], Path]) -> Path:
    return create_home("tier")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(TORCH, marks=pytest.mark.thorough),
        STREAM,
        pytest.param("--ckpt-engine=dcp", marks=pytest.mark.thorough),
    ],
)
def honest(create_home: Callable[[str], Path], request: pytest.FixtureRequest) -> tuple[Run, Path]:
    tier = create_home("tier")
    with temporary_runner(create_home("tiers")) as runner:
        return runner.run(*THREE, TIERED, f"--ckpt-strategy=local-tier={tier}", str(request.param)), tier


@pytest.mark.covers(requirements=OWN)
def test_a_run_on_one_host_meets_all_but_node_loss_and_leaves_nothing_in_either_tier(honest: tuple[Run, Path]) -> None:
    run, tier = honest
    # With one host the loss of a host cannot be tested, so saves in tiers are not certified.
    assert run.code == 8, run.text
    assert {name for name, outcome in required_outcomes(run).items() if outcome != "met"} == {"NODE-LOSS"}
    asked = {"BLOCKING", "LOAD", "INTEGRITY", "COLD", "DURABLE-CALLS", "CRASH-ASYNC", "RETAIN-COMMITTED", *OWN}
    assert asked <= set(required_outcomes(run))
    assert not {"SAVE", "BACKGROUND", "LOST-WORK"} & set(required_outcomes(run))
    assert run.left_on_target == []
    assert list(tier.iterdir()) == []


def test_the_job_continues_after_the_copy_to_the_local_tier_and_the_target_follows(honest: tuple[Run, Path]) -> None:
    run, _ = honest
    for save in run.operations("save"):
        # On a busy machine, a small save may end before the job's thread gets a processor again.
        assert save["staged_seconds"] < save["stored_seconds"] <= save["seconds"]
        assert save["staged_seconds"] <= save["returned_seconds"]
    found = run.measurement()
    assert found["drains"] == {"every": 10, "target_share": 0.1}
    assert found["durability"]["files_synced"] == found["durability"]["files"] > 0


def test_restores_take_the_newest_complete_checkpoint(honest: tuple[Run, Path]) -> None:
    run, _ = honest
    tiers = run.measurement()["patterns"]["tiers"]
    assert (tiers["complete"]["tier"], tiers["incomplete"]["tier"]) == ("local", "target")
    assert tiers["incomplete"]["number"] == tiers["complete"]["number"] - 1
    for restore in (tiers["complete"], tiers["incomplete"]):
        assert restore["integrity"]["bytes_checked"] == restore["integrity"]["bytes_expected"] == tiers["bytes"]
    assert [len(tiers[f"{name}_seconds"]) for name in ("undisturbed", "during_drain", "drain")] == [3, 3, 3]


def test_the_report_of_the_run_verifies(honest: tuple[Run, Path]) -> None:
    assert main(["verify", str(honest[0].report)]) == 0


@pytest.mark.thorough
def test_a_drained_checkpoint_that_the_target_does_not_show_fails(runner: Runner, tier: Path) -> None:
    environment = in_every_rank(runner.home, OF_TIERS, CKPT_LOCAL=str(tier), CKPT_WAY="hide")
    run = runner.run(*THREE, TIERED, f"--ckpt-strategy=local-tier={tier}", environment=environment)
    assert run.code == 1, run.text
    assert (required_outcomes(run)["TIER-ORDER"], required_outcomes(run)["DRAIN"]) == ("failed", "met")
    assert run.measurement()["patterns"]["tiers"]["incomplete"]["tier"] == ""


@pytest.mark.thorough
def test_all_other_suites_with_saves_use_both_tiers(runner: Runner, tier: Path) -> None:
    more = ("--ckpt-suite=performance:data-pairs=1,contention,endurance", "--ckpt-keep-last=2")
    run = runner.run(*THREE, TIERED, f"--ckpt-strategy=local-tier={tier}", *more)
    outcomes = {v["id"]: v["outcome"] for v in run.document["requirements"]}
    measured = ("LOAD", "INTEGRITY", "COLD", "DURABLE-CALLS", "RETENTION", "DATA", "NEIGHBOUR", "MIXED")
    assert {name: outcomes[name] for name in measured if outcomes[name] == "not run"} == {}
    found = run.measurement()
    assert found["failure"] is None
    assert found["patterns"]["endurance"]["save_seconds"]
    assert run.left_on_target == []
    assert list(tier.iterdir()) == []


@pytest.mark.thorough
def test_a_local_tier_that_shows_what_was_deleted_fails(runner: Runner, tier: Path) -> None:
    environment = in_every_rank(runner.home, OF_TIERS, CKPT_LOCAL=str(tier), CKPT_WAY="serve")
    run = runner.run(*THREE, TIERED, f"--ckpt-strategy=local-tier={tier}", environment=environment)
    assert run.code == 1, run.text
    assert run.verdict("TIER-ORDER")["reason"] == "missing bytes"
    assert run.measurement()["patterns"]["tiers"]["incomplete"]["tier"] == "local"
    assert list(tier.iterdir()) == []


@pytest.mark.thorough
def test_a_drain_that_trickles_fails_and_what_training_waits_for_does_not(
    runner: Runner, create_home: Callable[[str], Path], tier: Path
) -> None:
    need_fuse()
    with misbehaving(create_home("slow")) as target:
        # So slow that the local tier takes less than half of the time, whatever other load there is.
        target.fault("slow file", seconds=1, path="*optim_states*")
        run = runner.run(*THREE, TIERED, f"--ckpt-strategy=local-tier={tier}", "--cluster=16000", target=target.path)
    assert run.code == 1, run.text
    assert required_outcomes(run)["DRAIN"] == "failed"
    assert all(save["returned_seconds"] < 0.5 * save["seconds"] for save in run.operations("save"))


@pytest.mark.thorough
def test_bits_that_flip_in_the_local_tier_are_drained_and_found(
    runner: Runner, create_home: Callable[[str], Path]
) -> None:
    need_fuse()
    with misbehaving(create_home("flips")) as local:
        local.fault("flipped bit in reads", path="*optim_states*")
        run = runner.run(*THREE, TIERED, f"--ckpt-strategy=local-tier={local.path}")
        assert list(local.path.iterdir()) == []
    assert run.code == 1, run.text
    assert (required_outcomes(run)["INTEGRITY"], required_outcomes(run)["TIER-ORDER"]) == ("failed", "failed")


@pytest.mark.thorough
def test_a_target_that_fails_in_a_drain_fails_drain_and_a_tier_that_runs_full_does_not(
    runner: Runner, create_home: Callable[[str], Path], tier: Path
) -> None:
    need_fuse()
    with misbehaving(create_home("broken")) as target:
        target.fault("EIO in fsync", path="*optim_states*")
        run = runner.run(*THREE, TIERED, f"--ckpt-strategy=local-tier={tier}", target=target.path)
        target.clear()
    assert (required_outcomes(run)["DRAIN"], required_outcomes(run)["BLOCKING"]) == ("failed", "not run")
    assert list(tier.iterdir()) == []
    with misbehaving(create_home("full")) as local:
        local.fault("ENOSPC in write", path="*optim_states*")
        run = runner.run(*THREE, TIERED, f"--ckpt-strategy=local-tier={local.path}")
        local.clear()
    assert (required_outcomes(run)["DRAIN"], required_outcomes(run)["BLOCKING"]) == ("not run", "failed")
    assert run.measurement()["failure"]["lane"] == "local tier"
    assert run.left_on_target == []


@pytest.mark.parametrize(
    ("words", "expected_text"),
    [
        ((), "needs a local tier"),
        (
            ("--ckpt-strategy=local-tier=/tmp", "--ckpt-hosts=a:4,b:4", "--ckpt-engine=safetensors"),
            "no other host finds them",
        ),
        (("--ckpt-strategy=local-tier=/tmp,drain-every=0",), "at least 1 is expected"),
        (("--ckpt-strategy=local-tier=/tmp,target-share=100%",), "less than 100 % is expected"),
        (("--ckpt-strategy=local-tier=/tmp,target-share=50%",), "however fast a drain is"),
        (
            ("--ckpt-strategy=local-tier=/tmp", actions(fault_command="a", repair_command="b")),
            "whether the change affected",
        ),
    ],
)
def test_an_impossible_value_is_refused_with_the_possible_values(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected_text: str
) -> None:
    assert main(["plan", "--cluster=64", "--ckpt-model=llama3-8b", TIERED, *words]) == 4
    assert expected_text in capsys.readouterr().err


def test_a_tier_that_cannot_hold_the_checkpoints_is_refused(runner: Runner, tier: Path, mount: Mounts) -> None:
    for words, expected_text in (
        ((f"--ckpt-strategy=local-tier={tier / 'none'}",), "does not exist"),
        ((f"--ckpt-strategy=local-tier={runner.target}",), "one contains the other"),
        ((f"--ckpt-strategy=local-tier={mount('tmpfs', 1)}",), "Too little space in the local tier"),
    ):
        run = runner.run(*THREE, TIERED, *words)
        assert run.code == 4, run.text
        assert expected_text in run.text
        assert run.left_on_target == []


def test_the_plan_shows_the_rate_that_a_drain_needs(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--cluster=16000", "--ckpt-model=llama3-405b", "--ckpt-mode=full", "--ckpt-ranks=512"]
    assert main(["plan", *words, TIERED, "--ckpt-strategy=local-tier=/mnt/nvme"]) == 0
    text = capsys.readouterr().out
    # The limit is 5.5 intervals of 9.28 min.
    assert "drained within 51 min: 1.86 GB/s" in text
    assert "1 of 10 saves is drained, and the local tier stores 3 checkpoints, 17 TB" in text


def test_the_plan_counts_the_copies_for_partner_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--cluster=16000", "--ckpt-model=llama3-405b", "--ckpt-mode=full", "--ckpt-hosts=h[1-64]:8"]
    assert main(["plan", *words, TIERED, "--ckpt-strategy=local-tier=/mnt/nvme"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "store 4 checkpoints, 22.7 TB: half of them are copies for a partner host" in text

"""End-to-end runs of incremental saves: measurements, verdicts and injected faults.

A full save stores the complete state. Each later save stores a delta, which contains only the changed pages.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.cli.main import main
from tests.support.end_to_end import STREAM, TINY, TORCH, Run, Runner, in_every_rank, temporary_runner
from tests.support.machine import need_fuse
from tests.support.targets.misbehaving import misbehaving

INCREMENTAL = ("--ckpt-strategy=incremental:changed=10%", "--ckpt-operations=3")
THREE = (*TINY, *INCREMENTAL)
OWN = ("CHAIN", "RETAIN-CHAIN")
DCP = "--ckpt-engine=dcp"
SAFETENSORS = "--ckpt-engine=safetensors"

# Two kinds of faults. A store acknowledges the deletion of deltas but still serves them. Or a store loses a committed
# delta, or the full save that deltas build on.
OF_DELTAS = """
import os, pathlib, sys

if "pytest_ckpt.ranks" in sys.orig_argv:
    from pytest_ckpt.targets.posix.store import PosixStore

    delete, finish_delete, commit = PosixStore.delete, PosixStore.finish_delete, PosixStore.commit

    def deleted(store, ref, names):
        if not any(name.endswith(".delta") for name in names):
            delete(store, ref, names)

    def finished(store, ref):
        if not list(pathlib.Path(os.environ["CKPT_TARGET"]).glob(f"*/*/checkpoint-{ref.number:04d}/*.delta")):
            finish_delete(store, ref)

    def committed(store, ref, entries, phases):
        proof = commit(store, ref, entries, phases)
        if ref.number == 2:
            for file in pathlib.Path(os.environ["CKPT_TARGET"]).glob(f"*/*/{os.environ['CKPT_LOSES']}"):
                file.unlink()
        return proof

    if os.environ["CKPT_WAY"] == "serve":
        PosixStore.delete, PosixStore.finish_delete = deleted, finished
    else:
        PosixStore.commit = committed
"""


def required_outcomes(run: Run) -> dict[str, str]:
    return {v["id"]: v["outcome"] for v in run.document["requirements"] if v["severity"] == "required"}


@pytest.fixture(
    scope="module",
    params=[STREAM, *(pytest.param(word, marks=pytest.mark.thorough) for word in (TORCH, DCP, SAFETENSORS))],
)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def honest(create_home: Callable[[str], Path], engine: str) -> Run:
    with temporary_runner(create_home("deltas")) as runner:
        return runner.run(*THREE, engine, "--ckpt-strategy=full-every=2")


@pytest.mark.covers(requirements=("CHAIN", "RETAIN-CHAIN"))
def test_a_run_meets_all_requirements_and_leaves_nothing(honest: Run) -> None:
    assert honest.code == 0, honest.text
    assert set(required_outcomes(honest).values()) == {"met"}
    assert {"SAVE", "LOAD", "INTEGRITY", "COLD", "DURABLE-CALLS", *OWN} <= set(required_outcomes(honest))
    assert honest.left_on_target == []


def test_deltas_write_little_and_restores_read_the_chain(honest: Run) -> None:
    found = honest.measurement()
    whole, delta = found["bytes"], found["save_bytes"][1]
    assert found["save_bytes"] == [whole, delta, whole]
    assert 0.05 < delta / whole < 0.15
    assert found["load_bytes"] == [whole, whole + delta, whole]
    assert [o["bytes"] for o in honest.operations("save")] == found["save_bytes"]
    assert [o["bytes"] for o in honest.operations("load")] == found["load_bytes"]
    integrity = found["integrity"]
    assert integrity["bytes_checked"] == integrity["bytes_expected"] == sum(found["load_bytes"])


def test_a_chain_outlives_those_that_were_deleted(honest: Run) -> None:
    chains = honest.measurement()["patterns"]["chains"]
    assert (chains["deltas"], chains["deleted"], chains["misses_deleted"]) == (2, 3, True)
    assert chains["integrity"]["bytes_checked"] == chains["integrity"]["bytes_expected"]
    assert chains["deleted_bytes"] == sum(honest.measurement()["save_bytes"])


def test_the_report_of_the_run_verifies(honest: Run) -> None:
    assert main(["verify", str(honest.report)]) == 0


@pytest.mark.thorough
@pytest.mark.parametrize("engine", [TORCH, STREAM])
def test_deltas_run_in_the_background_and_full_saves_stall(runner: Runner, engine: str) -> None:
    run = runner.run(*THREE, "--ckpt-strategy=hybrid:full-every=2", engine)
    assert run.code == 0, run.text
    assert set(required_outcomes(run).values()) == {"met"}
    asked = {"BLOCKING", "BACKGROUND", "LOST-WORK", "CRASH-ASYNC", "LOAD", "INTEGRITY", *OWN}
    assert asked <= set(required_outcomes(run))
    assert "SAVE" not in required_outcomes(run)
    saves = run.operations("save")
    assert [save["staged_seconds"] < save["stored_seconds"] for save in saves] == [False, True, False]
    assert "stage" in saves[1]["phases"]
    assert run.left_on_target == []


@pytest.mark.thorough
def test_a_bit_that_flips_in_a_delta_is_named(runner: Runner, create_home: Callable[[str], Path]) -> None:
    need_fuse()
    with misbehaving(create_home("flips")) as target:
        target.fault("flipped bit in reads", path="*.delta")
        run = runner.run(*THREE, target=target.path)
        assert run.left_on_target == []
    assert run.code == 1, run.text
    assert (required_outcomes(run)["INTEGRITY"], required_outcomes(run)["RETAIN-CHAIN"]) == ("failed", "failed")
    assert {fault["file"].rpartition(".")[2] for fault in run.measurement()["integrity"]["faults"]} == {"delta"}


@pytest.mark.thorough
@pytest.mark.parametrize("loses", ["checkpoint-0002/1.delta", "checkpoint-0001/*_1_*optim_states.pt"])
def test_a_delta_or_its_full_save_that_is_lost_ends_the_load_that_needs_it(runner: Runner, loses: str) -> None:
    way = {"CKPT_WAY": "lose", "CKPT_LOSES": loses}
    environment = in_every_rank(runner.home, OF_DELTAS, CKPT_TARGET=str(runner.target), **way)
    run = runner.run(*THREE, environment=environment)
    assert run.code == 1, run.text
    assert (required_outcomes(run)["LOAD"], required_outcomes(run)["CHAIN"]) == ("failed", "failed")
    failure = run.measurement()["failure"]
    assert (failure["errno"], failure["rank"]) == ("ENOENT", 1)
    assert run.left_on_target == []


@pytest.mark.thorough
def test_a_delta_that_is_served_when_it_was_deleted_fails_the_chain(runner: Runner) -> None:
    environment = in_every_rank(runner.home, OF_DELTAS, CKPT_TARGET=str(runner.target), CKPT_WAY="serve")
    run = runner.run(*THREE, environment=environment)
    assert run.code == 1, run.text
    verdict = run.verdict("CHAIN")
    assert (verdict["outcome"], verdict["reason"]) == ("failed", "missing bytes")


@pytest.mark.parametrize(
    ("words", "expected_text"),
    [
        (("--ckpt-strategy=incremental",), "needs the share of the pages that change"),
        (("--ckpt-strategy=incremental:changed=0%",), "more than 0 % and less than 100 % is expected"),
        (("--ckpt-strategy=incremental:changed=0.5%",), "1 % or more is expected"),
        ((*INCREMENTAL, "--ckpt-strategy=full-every=1"), "2 or more is expected"),
        ((*INCREMENTAL, "--ckpt-keep-last=2"), "a delta is of no use without those before it"),
    ],
)
def test_an_impossible_value_is_refused_with_the_possible_values(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected_text: str
) -> None:
    assert main(["plan", "--cluster=64", "--ckpt-model=llama3-8b", *words]) == 4
    assert expected_text in capsys.readouterr().err


def test_the_plan_shows_what_is_written_and_what_a_restore_reads(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--cluster=16000", "--ckpt-model=llama3-405b", "--ckpt-mode=full", "--ckpt-ranks=512"]
    assert main(["plan", *words, "--ckpt-strategy=incremental:changed=10%"]) == 0
    text = capsys.readouterr().out
    assert "a full save, then 9 deltas of 568 GB; " in text
    assert "1.9 x a checkpoint" in text
    # Full saves of 5.68 TB every 9.28 min would be 882 TB a day.
    assert "cluster writes 168 TB a day" in text


@pytest.mark.thorough
def test_keep_files_prevents_deletion_and_leaves_the_chains_unjudged(runner: Runner) -> None:
    run = runner.run(*THREE, "--ckpt-keep-files")
    assert run.code == 8, run.text
    assert (required_outcomes(run)["CHAIN"], required_outcomes(run)["RETAIN-CHAIN"]) == ("not run", "not run")
    assert "--ckpt-keep-files" in run.verdict("RETAIN-CHAIN")["because"]

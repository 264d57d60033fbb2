"""Storage that returns wrong bytes: the tests damage files between saves and loads."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.end_to_end import HERE, SMALLEST, TORCH, Run, Runner, temporary_runner

MODEL, OPTIMIZER = "zero_pp_rank_{}_mp_rank_0_model_states.pt", "zero_pp_rank_{}_mp_rank_0_optim_states.pt"


def corrupted(runner: Runner, *kinds: str) -> Run:
    """Make a run whose command for dropping caches damages the saved files.

    ``kinds`` are types of damage from corrupt.py.
    """
    command = shlex.join([sys.executable, str(HERE / "corrupt.py"), str(runner.target), *kinds])
    # The seed is fixed. With other content, a byte after the middle of a torn page may really be zero, and then the
    # page is correct up to that byte.
    return runner.run(*SMALLEST, TORCH, "--ckpt-seed=1", f"--ckpt-drop-caches={command}", cluster=4)


@pytest.fixture(scope="module")
def damaged_pages(create_home: Callable[[str], Path]) -> Run:
    with temporary_runner(create_home("pages")) as runner:
        return corrupted(runner, "flipped", "zeros", "stale", "torn")


@pytest.fixture(scope="module")
def damaged_files(create_home: Callable[[str], Path]) -> Run:
    with temporary_runner(create_home("files")) as runner:
        return corrupted(runner, "short", "unreadable")


@pytest.mark.parametrize(
    ("kind", "checkpoint", "rank", "file", "tensor", "offset", "words"),
    [
        ("flipped", 1, 0, MODEL, "layer_32/1", 8192, "1 bit differs in 1 byte, the first at byte 8200"),
        ("zeros", 1, 1, OPTIMIZER, "optimizer/0", 8192, "the page contains zeros"),
        ("stale", 2, 0, OPTIMIZER, "optimizer/2", 20480, "from checkpoint 1 at the same place"),
        ("torn", 2, 1, OPTIMIZER, "optimizer/4", 28672, "right up to byte 30720 and contains zeros after it"),
    ],
    ids=["flipped", "zeros", "stale", "torn"],
)
def test_a_damaged_page_is_named_by_kind_file_tensor_and_offset(
    damaged_pages: Run, kind: str, checkpoint: int, rank: int, file: str, tensor: str, offset: int, words: str
) -> None:
    fault = _fault(damaged_pages, kind)
    assert (fault["checkpoint"], fault["rank"]) == (checkpoint, rank)
    assert (fault["file"], fault["tensor"], fault["offset"]) == (file.format(rank), tensor, offset)
    assert fault["bytes"] == 4096
    assert words in fault["detail"]
    line = f"{kind}: checkpoint {checkpoint}, rank {rank} on {fault['host']}, {fault['file']}, tensor {tensor}, "
    assert line + f"offset {offset:,}" in damaged_pages.text


def test_every_damaged_page_is_counted_and_no_other(damaged_pages: Run) -> None:
    integrity = damaged_pages.measurement()["integrity"]
    assert integrity["fault_count"] == len(integrity["faults"]) == 4
    assert integrity["bytes_checked"] == integrity["bytes_expected"]


def test_damaged_pages_fail_integrity_and_nothing_else(damaged_pages: Run) -> None:
    assert damaged_pages.code == 1, damaged_pages.text
    assert damaged_pages.outcomes() == {
        "SAVE": "met",
        "LOAD": "met",
        "INTEGRITY": "failed",
        "COLD": "met",
        "DURABLE-CALLS": "met",
    }
    assert "4 faulty places in the loaded data; first: flipped: checkpoint 1" in damaged_pages.text


def test_a_command_that_drops_caches_is_reported_in_the_report(damaged_pages: Run) -> None:
    method = damaged_pages.measurement()["cache"]["method"]
    assert method.startswith("command on every host: ")
    assert "corrupt.py" in method


@pytest.mark.thorough
def test_files_in_each_others_place_are_misplaced(runner: Runner) -> None:
    run = corrupted(runner, "misplaced")
    assert run.code == 1, run.text
    assert run.outcomes()["INTEGRITY"] == "failed"
    assert run.outcomes()["LOAD"] == "met"
    for rank, other in ((0, 1), (1, 0)):
        fault = next(f for f in run.measurement()["integrity"]["faults"] if f["rank"] == rank)
        assert (fault["kind"], fault["checkpoint"]) == ("misplaced", 1)
        assert (fault["file"], fault["tensor"], fault["offset"]) == (OPTIMIZER.format(rank), "optimizer/0", 0)
        assert f"belongs to rank {other}, " in fault["detail"]


@pytest.mark.thorough
def test_a_file_that_was_cut_off_is_short(damaged_files: Run) -> None:
    fault = _fault(damaged_files, "short")
    assert (fault["checkpoint"], fault["rank"], fault["file"]) == (1, 1, OPTIMIZER.format(1))


@pytest.mark.thorough
def test_a_file_with_other_bytes_where_it_begins_is_unreadable(damaged_files: Run) -> None:
    fault = _fault(damaged_files, "unreadable")
    assert (fault["checkpoint"], fault["rank"], fault["file"]) == (2, 0, MODEL.format(0))
    assert "torch.load cannot read it" in fault["detail"]


@pytest.mark.thorough
def test_a_load_that_did_not_bring_every_byte_is_none(damaged_files: Run) -> None:
    assert damaged_files.code == 1, damaged_files.text
    assert damaged_files.outcomes() == {
        "SAVE": "met",
        "LOAD": "failed",
        "INTEGRITY": "failed",
        "COLD": "met",
        "DURABLE-CALLS": "met",
    }
    assert "its time is not the time of a complete load" in damaged_files.verdict("LOAD")["because"]


def test_the_target_is_empty_after_corruption(damaged_pages: Run) -> None:
    assert damaged_pages.left_on_target == []


def test_a_command_that_cannot_drop_caches_is_the_reason_why_no_load_was_measured(runner: Runner) -> None:
    command = shlex.join(["sh", "-c", "echo no such array >&2; exit 3"])
    run = runner.run(*SMALLEST, f"--ckpt-drop-caches={command}", cluster=4)
    assert run.code == 8, run.text
    assert run.outcomes() == {
        "SAVE": "met",
        "LOAD": "not run",
        "INTEGRITY": "not run",
        "COLD": "not run",
        "DURABLE-CALLS": "met",
    }
    assert "the command that drops caches ended with 3" in run.verdict("LOAD")["because"]
    assert "no such array" in run.text
    assert run.left_on_target == []


def _fault(run: Run, kind: str) -> dict[str, Any]:
    (found,) = (f for f in run.measurement()["integrity"]["faults"] if f["kind"] == kind)
    return found

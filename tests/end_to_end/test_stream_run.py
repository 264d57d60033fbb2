"""End-to-end runs of the built-in engine stream: evidence, memory, and targets with and without O_DIRECT."""

from __future__ import annotations

import shlex
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.subject import OperationRef
from pytest_ckpt.ranks.content import Content, content_seed
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.sizing.models import layout
from pytest_ckpt.sizing.plan import plan_run
from pytest_ckpt.sizing.ramp import RAMP_BYTES
from pytest_ckpt.sizing.stream_buffers import beyond_usual_bytes
from pytest_ckpt.support.errors import UsageError
from tests.support.end_to_end import (
    HERE,
    MEASURED,
    REQUIRED,
    SUBJECT,
    TINY,
    Run,
    Runner,
    in_every_rank,
    processes_of,
    temporary_runner,
)
from tests.support.posix_files import clock_of, committed_in
from tests.support.synthetic_target import mounted

HOST = socket.gethostname()
RANK_BYTES = 100_000_000
SMALLEST = (
    "--ckpt-model=llama3-8b",
    "--ckpt-mode=open",
    "--ckpt-ranks=2",
    "--ckpt-scale=1/1000",
    "--ckpt-operations=3",
    # The depth is fixed, because a ramp may find another number on a busy machine.
    "--ckpt-engine=stream:depth=2",
)
OTHER_TARGET = """
import errno, os, sys

if "pytest_ckpt.ranks" in sys.orig_argv:
    real = os.open

    def refuse(path, flags, *rest, **how):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(path, flags, *rest, **how)

    os.open = refuse
"""
# A target that reserves no space ahead, and is full when rank 1 has written one request of its second checkpoint.
FULL_TARGET = """
import os, sys

if "pytest_ckpt.ranks" in sys.orig_argv:
    from pytest_ckpt.targets.posix import checkpoint

    target, write, in_request = os.environ["FULL_TARGET"], checkpoint.SinkAtOffsets.write_at, []
    checkpoint._allocate = lambda *_: None

    def fill_up(out, offset, data):
        path = os.readlink(f"/proc/self/fd/{out._file.descriptor}")
        if "/checkpoint-0002.partial/zero_pp_rank_1_" in path:
            in_request.append(offset)
            if len(in_request) == 2:
                with open(os.path.join(target, "ballast"), "wb", buffering=0) as ballast:
                    piece = bytes(1 << 20)
                    while piece:
                        try:
                            ballast.write(piece)
                        except OSError:
                            piece = piece[: len(piece) // 2]
        write(out, offset, data)

    checkpoint.SinkAtOffsets.write_at = fill_up
"""


@pytest.fixture(scope="module")
def streamed(create_home: Callable[[str], Path]) -> Run:
    with temporary_runner(create_home("stream")) as runner:
        return runner.run(*SMALLEST, cluster=1)


def test_a_stream_run_ends_with_zero_and_meets_all_that_is_required(streamed: Run) -> None:
    assert streamed.code == 0, streamed.text
    assert streamed.outcomes() == dict.fromkeys(REQUIRED, "met")


def test_its_ranks_need_no_memory_for_the_model_and_no_torch(streamed: Run) -> None:
    """Each rank needs less than 100 MB of memory. The import of torch alone would need twice as much."""
    ranks = streamed.measurement()["ranks"]
    assert [r["rank"] for r in ranks] == [0, 1]
    for rank in ranks:
        assert 20e6 < rank["peak_memory_bytes"] < RANK_BYTES


def test_every_byte_of_every_load_is_compared(streamed: Run) -> None:
    planned = layout("llama3-8b", mode="open", processes=2, scale=1 / 1000)
    integrity = streamed.measurement()["integrity"]
    assert integrity["bytes_checked"] == integrity["bytes_expected"] == 3 * planned.bytes
    assert integrity["fault_count"] == 0
    assert {o["bytes"] for o in streamed.measurement()["operations"]} == {planned.bytes}


@pytest.mark.parametrize("kind", ["save", "load"])
def test_every_operation_is_there_with_its_checkpoint(streamed: Run, kind: str) -> None:
    assert [(o["index"], o["checkpoint"]) for o in streamed.operations(kind)] == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize(
    ("kind", "phases"),
    [
        ("save", {"open", "write", "fsync", "close", "directory", "coordination", "commit"}),
        ("load", {"open", "read", "close"}),
    ],
)
def test_the_phases_of_an_operation_add_up_to_its_time(streamed: Run, kind: str, phases: set[str]) -> None:
    for operation in streamed.operations(kind):
        assert set(operation["phases"]) == phases
        assert operation["seconds"] >= max(operation["rank_seconds"])
        assert sum(operation["phases"].values()) <= operation["seconds"] + 1e-6


def test_no_load_finds_its_data_in_the_page_cache(streamed: Run) -> None:
    for operation in streamed.operations("load"):
        assert operation["resident_bytes"] == 0
        assert operation["mapped_bytes"] > streamed.measurement()["bytes"]


def test_the_report_shows_size_depth_and_buffers_of_requests(streamed: Run) -> None:
    measurement = streamed.measurement()
    assert measurement["engine"] == "stream"
    facts = measurement["engine_facts"]
    assert facts["requests"] == "4 MiB, 2 in flight for each rank"
    assert facts["buffers"].startswith("33.6 MB a rank, ")
    assert {"direct", "save", "load"} <= set(facts)
    page = (streamed.report / "certificate.html").read_text()
    assert facts["requests"] in page


@pytest.mark.parametrize("requirement", ["RETENTION", "DATA"])
def test_unrequested_requirements_are_not_in_the_report(streamed: Run, requirement: str) -> None:
    assert requirement not in {v["id"] for v in streamed.document["requirements"]}
    assert streamed.measurement()[{"RETENTION": "retention", "DATA": "data"}[requirement]] is None


def test_the_target_is_empty_afterwards(streamed: Run) -> None:
    assert streamed.left_on_target == []


# --- other targets ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def undirected(create_home: Callable[[str], Path]) -> Run:
    """A run that keeps its checkpoints, on a target without O_DIRECT."""
    with temporary_runner(create_home("undirected")) as runner:
        environment = in_every_rank(runner.home, OTHER_TARGET)
        return runner.run(
            *TINY, "--ckpt-engine=stream", "--ckpt-keep-files", "--ckpt-engine=io-size=64KiB,depth=2",
            environment=environment,
        )  # fmt: skip


@pytest.mark.thorough
def test_a_target_without_direct_requests_is_measured_and_the_report_mentions_it(undirected: Run) -> None:
    assert undirected.code == 0, undirected.text
    assert undirected.outcomes() == dict.fromkeys(REQUIRED, "met")
    facts = undirected.measurement()["engine_facts"]
    assert facts["direct"] == (
        "not direct: the target refuses O_DIRECT: Invalid argument; "
        "files are read without read-ahead (POSIX_FADV_RANDOM)"
    )
    assert facts["requests"] == "64 KiB, 2 in flight for each rank"
    assert ", I/O of engine stream not direct" in undirected.document["scope"]["text"]


@pytest.mark.thorough
def test_checkpoints_that_were_kept_are_read_by_torch(undirected: Run) -> None:
    from pytest_ckpt.ranks.engines.torch import TorchEngine  # noqa: PLC0415 - the import takes seconds

    planned = layout("llama3-8b", mode="open", processes=2, scale=1 / 10_000)
    content = Content(content_seed(undirected.measurement()["seed"], MEASURED))
    for checkpoint in (1, 2):
        (directory,) = undirected.target.glob(f"*/{SUBJECT}+stream/checkpoint-{checkpoint:04d}")
        for rank in planned.ranks():
            engine = TorchEngine(rank, content, Activity())
            assert engine.load(committed_in(directory), 0, clock_of()) == rank.bytes
            check = engine.verify(checkpoint)
            assert (check.bytes_checked, check.fault_count) == (rank.bytes, 0)


def test_a_target_that_fills_up_in_the_middle_of_a_write_fails_the_save_and_names_the_file(
    runner: Runner, mount: Callable[..., Path]
) -> None:
    target = mount("tmpfs", 64)
    environment = in_every_rank(runner.home, FULL_TARGET, FULL_TARGET=str(target))
    run = runner.run(
        *TINY,
        "--ckpt-engine=stream:io-size=64KiB,depth=4",
        target=target,
        environment=environment,
    )
    assert run.code == 1, run.text
    assert run.outcomes() == {"SAVE": "failed"} | dict.fromkeys(REQUIRED[1:], "not run")
    failure = run.measurement()["failure"]
    assert (failure["kind"], failure["errno"], failure["phase"]) == ("error", "ENOSPC", "write")
    assert str(from_plain(OperationRef, failure["operation"])) == f"{SUBJECT}/stream save 2"
    assert failure["file"].startswith(f"zero_pp_rank_{failure['rank']}_mp_rank_0_")
    because = run.verdict("SAVE")["because"]
    assert because.startswith(
        f"Rank {failure['rank']} on {HOST} failed in {SUBJECT}/stream save 2 write of {failure['file']}"
    )
    assert "ENOSPC: No space left on device" in because
    assert [o["index"] for o in run.operations("save")] == [1]
    assert processes_of(run.run_id) == []
    assert run.left_on_target == ["ballast"]


@pytest.fixture(scope="module")
def corrupted(create_home: Callable[[str], Path]) -> Run:
    with temporary_runner(create_home("corrupted")) as runner:
        words = [sys.executable, str(HERE / "corrupt.py"), str(runner.target), "flipped", "short", "unreadable"]
        return runner.run(*TINY, "--ckpt-engine=stream", f"--ckpt-drop-caches={shlex.join(words)}")


def faults(run: Run, kind: str) -> list[dict[str, Any]]:
    return [f for f in run.measurement()["integrity"]["faults"] if f["kind"] == kind]


def test_a_flipped_bit_is_named_as_with_torch(corrupted: Run) -> None:
    (fault,) = faults(corrupted, "flipped")
    assert (fault["checkpoint"], fault["rank"]) == (1, 0)
    assert fault["file"] == "zero_pp_rank_0_mp_rank_0_model_states.pt"
    assert (fault["tensor"], fault["offset"]) == ("layer_32/1", 8192)
    assert "1 bit differs in 1 byte, the first at byte 8200" in fault["detail"]


def test_a_file_that_was_cut_off_is_short(corrupted: Run) -> None:
    (fault,) = faults(corrupted, "short")
    assert (fault["checkpoint"], fault["rank"]) == (1, 1)
    assert fault["file"] == "zero_pp_rank_1_mp_rank_0_optim_states.pt"


def test_a_broken_container_is_unreadable(corrupted: Run) -> None:
    (fault,) = faults(corrupted, "unreadable")
    assert (fault["checkpoint"], fault["rank"], fault["offset"]) == (2, 0, 0)
    assert fault["file"] == "zero_pp_rank_0_mp_rank_0_model_states.pt"


def test_faults_fail_integrity_and_the_load_that_lacked_bytes(corrupted: Run) -> None:
    assert corrupted.code == 1, corrupted.text
    assert "Traceback" not in corrupted.text
    assert corrupted.outcomes() == {
        "SAVE": "met",
        "LOAD": "failed",
        "INTEGRITY": "failed",
        "COLD": "met",
        "DURABLE-CALLS": "met",
    }
    assert corrupted.measurement()["integrity"]["fault_count"] == 3
    assert corrupted.left_on_target == []


# --- its options -----------------------------------------------------------------------------------------------------


def settled(**options: str) -> Any:
    return resolve({f"ckpt_{name}": value for name, value in options.items()}, {})


@given(steps=st.integers(1, 256))
def test_a_request_may_be_any_multiple_of_64_kib_up_to_16_mib(steps: int) -> None:
    assert settled(io_size=f"{steps * 64}KiB").io_size_bytes == steps << 16


@given(size=st.integers(0, 64 << 20).filter(lambda n: n % (64 << 10) or not 0 < n <= 16 << 20))
def test_any_other_request_is_refused(size: int) -> None:
    with pytest.raises(UsageError, match="a multiple of 64KiB up to 16MiB is expected"):
        settled(io_size=str(size))


@pytest.mark.parametrize("depth", ["1", "2", "16"])
def test_up_to_sixteen_requests_may_be_in_flight(depth: str) -> None:
    assert settled(io_depth=depth).io_depth == int(depth)


@pytest.mark.parametrize("depth", ["0", "-1", "17", "many", "2.5"])
def test_any_other_depth_is_refused(depth: str) -> None:
    with pytest.raises(UsageError, match=f"--ckpt-engine=stream:depth {depth}: a whole number"):
        settled(io_depth=depth)


@pytest.mark.parametrize(
    "option",
    ["--ckpt-engine=io-size=100KiB", "--ckpt-engine=io-size=17MiB", "--ckpt-engine=depth=0", "--ckpt-engine=depth=17"],
)
def test_a_refused_option_ends_the_run_before_it_begins(runner: Runner, option: str) -> None:
    run = runner.run(*SMALLEST, option)
    assert run.code == 4
    name, value = option.removeprefix("--ckpt-engine=").split("=")
    assert f"--ckpt-engine=stream:{name} {value}" in run.text
    assert "Traceback" not in run.text
    assert run.left_on_target == []
    assert not run.report.exists()


@pytest.mark.parametrize("model", MODELS)
def test_a_stream_run_is_planned_with_the_same_memory_for_every_model(model: str) -> None:
    settings = settled(cluster="16000", model=model, mode="subset", engine="stream")
    (planned,) = plan_run(settings, mounted("ext4")).checkpoints
    # This includes the buffers for the largest number of requests in flight that the ramp may find.
    rank_bytes = RANK_BYTES + beyond_usual_bytes(settings.io_size_bytes, 16) + RAMP_BYTES
    assert planned.rank_memory_bytes == (rank_bytes,) * 8
    assert planned.state_bytes == (0,) * 8
    assert planned.host_memory_bytes == (8 * rank_bytes,)
    by_torch = plan_run(settled(cluster="16000", model=model, mode="subset", engine="torch"), mounted("ext4"))
    assert by_torch.checkpoints[0].largest_rank_memory_bytes > planned.layout.largest_rank_bytes

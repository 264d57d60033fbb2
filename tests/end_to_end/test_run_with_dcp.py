"""End-to-end runs of the engine dcp, which saves and loads with torch.distributed.checkpoint."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence.verification import verify_directory
from tests.support.bare_dcp import load_bare, whole_tensors
from tests.support.end_to_end import REQUIRED, SUBJECT, TINY, Run, Runner, temporary_runner
from tests.support.hidden_hosts import namespace_launcher
from tests.support.machine import need_fuse, patience
from tests.support.matrix_of_speed import OF_CANARIES
from tests.support.targets.memory import memory_server
from tests.support.targets.misbehaving import misbehaving

DCP = "--ckpt-engine=dcp"
FILES = {"__0_0.distcp", "__1_0.distcp", ".metadata"}
# A command that drops caches after it has damaged a file of the first checkpoint.
DAMAGE = """
import os, pathlib, sys
(directory,) = pathlib.Path(sys.argv[1]).glob("pytest-ckpt-*/*/checkpoint-0001")
file, way = directory / sys.argv[2], sys.argv[3]
if way == "cut":
    os.truncate(file, file.stat().st_size // 2)
elif way == "remove":
    file.unlink()
else:
    with file.open("r+b") as out:
        out.write(b"no pickle")
for path in directory.parent.glob("*/*"):
    with path.open("rb") as data:
        os.fsync(data.fileno())
        os.posix_fadvise(data.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
"""


@pytest.fixture(scope="module")
def saved(create_home: Callable[[str], Path]) -> Run:
    with temporary_runner(create_home("dcp")) as runner:
        return runner.run(*TINY, DCP)


def test_a_run_ends_with_zero_meets_all_that_is_required_and_leaves_nothing(saved: Run) -> None:
    assert saved.code == 0, saved.text
    assert saved.outcomes() == dict.fromkeys(REQUIRED, "met")
    assert saved.left_on_target == []
    assert "Traceback" not in saved.text


def test_every_byte_of_every_load_is_compared_and_none_was_cached(saved: Run) -> None:
    saved.assert_loads_compared_and_uncached(SUBJECT)


def test_the_report_separates_the_calls_of_the_library_from_added_calls(saved: Run) -> None:
    measurement = saved.measurement()
    assert measurement["subject"] == f"{SUBJECT}/dcp"
    assert measurement["engine_facts"]["added"].startswith("fsync of each file once more, in every save")
    assert measurement["engine_facts"]["directory"].startswith("fsync by one rank of each host")
    assert "FileSystemWriter" in measurement["engine_facts"]["save"]
    for save in saved.operations("save"):
        assert {"open", "write", "fsync", "directory", "coordination", "commit"} == set(save["phases"])
        assert sum(save["phases"].values()) <= save["seconds"] + 1e-6


def test_every_file_of_the_library_is_counted_as_durable(saved: Run) -> None:
    durability = saved.measurement()["durability"]
    assert durability["files"] == durability["files_synced"] == 2 * len(FILES)
    (planned,) = saved.document["checkpoints"]
    assert planned["files"] == len(FILES)
    assert planned["engine"]["files"]["of_rank"] == "__{rank}_0.distcp"


def test_the_engine_takes_no_more_memory_than_it_declares(saved: Run) -> None:
    assert not [s for s in saved.document["disclosures"] if "more memory" in s]


def test_the_report_of_the_run_verifies(saved: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = {
        check.name: check.outcome for check in verify_directory(saved.report, None) if check.outcome != "not checked"
    }
    assert set(found.values()) == {"holds"}, found
    assert main(["verify", str(saved.report)]) == 0
    assert "UNCHANGED" in capsys.readouterr().out


@pytest.fixture(scope="module")
def kept_run(create_home: Callable[[str], Path]) -> Run:
    """A run of four ranks that keeps its checkpoints."""
    with temporary_runner(create_home("kept")) as runner:
        return runner.run(*TINY, DCP, "--ckpt-ranks=4", "--ckpt-keep-files")


@pytest.mark.thorough
@pytest.mark.parametrize("processes", [1, 2, 4])
def test_the_library_alone_loads_what_was_saved_with_fewer_ranks_too(
    kept_run: Run, tmp_path: Path, processes: int
) -> None:
    assert kept_run.code == 0, kept_run.text
    (directory,) = kept_run.target.glob("pytest-ckpt-*/*/checkpoint-0002")
    found = load_bare(directory, tmp_path, processes)
    assert found == whole_tensors(
        kept_run.measurement("llama3-8b-open-4"), kept_run.document["run"]["seed"], checkpoint=2
    )


@pytest.mark.thorough
def test_a_bit_that_storage_flips_turns_integrity(runner: Runner, create_home: Callable[[str], Path]) -> None:
    need_fuse()
    with misbehaving(create_home("flips")) as target:
        target.fault("flipped bit in reads", path="*/__1_0.distcp")
        run = runner.run(*TINY, DCP, target=target.path)
        assert run.left_on_target == []
    assert run.code == 1, run.text
    outcomes = run.outcomes()
    assert (outcomes["INTEGRITY"], outcomes["SAVE"], outcomes["DURABLE-CALLS"]) == ("failed", "met", "met")
    fault = run.measurement()["integrity"]["faults"][0]
    assert (fault["kind"], fault["rank"], fault["file"]) == ("flipped", 1, "__1_0.distcp")
    assert fault["tensor"].startswith("optimizer/")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fault", "path", "rank", "file"),
    [
        ("EIO in write", "*/__1_0.distcp", 1, "__1_0.distcp"),
        ("EIO in fsync", "*/__1_0.distcp", 1, "__1_0.distcp"),
        ("EIO in write", "*/.metadata*", 0, ".metadata.tmp"),
    ],
)
def test_an_error_of_the_storage_is_named_with_its_rank_and_file(
    runner: Runner, create_home: Callable[[str], Path], fault: str, path: str, rank: int, file: str
) -> None:
    """If a call of a rank fails, the failure names this rank and the file.

    The run has two ranks, and the library reports the error to both ranks. The failure does not name the rank whose
    call succeeded.
    """
    need_fuse()
    with misbehaving(create_home("refuses")) as target:
        target.fault(fault, path=path)
        run = runner.run(*TINY, DCP, target=target.path)
        assert run.left_on_target == []
    assert run.code == 1, run.text
    assert run.verdict("SAVE")["outcome"] == "failed"
    failure = run.measurement()["failure"]
    assert (failure["rank"], failure["file"], failure["errno"]) == (rank, file, "EIO")
    assert failure["phase"] in {"write", "fsync"}
    assert "other rank" not in failure["message"]
    assert "Traceback" not in run.text


@pytest.mark.thorough
def test_a_rank_that_hangs_is_named_and_not_the_one_that_waits_for_it(
    runner: Runner, create_home: Callable[[str], Path]
) -> None:
    need_fuse()
    deadline = max(10, patience(3))
    with misbehaving(create_home("hangs")) as target:
        target.fault("hang", operation="write", path="*/__1_0.distcp")
        run = runner.run(*TINY, DCP, f"--ckpt-io-timeout={deadline:.0f}s", target=target.path)
    assert run.code == 1, run.text
    failure = run.measurement()["failure"]
    assert (failure["kind"], failure["rank"], failure["phase"]) == ("hung", 1, "write")
    assert failure["file"] == "__1_0.distcp"


@pytest.mark.thorough
def test_a_rank_that_is_killed_in_a_save_is_named_and_all_is_removed(
    runner: Runner, create_home: Callable[[str], Path]
) -> None:
    need_fuse()
    with misbehaving(create_home("killed")) as target:
        target.fault("slow file", path="*/__1_0.distcp", seconds=0.3)
        started = runner.start(*TINY, DCP, target=target.path)
        started.until(lambda: target.hits("slow file"), "rank 1 writes")
        os.kill(started.pid_of_rank(1), signal.SIGKILL)
        run = started.finish()
        assert list(target.path.iterdir()) == []
    # Storage does not kill ranks, so nothing was decided.
    assert run.code == 8, run.text
    failure = run.measurement()["failure"]
    assert (failure["kind"], failure["rank"]) == ("killed", 1)
    assert "Traceback" not in run.text


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("file", "way", "kind"),
    [
        ("__1_0.distcp", "cut", "short"),
        (".metadata", "overwrite", "unreadable"),
        ("__1_0.distcp", "remove", ""),
        (".metadata", "remove", ""),
    ],
)
def test_a_damaged_file_is_a_fault_and_a_missing_one_an_error(runner: Runner, file: str, way: str, kind: str) -> None:
    command = shlex.join([sys.executable, "-c", DAMAGE, str(runner.target), file, way])
    run = runner.run(*TINY, DCP, f"--ckpt-drop-caches={command}")
    assert run.code == 1, run.text
    assert run.outcomes()["LOAD"] == "failed"
    assert run.left_on_target == []
    assert "Traceback" not in run.text
    if kind:
        assert run.outcomes()["INTEGRITY"] == "failed"
        faults = run.measurement()["integrity"]["faults"]
        assert {(f["kind"], f["file"]) for f in faults} == {(kind, file)}
    else:
        # The missing file is noticed when its cached pages are counted before the load.
        failure = run.measurement()["failure"]
        assert failure["errno"] == "ENOENT"
        assert str(failure["rank"]) in file or file == ".metadata"


@pytest.mark.thorough
def test_patterns_in_which_single_ranks_load_are_not_run_and_the_reason_is_given(runner: Runner) -> None:
    words = ("--ckpt-suite=performance,contention", "--ckpt-gate-table=posix-local")
    run = runner.run(*TINY, DCP, "--ckpt-suite=data-pairs=1", "--ckpt-keep-last=1", *words)
    assert run.left_on_target == []
    patterns = run.measurement()["patterns"]
    for name in ("storm", "shifted", "joined", "split"):
        assert "load together" in patterns["not_run"][name]
    resharded_by_the_library(run, saved_by=2)
    assert "cannot be paced" in patterns["not_run"]["neighbour"]
    assert "cannot be paced" in patterns["not_run"]["mixed"]
    assert run.outcomes() == dict.fromkeys(REQUIRED, "met")


def resharded_by_the_library(run: Run, saved_by: int) -> None:
    """Check that a checkpoint of ``saved_by`` ranks was loaded by twice as many ranks, and by half as many.

    All bytes were loaded and correct, and no byte came from the page cache. RESHAPED reports the slowest load.
    """
    found = run.measurement(f"llama3-8b-open-{saved_by}")["patterns"]["resized"]
    (planned,) = run.document["checkpoints"]
    assert (found["saved_by"], found["not_run"], found["failure"]) == (saved_by, {}, None)
    for name, ranks in (("doubled", 2 * saved_by), ("halved", saved_by // 2)):
        loads = found[name]
        assert len(loads["operations"]) == 3
        assert [len(load["rank_seconds"]) for load in loads["operations"]] == [ranks] * 3
        assert [load["resident_bytes"] for load in loads["operations"]] == [0] * 3
        assert min(loads["rank_bytes"]) > 0
        assert sum(loads["rank_bytes"]) == planned["bytes"]
        assert loads["integrity"] == {
            "bytes_expected": 3 * planned["bytes"], "bytes_checked": 3 * planned["bytes"], "fault_count": 0,
            "faults": [],
        }  # fmt: skip
    verdict = run.verdict("RESHAPED", f"llama3-8b-open-{saved_by}")
    slowest = max(load["seconds"] for name in ("doubled", "halved") for load in found[name]["operations"])
    assert (verdict["outcome"], verdict["measured"]) == ("met", slowest)
    certificate = (run.report / "certificate.html").read_text()
    assert found["doubled"]["reads"] in certificate
    assert found["halved"]["reads"] in certificate


# Damages a file of the checkpoint that other numbers of ranks load, once, before their first load.
DAMAGE_OF_RESIZED = """
import os, pathlib, sys
for file in pathlib.Path(sys.argv[1]).glob("pytest-ckpt-*/*/checkpoint-0032/" + sys.argv[2]):
    if sys.argv[3] == "remove":
        file.unlink()
    elif not pathlib.Path(sys.argv[4]).exists():
        with file.open("r+b") as out:
            out.seek(file.stat().st_size // 2)
            byte = out.read(1)[0]
            out.seek(file.stat().st_size // 2)
            out.write(bytes([byte ^ 255]))
        pathlib.Path(sys.argv[4]).touch()
for path in pathlib.Path(sys.argv[1]).glob("pytest-ckpt-*/*/*/*"):
    with path.open("rb") as data:
        os.fsync(data.fileno())
        os.posix_fadvise(data.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
"""
RESIZED = ("--ckpt-suite=performance,contention", "--ckpt-gate-table=posix-local", "-k", "RESHAPED")


def run_with_damage(runner: Runner, file: str, way: str) -> Run:
    words = [sys.executable, "-c", DAMAGE_OF_RESIZED, str(runner.target), file, way, str(runner.home / "damaged")]
    return runner.run(*TINY, DCP, *RESIZED, f"--ckpt-drop-caches={shlex.join(words)}")


@pytest.mark.thorough
def test_a_wrong_byte_of_one_shard_is_found_by_twice_as_many_ranks(runner: Runner) -> None:
    run = run_with_damage(runner, "__1_0.distcp", "flip")
    verdict = run.verdict("RESHAPED")
    assert (verdict["outcome"], verdict["reason"]) == ("failed", "wrong bytes"), run.text
    resized = run.measurement()["patterns"]["resized"]
    for name, ranks in (("doubled", (2, 3)), ("halved", (0,))):
        faults = resized[name]["integrity"]["faults"]
        assert {(fault["kind"], fault["file"]) for fault in faults} == {("flipped", "__1_0.distcp")}
        assert {fault["rank"] for fault in faults} <= set(ranks)
        assert len({(fault["rank"], fault["offset"]) for fault in faults}) == 1
    assert run.measurement()["integrity"]["fault_count"] == 0
    assert run.left_on_target == []


@pytest.mark.thorough
def test_a_missing_file_of_a_checkpoint_fails_the_load_by_twice_as_many_ranks(runner: Runner) -> None:
    run = run_with_damage(runner, "__1_0.distcp", "remove")
    verdict = run.verdict("RESHAPED")
    assert (verdict["outcome"], verdict["reason"]) == ("failed", "error"), run.text
    resized = run.measurement()["patterns"]["resized"]
    assert (resized["failure"]["errno"], resized["failure"]["operation"]["scenario"]) == ("ENOENT", "resized")
    assert (resized["doubled"], resized["halved"]) == (None, None)
    assert run.left_on_target == []
    assert "Traceback" not in run.text


@pytest.mark.thorough
def test_two_ranks_load_what_one_saved_and_halving_one_rank_is_impossible(runner: Runner) -> None:
    run = runner.run(*TINY, DCP, *RESIZED, "--ckpt-ranks=1")
    verdict = run.verdict("RESHAPED", "llama3-8b-open-1")
    assert (verdict["outcome"], verdict["reason"]) == ("not run", "not possible"), run.text
    assert "One rank cannot be halved" in verdict["because"]
    found = run.measurement("llama3-8b-open-1")["patterns"]["resized"]
    assert found["doubled"]["integrity"]["fault_count"] == 0
    assert set(found["not_run"]) == {"halved"}


def test_the_plan_names_its_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--cluster=64", "--ckpt-model=llama3-8b", DCP, "--ranks"]) == 0
    text = capsys.readouterr().out
    assert "8 ranks, 9 files" in text
    assert "__7_0.distcp" in text
    assert ".metadata" in text


def test_a_target_without_paths_is_refused(runner: Runner) -> None:
    with memory_server() as name:
        options: dict[str, Any] = {"target": f"memory://{name}"}
        run = runner.run(*TINY, "-p", "tests.support.targets.memory_plugin", DCP, **options)
    assert run.code == 4
    assert "--ckpt-engine dcp needs paths" in run.text


@pytest.mark.thorough
def test_ranks_on_several_hosts_find_each_other_and_load_what_they_saved(
    runner: Runner, create_home: Callable[[str], Path]
) -> None:
    """Ranks on two hosts connect to each other, and each host loads only its own files.

    COLD (loads come from storage, not from a cache) is "not run". The kernel does not report the cached pages of this
    target, and the files are too small for timed reads.
    """
    need_fuse()
    launcher = namespace_launcher(runner.home)
    with misbehaving(create_home("blind"), direct_io=True) as target:
        words = ("--ckpt-hosts=left:1,right:1", f"--ckpt-launcher={launcher}")
        run = runner.run(*TINY, DCP, *words, target=target.path)
        assert run.left_on_target == []
    assert run.code == 8, run.text
    measurement = run.measurement()
    assert measurement["hosts"] == ["left", "right"]
    assert measurement["cache"]["by_other_hosts"] is False
    assert run.outcomes() | {"COLD": ""} == dict.fromkeys(REQUIRED, "met") | {"COLD": ""}
    assert "10 parts of 64 MiB on each host are needed" in run.verdict("COLD")["because"]


@pytest.mark.thorough
def test_timed_reads_are_of_the_library_s_files(runner: Runner, create_home: Callable[[str], Path]) -> None:
    need_fuse()
    with misbehaving(create_home("cached"), direct_io=True) as target:
        target.fault("client cache survives the drop", survives=False)
        words = (*OF_CANARIES, f"--ckpt-drop-caches={shlex.join(target.drop_command)}")
        run = runner.run(*TINY, DCP, *words, target=target.path)
        assert run.left_on_target == []
    subject = "llama3-8b-open-1"
    verdict = run.verdict("COLD", subject)
    assert (verdict["outcome"], verdict["basis"]) == ("met", "timed canary"), run.text
    (reads,) = run.measurement(subject)["cache"]["canaries"]
    assert len(reads["first_read_seconds"]) >= 10


@pytest.mark.thorough
def test_copies_are_saved_by_the_library_while_the_job_continues(runner: Runner) -> None:
    run = runner.run(*TINY, DCP, "--ckpt-strategy=async")
    assert run.code == 0, run.text
    outcomes = {v["id"]: v["outcome"] for v in run.document["requirements"] if v["severity"] == "required"}
    assert {"CRASH-ASYNC", "RETAIN-COMMITTED"} < set(outcomes)
    assert set(outcomes.values()) == {"met"}
    found = run.measurement()["patterns"]["crashes"]
    assert len(found["kills"]) == found["planned"]
    assert found["integrity"]["bytes_checked"] == found["planned"] * found["bytes"]
    for save in run.operations("save"):
        assert save["returned_seconds"] < save["stored_seconds"] <= save["seconds"]
    assert run.left_on_target == []


@pytest.mark.thorough
def test_an_error_in_the_background_names_the_rank_that_met_it(
    runner: Runner, create_home: Callable[[str], Path]
) -> None:
    need_fuse()
    with misbehaving(create_home("broken")) as target:
        target.fault("EIO in write", path="*__1_0.distcp")
        run = runner.run(*TINY, DCP, "--ckpt-strategy=async", target=target.path)
        target.clear()
    assert run.code == 1, run.text
    failure = run.measurement()["failure"]
    assert (failure["rank"], failure["errno"], failure["lane"]) == (1, "EIO", "background save")
    assert run.verdict("BACKGROUND")["outcome"] == "failed"

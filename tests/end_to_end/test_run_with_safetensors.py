"""End-to-end runs of the engine safetensors, which writes files with Hugging Face's library."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence.verification import verify_directory
from pytest_ckpt.facts.file_rules import SAFETENSORS_FILES
from pytest_ckpt.ranks.content import Content, TensorKey, content_seed
from pytest_ckpt.sizing.files import names_of, shard_files
from pytest_ckpt.sizing.models import Layout, layout
from tests.support.bare_safetensors import load_bare
from tests.support.end_to_end import MEASURED, REQUIRED, SUBJECT, TINY, Run, Runner, temporary_runner
from tests.support.machine import need_fuse
from tests.support.targets.memory import memory_server
from tests.support.targets.misbehaving import misbehaving

SAFETENSORS = "--ckpt-engine=safetensors"
BOTH = "--ckpt-engine=safetensors,stream"
OWN = f"{SUBJECT}/safetensors"
INDEX = "model.safetensors.index.json"
# The largest file of rank 1.
SHARD = "shard-00002-model-00002-of-00004.safetensors"
# A command that drops caches after it has damaged a file of the first checkpoint.
DAMAGE = """
import os, pathlib, shutil, sys
(directory,) = pathlib.Path(sys.argv[1]).glob("pytest-ckpt-*/*/checkpoint-0001")
file, way = directory / sys.argv[2], sys.argv[3]
if way == "cut":
    os.truncate(file, file.stat().st_size // 2)
elif way == "remove":
    file.unlink()
elif way == "other checkpoint":
    shutil.copy(directory.parent / "checkpoint-0002" / file.name, file)
else:
    with file.open("r+b") as out:
        size = file.stat().st_size
        at = out.seek(size // 2 // 4096 * 4096)
        # More than a page of a tensor, which begins anywhere in one of the file; the file keeps its size.
        out.write(bytes(min(12288, size - at)))
for path in directory.parent.glob("*/*"):
    with path.open("rb") as data:
        os.fsync(data.fileno())
        os.posix_fadvise(data.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
"""


def layout_of(run: Run, subject: str = OWN) -> Layout:
    measurement = run.measurement(subject)
    return layout("llama3-8b", mode="open", processes=measurement["processes"], scale=measurement["scale"])


@pytest.fixture(scope="module")
def saved(create_home: Callable[[str], Path]) -> Run:
    with temporary_runner(create_home("safetensors")) as runner:
        return runner.run(*TINY, BOTH)


def test_a_run_ends_with_zero_meets_all_that_is_required_and_leaves_nothing(saved: Run) -> None:
    assert saved.code == 0, saved.text
    for subject in (OWN, MEASURED):
        assert saved.outcomes(subject) == dict.fromkeys(REQUIRED, "met")
    assert saved.left_on_target == []
    assert "Traceback" not in saved.text


def test_every_byte_of_every_load_is_compared_and_none_was_cached(saved: Run) -> None:
    saved.assert_loads_compared_and_uncached(OWN)


def test_the_report_separates_the_calls_of_the_library_from_added_calls(saved: Run) -> None:
    facts = saved.measurement(OWN)["engine_facts"]
    assert facts["added"].startswith("the index with an fsync, in every save")
    assert facts["directory"].startswith("fsync by one rank of each host")
    assert "safetensors.numpy.save" in facts["save"]
    for save in saved.operations("save", OWN):
        assert {"open", "write", "fsync", "close", "directory", "coordination", "commit"} == set(save["phases"])
        assert sum(save["phases"].values()) <= save["seconds"] + 1e-6


def test_every_file_is_planned_and_counted_as_durable(saved: Run) -> None:
    names = names_of(layout_of(saved), SAFETENSORS_FILES)
    assert {INDEX, SHARD} < names
    durability = saved.measurement(OWN)["durability"]
    assert durability["files"] == durability["files_synced"] == 2 * len(names)
    (planned,) = (c for c in saved.document["checkpoints"] if c["subject"] == OWN)
    assert planned["files"] == len(names)
    assert planned["engine"]["files"] == {
        "of_rank": "shard-{shard}-model-{number}-of-{count}.safetensors",
        "shared": [INDEX],
        "passing": [],
        "maximum_bytes": 5_000_000_000,
    }


def test_the_report_shows_the_cost_of_the_library(saved: Run) -> None:
    (row,) = saved.document["framework_overhead"]
    assert (row["subject"], row["against"]) == (OWN, MEASURED)
    assert row["save_ratio"] > 0
    assert row["load_ratio"] > 0


def test_the_engine_takes_no_more_memory_than_it_declares(saved: Run) -> None:
    assert not [s for s in saved.document["disclosures"] if "more memory" in s]


def test_the_report_of_the_run_verifies(saved: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = {
        check.name: check.outcome for check in verify_directory(saved.report, None) if check.outcome != "not checked"
    }
    assert set(found.values()) == {"holds"}, found
    assert main(["verify", str(saved.report)]) == 0
    assert "UNCHANGED" in capsys.readouterr().out


def test_the_plan_names_its_files_at_any_scale(capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for scale in ("1", "1/1000"):
        words = ["plan", "--cluster=64", "--ckpt-model=llama3-8b", SAFETENSORS, "--ranks", f"--ckpt-scale={scale}"]
        assert main(words) == 0
        texts.append(capsys.readouterr().out)
    for text in texts:
        assert "8 ranks, 33 files" in text
        assert "shard-00008-model-00004-of-00004.safetensors" in text
        assert INDEX in text


@pytest.mark.thorough
def test_the_library_alone_loads_what_a_run_has_saved(create_home: Callable[[str], Path], tmp_path: Path) -> None:
    with temporary_runner(create_home("kept")) as runner:
        kept = runner.run(*TINY, SAFETENSORS, "--ckpt-keep-files")
    assert kept.code == 0, kept.text
    (directory,) = kept.target.glob("pytest-ckpt-*/*/checkpoint-0002")
    content = Content(content_seed(kept.document["run"]["seed"], OWN))
    wanted = {}
    for shard in layout_of(kept).ranks():
        places = [(file.name, tensor) for file in shard_files(shard, SAFETENSORS_FILES) for tensor in file.tensors]
        for number, (place, tensor) in enumerate(places):
            key = TensorKey(checkpoint=2, rank=shard.rank, tensor=number)
            data = content.expected(key, 0, tensor.bytes).tobytes()
            wanted[f"{tensor.name}/rank{shard.rank}"] = (tensor.dtype, data, place)
    assert load_bare(directory, tmp_path) == wanted


@pytest.mark.thorough
def test_a_bit_that_storage_flips_turns_integrity(runner: Runner, create_home: Callable[[str], Path]) -> None:
    need_fuse()
    with misbehaving(create_home("flips")) as target:
        target.fault("flipped bit in reads", path=f"*/{SHARD}")
        run = runner.run(*TINY, SAFETENSORS, target=target.path)
        assert run.left_on_target == []
    assert run.code == 1, run.text
    outcomes = run.outcomes(OWN)
    assert (outcomes["INTEGRITY"], outcomes["SAVE"], outcomes["DURABLE-CALLS"]) == ("failed", "met", "met")
    fault = run.measurement(OWN)["integrity"]["faults"][0]
    assert (fault["kind"], fault["rank"], fault["file"]) == ("flipped", 1, SHARD)
    assert fault["tensor"].startswith("optimizer/")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fault", "rank", "file"),
    [("EIO in write", 1, SHARD), ("EIO in fsync", 1, SHARD), ("EIO in write", 0, INDEX), ("EIO in read", 1, SHARD)],
)
def test_an_error_of_the_storage_is_named_with_its_rank_and_file(
    runner: Runner, create_home: Callable[[str], Path], fault: str, rank: int, file: str
) -> None:
    need_fuse()
    with misbehaving(create_home("refuses")) as target:
        target.fault(fault, path=f"*/{file}")
        run = runner.run(*TINY, SAFETENSORS, target=target.path)
        assert run.left_on_target == []
    assert run.code == 1, run.text
    failure = run.measurement(OWN)["failure"]
    assert (failure["rank"], failure["file"], failure["errno"]) == (rank, file, "EIO")
    assert failure["phase"] == fault.rpartition(" ")[2]
    assert "Traceback" not in run.text


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("file", "way", "kind"),
    [
        (SHARD, "cut", "short"),
        (SHARD, "zero", "zeros"),
        (SHARD, "other checkpoint", "stale"),
        (SHARD, "remove", ""),
        (INDEX, "cut", "short"),
        (INDEX, "zero", "unreadable"),
        (INDEX, "remove", ""),
    ],
)
def test_a_damaged_file_is_a_fault_and_a_missing_one_an_error(runner: Runner, file: str, way: str, kind: str) -> None:
    command = shlex.join([sys.executable, "-c", DAMAGE, str(runner.target), file, way])
    run = runner.run(*TINY, SAFETENSORS, f"--ckpt-drop-caches={command}")
    assert run.code == 1, run.text
    assert run.left_on_target == []
    assert "Traceback" not in run.text
    if kind:
        assert run.outcomes(OWN)["INTEGRITY"] == "failed"
        faults = run.measurement(OWN)["integrity"]["faults"]
        assert kind in {f["kind"] for f in faults}
        assert {f["file"] for f in faults} == {file}
    else:
        # The missing file is noticed when its cached pages are counted before the load.
        assert run.outcomes(OWN)["LOAD"] == "failed"
        assert run.measurement(OWN)["failure"]["errno"] == "ENOENT"


@pytest.mark.thorough
def test_ranks_load_what_others_saved_and_save_in_the_background(runner: Runner) -> None:
    words = ("--ckpt-suite=performance,contention,strategies", "--ckpt-gate-table=posix-local", "--ckpt-strategy=async")
    run = runner.run(*TINY, SAFETENSORS, *words, "--ckpt-strategy=step=10ms")
    assert run.left_on_target == []
    assert "Traceback" not in run.text
    measurement = run.measurement(f"{OWN}/async")
    assert measurement["failure"] is None, run.text
    integrity = measurement["integrity"]
    assert integrity["bytes_checked"] == integrity["bytes_expected"]
    patterns = measurement["patterns"]
    for name in ("storm", "shifted", "joined", "split", "crashes"):
        found = patterns[name]["integrity"]
        assert found["bytes_checked"] == found["bytes_expected"] > 0, name
        assert found["fault_count"] == 0, name
    assert patterns["neighbour"]
    assert all(kill["lost"] == "" for kill in patterns["crashes"]["kills"])


@pytest.mark.thorough
def test_a_target_without_paths_is_saved_to_and_loaded_from(runner: Runner) -> None:
    with memory_server() as name:
        options: dict[str, Any] = {"target": f"memory://{name}"}
        run = runner.run(*TINY, "-p", "tests.support.targets.memory_plugin", SAFETENSORS, **options)
    integrity = run.measurement(OWN)["integrity"]
    assert integrity["bytes_checked"] == integrity["bytes_expected"], run.text
    assert integrity["fault_count"] == 0

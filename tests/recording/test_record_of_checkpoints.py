"""``pytest-ckpt record --checkpoint`` builds a pattern from an existing checkpoint, and refuses other files.

A pattern is a recording of a job's file calls that the engine replay can repeat.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.facts.pattern import MAXIMUM_FILES, Pattern, read_pattern
from pytest_ckpt.facts.targets import Access
from pytest_ckpt.recording.checkpoints import WRITE_BYTES, pattern_of_checkpoint
from pytest_ckpt.recording.listing import MAXIMUM_LISTED, Listed
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.targets.objects.client import Bucket
from pytest_ckpt.targets.objects.keys import BucketPrefix
from tests.support.doc_pages import DOCS
from tests.support.targets.object_faults import faulty_store
from tests.support.targets.object_server import BUCKET

SECRET = "our-secret-run"

DCP = {f"__{rank}_{part}.distcp": 30_000_000 + rank for rank in range(3) for part in range(2)} | {".metadata": 5000}
DEEPSPEED_1 = {
    **{f"bf16_zero_pp_rank_{d}_mp_rank_{m:02}_optim_states.pt": 9_000_000 for d in range(2) for m in range(2)},
    **{f"mp_rank_{m:02}_model_states.pt": 4_000_000 + m for m in range(2)},
}
DEEPSPEED_3 = {
    f"global_step7/zero_pp_rank_{d}_mp_rank_00_{what}_states.pt": size
    for d in range(4) for what, size in (("model", 1000), ("optim", 8_000_000))
} | {"latest": 12}  # fmt: skip
MEGATRON_LEGACY = {
    f"mp_rank_0{t}_00{p}/{name}": 7_000_000 for t in range(2) for p in range(2)
    for name in ("model_optim_rng.pt", "distrib_optim.pt")
}  # fmt: skip
SAFETENSORS = {f"model-0000{n}-of-00003.safetensors": 5_000_000 for n in (1, 2, 3)} | {
    "model.safetensors.index.json": 900, "config.json": 700,
}  # fmt: skip
TRAINER = SAFETENSORS | {"rng_state_0.pth": 15_000, "rng_state_1.pth": 15_000} | {
    f"global_step7/bf16_zero_pp_rank_{d}_mp_rank_00_optim_states.pt": 6_000_000 for d in range(2)
}  # fmt: skip
TORCH = {f"rank{r}.pt": 3_000_000 for r in range(4)}


def files(sizes: dict[str, int], changed: float = 0.0) -> list[Listed]:
    return [Listed(name, size, changed) for name, size in sizes.items()]


def pattern_of(sizes: dict[str, int]) -> Pattern:
    return pattern_of_checkpoint(files(sizes), "", "test")


def bytes_of_ranks(pattern: Pattern) -> list[int]:
    return [sum(file.bytes for file in pattern.files if file.rank == rank) for rank in range(pattern.ranks)]


@pytest.mark.parametrize(
    ("sizes", "of_ranks"),
    [
        (DCP, [60_005_000, 60_000_002, 60_000_004]),
        (DEEPSPEED_1, [13_000_000, 13_000_001, 9_000_000, 9_000_000]),
        (DEEPSPEED_3, [8_001_012, 8_001_000, 8_001_000, 8_001_000]),
        (MEGATRON_LEGACY, [14_000_000] * 4),
        (SAFETENSORS, [15_001_600]),
        (TRAINER, [21_016_600, 6_015_000]),
        (TORCH, [3_000_000] * 4),
        ({"weights.pt": 9, "optimizer.pt": 99}, [108]),
    ],
    ids=["dcp", "zero-1", "zero-3", "megatron", "safetensors", "trainer", "torch", "no rank"],
)
def test_files_are_assigned_to_ranks_by_their_names(sizes: dict[str, int], of_ranks: list[int]) -> None:
    pattern = pattern_of(sizes)
    assert bytes_of_ranks(pattern) == of_ranks
    assert sorted(file.bytes for file in pattern.files) == sorted(sizes.values())


def test_writes_are_large_and_sequential_and_the_last_file_waits_for_all() -> None:
    pattern = pattern_of(DCP)
    calls = [(s.call, s.offset, s.bytes, s.count) for s in pattern.steps if s.rank == 1 and s.file == 3]
    rest = 30_000_001 - WRITE_BYTES
    assert calls == [
        ("create", 0, 0, 1), ("write", 0, WRITE_BYTES, 1), ("write", WRITE_BYTES, rest, 1),
        ("fsync", 0, 0, 1), ("close", 0, 0, 1),
    ]  # fmt: skip
    assert {(s.rank, pattern.files[s.file].bytes) for s in pattern.steps if s.phase == 1} == {(0, 5000)}
    assert "sequential writes of 16 MiB and one fsync a file assumed" in pattern.label


NO_METADATA = {name: size for name, size in DCP.items() if name != ".metadata"}
LATE = [*files(DCP), Listed("__3_0.distcp", 10, 90_000.0)]


@pytest.mark.parametrize(
    ("listed", "what"),
    [
        ([], "the directory is empty"),
        (files({"a": 0, "b": 0}), "2 files, and none has data"),
        (files(NO_METADATA), ".metadata is missing"),
        (files(DCP | {".metadata.tmp": 10}), "1 temporary file there, such as '.metadata.tmp'"),
        (files({n: s for n, s in DCP.items() if not n.startswith("__1_")}), "1 rank of 3 left no data"),
        (files({n: s for n, s in SAFETENSORS.items() if "00002-of" not in n}), "2 of 3 shards are there"),
        (files({n: s for n, s in DEEPSPEED_1.items() if "rank_1_mp_rank_00" not in n}), "1 rank of 4 left no data"),
        (files({f"s{n}/{name}": s for n in (1, 2) for name, s in DCP.items()}), "in 2 directories, such as 's1'"),
        (files(DCP | DEEPSPEED_1), "files of DCP or Megatron and of DeepSpeed are there, as two jobs write"),
        (files(SAFETENSORS | {"model-00001-of-00005.safetensors": 9}), "shards of 3 and of 5 are there"),
        (LATE, "in two groups, 25.0 h apart"),
        (files({f"{n}.pt": 9 for n in range(100_000)}), "100,000 files are there, and a pattern has at most 4,096"),
        (files({f"__{r}_0.distcp": 9 for r in range(2000)} | {".metadata": 9}), "2,000 ranks"),
        (files({"__99999999999_0.distcp": 9, ".metadata": 9}), "ranks, and a pattern has at most"),
        (files({f"{n}.pt": 9 for n in range(2000)}), "one rank has 2,000 files"),
        (files({"a.pt": 1 << 50}), "whole numbers from 0 to"),
    ],
)  # fmt: skip
def test_a_directory_without_exactly_one_complete_checkpoint_is_refused(listed: list[Listed], what: str) -> None:
    with pytest.raises(UsageError) as error:
        pattern_of_checkpoint(listed, "", "test")
    assert what in error.value.what
    assert error.value.remedy


def make(directory: Path, sizes: dict[str, int]) -> None:
    for name, size in sizes.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        with (directory / name).open("wb") as file:
            file.truncate(size)


def test_the_page_names_what_is_refused_and_assumed() -> None:
    page = (DOCS / "own_job.md").read_text()
    assert "pytest-ckpt record --checkpoint /mnt/ckpt/step-100 --out job.pattern.json" in page
    assert f"sequential writes of {WRITE_BYTES >> 20} MiB and one fsync a file" in page
    assert f"over {MAXIMUM_FILES:,} files" in page


@pytest.mark.covers(commands=("record",))
def test_a_directory_becomes_a_pattern_without_its_names(tmp_path, capsys) -> None:
    make(tmp_path / SECRET, DEEPSPEED_3)
    out = tmp_path / "job.pattern.json"
    assert main(["record", f"--checkpoint={tmp_path / SECRET}", f"--out={out}", "--label=our job"]) == 0
    told = capsys.readouterr().out
    assert "4 ranks, 9 files, 32 MB a save" in told
    assert "calls are assumed: a checkpoint shows files and sizes, not how they were written" in told
    assert "ranks are assumed" not in told
    text = out.read_text()
    assert SECRET not in text
    assert "global_step" not in text
    assert read_pattern(text).ranks == 4
    assert main(["plan", "--cluster=64", "--ckpt-model=llama3-8b", f"--ckpt-engine=replay:file={out}"]) == 0


def test_ranks_that_are_in_no_file_name_are_reported_as_assumed(tmp_path, capsys) -> None:
    make(tmp_path / "ckpt", SAFETENSORS)
    assert main(["record", f"--checkpoint={tmp_path / 'ckpt'}", f"--out={tmp_path / 'p.json'}"]) == 0
    assert "ranks are assumed: no file name contains a rank, so rank 0 writes all files" in capsys.readouterr().out


def test_a_prefix_of_a_bucket_becomes_the_same_pattern(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    small = {name: size // 1000 for name, size in DCP.items()}
    with faulty_store("") as endpoint:
        bucket = Bucket(BucketPrefix(bucket=BUCKET, prefix=""), Access(endpoints=(endpoint,)))
        for name, size in small.items():
            bucket.put(f"ckpt/step-1/{name}", b"x" * size)
        bucket.close()
        url = f"s3://{BUCKET}/ckpt/step-1"
        assert main(["record", f"--checkpoint={url}", f"--endpoint={endpoint}", f"--out={tmp_path / 's3.json'}"]) == 0
        empty = ["record", f"--checkpoint={url}0", f"--endpoint={endpoint}", f"--out={tmp_path / 'no.json'}"]
        assert main(empty) == 4
    make(tmp_path / "ckpt", small)
    assert main(["record", f"--checkpoint={tmp_path / 'ckpt'}", f"--out={tmp_path / 'dir.json'}"]) == 0
    assert json.loads((tmp_path / "s3.json").read_text()) == json.loads((tmp_path / "dir.json").read_text())


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--checkpoint=nowhere"], "No such file or directory"),
        (["--checkpoint=file"], "it is not a directory"),
        (["--checkpoint=gs://a/b"], "a directory or a prefix such as s3://"),
        (["--checkpoint=s3://A/b"], "--checkpoint s3://A/b: 'A' is not a name of a bucket"),
        (["--checkpoint=.", "--under=."], "record a save"),
        (["--checkpoint=.", "--", "true"], "record a save"),
        (["--", "true"], "record needs --under"),
    ],
)
def test_wrong_arguments_exit_with_4_and_a_sentence(tmp_path, monkeypatch, capsys, words: list[str], what: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("x")
    assert main(["record", "--out=p.json", *words]) == 4
    told = capsys.readouterr().err
    assert what in told
    assert not Path("p.json").exists()


def test_a_listing_of_too_many_files_ends(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("pytest_ckpt.recording.listing.MAXIMUM_LISTED", 5000)
    assert MAXIMUM_LISTED > 100_000
    for number in range(5010):
        os.mknod(tmp_path / f"{number}.pt")
    os.truncate(tmp_path / "0.pt", 9)
    assert main(["record", f"--checkpoint={tmp_path}", "--out=p.json"]) == 4
    assert "5,001 files are there, and a pattern has at most 4,096" in capsys.readouterr().err

"""Runs in which rank 0 converts each checkpoint to Hugging Face's format (consolidation), with torch's own code."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.facts.file_rules import CONSOLIDATED_FILES
from pytest_ckpt.ranks.content import Content, TensorKey, content_seed
from pytest_ckpt.sizing.files import names_of
from pytest_ckpt.sizing.models import Layout, layout
from tests.support.bare_safetensors import load_bare
from tests.support.end_to_end import REQUIRED, SUBJECT, TINY, Run, Runner, temporary_runner
from tests.support.machine import need_fuse
from tests.support.targets.misbehaving import misbehaving

CONSOLIDATED = ("--ckpt-engine=safetensors-consolidated",)
OWN = f"{SUBJECT}/safetensors-consolidated"
FLOAT8 = """
layers = 3
hidden = 128
head_size = 32
feed_forward = 300
vocabulary = 777
heads = 4

[precision]
weights = "float8"
"""
OTHERS = {"async": (), "hybrid": ("--ckpt-strategy=changed=10%",)}


def layout_of(run: Run) -> Layout:
    measurement = run.measurement(OWN)
    return layout("llama3-8b", mode="open", processes=measurement["processes"], scale=measurement["scale"])


@pytest.fixture(scope="module")
def saved(create_home: Callable[[str], Path]) -> Run:
    with temporary_runner(create_home("consolidated")) as runner:
        return runner.run(*TINY, *CONSOLIDATED, "--ckpt-keep-files")


def test_a_run_meets_all_that_is_required_and_its_evidence_verifies(saved: Run) -> None:
    assert saved.code == 0, saved.text
    assert saved.outcomes(OWN) == dict.fromkeys(REQUIRED, "met")
    assert main(["verify", str(saved.report)]) == 0


def test_every_byte_of_every_load_is_compared_and_none_was_cached(saved: Run) -> None:
    saved.assert_loads_compared_and_uncached(OWN)


def test_every_file_is_planned_and_made_durable_and_the_consolidation_is_reported(saved: Run) -> None:
    names = names_of(layout_of(saved), CONSOLIDATED_FILES)
    durability = saved.measurement(OWN)["durability"]
    assert durability["files"] == durability["files_synced"] == 2 * len(names)
    (planned,) = (c for c in saved.document["checkpoints"] if c["subject"] == OWN)
    assert planned["files"] == len(names)
    assert planned["engine"]["files"]["consolidated"] == "model-{number}-of-{count}.safetensors"
    facts = saved.measurement(OWN)["engine_facts"]
    assert facts["consolidation"].startswith("only rank 0, in every save")
    assert not [s for s in saved.document["disclosures"] if "more memory" in s]


def test_the_library_alone_loads_what_a_run_has_saved(saved: Run, tmp_path: Path) -> None:
    (directory,) = saved.target.glob("pytest-ckpt-*/*/checkpoint-0002")
    loaded = load_bare(directory, tmp_path, metadata=None, dimensions=2)
    whole, content = layout_of(saved), Content(content_seed(saved.document["run"]["seed"], OWN))
    held: dict[str, bytes] = {}
    for shard in whole.ranks():
        tensors = [tensor for file in shard.files for tensor in file.tensors]
        for number, tensor in enumerate(tensors):
            place = TensorKey(checkpoint=2, rank=shard.rank, tensor=number)
            held[tensor.name] = held.get(tensor.name, b"") + content.expected(place, 0, tensor.bytes).tobytes()
    assert {name: data for name, (_, data, _) in loaded.items()} == held


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", OTHERS)
def test_it_saves_in_the_background_and_between_deltas(runner: Runner, strategy: str) -> None:
    run = runner.run(*TINY, *CONSOLIDATED, f"--ckpt-strategy={strategy}", *OTHERS[strategy])
    assert run.code == 0, run.text
    assert run.verdict("CRASH-ASYNC")["outcome"] == "met"
    measurement = run.measurement()
    assert measurement["failure"] is None
    assert measurement["integrity"]["bytes_checked"] == measurement["integrity"]["bytes_expected"] > 0
    assert run.left_on_target == []


@pytest.mark.thorough
def test_an_error_in_the_consolidation_names_rank_0_and_its_file(
    runner: Runner, create_home: Callable[[str], Path]
) -> None:
    need_fuse()
    with misbehaving(create_home("broken")) as target:
        target.fault("EIO in write", path="*/model-00002*")
        run = runner.run(*TINY, *CONSOLIDATED, target=target.path)
        target.clear()
    assert run.code == 1, run.text
    failure = run.measurement()["failure"]
    assert (failure["rank"], failure["errno"]) == (0, "EIO")
    assert failure["file"].startswith("model-00002")


def test_the_plan_counts_both_copies_and_a_complete_tensor_in_memory(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("plan", "--cluster=64", "--ckpt-model=llama3-8b")
    assert main([*words, "--ckpt-engine=safetensors,safetensors-consolidated"]) == 0
    text = capsys.readouterr().out
    # Memory of the largest rank. The optimizer's first tensor has 4 of the 14 bytes of each parameter.
    plain, whole = (float(gb) for gb in re.findall(r"memory ([0-9.]+) GB for the largest rank", text))
    assert whole - plain > 112 * 4 / 14
    plain, whole = (float(tb) for tb in re.findall(r"space ([0-9.]+) TB", text))
    assert whole > 1.99 * plain
    assert "whole  in each save rank 0 reads 112 GB of shards and writes them again" in text


def test_a_tensor_that_the_library_cannot_reassemble_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "mine.toml"
    model.write_text(FLOAT8)
    code = main(["plan", "--cluster=64", f"--ckpt-model={model}", "--ckpt-parallel=dp=2", *CONSOLIDATED])
    assert code == 4
    assert "which torch's consolidation of safetensors cannot assemble" in capsys.readouterr().err

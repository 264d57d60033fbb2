"""Models that a user describes, tested end to end up to the certificate.

The certified run is shown in docs/own_models.md.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence.judged_run import judge_directory
from pytest_ckpt.evidence.verification import verify_directory
from pytest_ckpt.support.errors import UsageError
from tests.support.end_to_end import HERE, TORCH, Run, Runner, Sabotage, temporary_runner
from tests.support.own_model import FILE, SMALL

EXPERTS = """
layers = 3
hidden = 129
head_size = 33
feed_forward = 300
vocabulary = 777
heads = 4

[experts]
count = 4
active = 2
feed_forward = 64
dense_layers = 1

[precision]
weights = "float8"
optimizer = ["float32", "bfloat16", "bfloat16"]

[parallel]
pipeline = 2
expert = 2
data = 2
zero = 1
"""
HYBRID = """
layers = 5
hidden = 129
head_size = 33
feed_forward = 300
vocabulary = 777
heads = 4
layer_kinds = ["scan", "scan", "full"]

[kinds.scan]
attention = false
norms = 1
feed_forward = "experts"
tensors = [[258, 129], [258, 4], [7]]

[kinds.full]
feed_forward = "dense"

[experts]
count = 4
active = 1
feed_forward = 64

[parallel]
pipeline = 2
expert = 2
data = 2
"""
ABOUT_100_M = """
layers = 12
hidden = 768
feed_forward = 2048
vocabulary = 16000
heads = 12
tied_embeddings = true

[parallel]
data = 2
zero = 3
"""
GONE = "elsewhere.toml"
BRIEF = (f"--ckpt-model=./{FILE}", "--ckpt-ranks=2", "--ckpt-operations=2")
# Full size, ten saves and loads, no checks of behaviour: a certificate is possible if nothing else is missing.
WHOLE = (f"--ckpt-model=./{FILE}", "--ckpt-ranks=2", "--ckpt-gate-table=posix-local", "--ckpt-suite=performance")


def model_in(runner: Runner, text: str = SMALL) -> Path:
    file = runner.home / FILE
    file.write_text(text)
    return file


def broken(directory: Path) -> list[str]:
    """Verify a report directory without a key; return the names and details of the failed checks."""
    return [
        f"{found.name}: {found.details}" for found in verify_directory(directory, None) if found.outcome == "broken"
    ]


@pytest.fixture(scope="module")
def brief(create_home: Callable[[str], Path]) -> Run:
    """A short run that is judged only by speed. The file of its model is moved away after the run."""
    with temporary_runner(create_home("own")) as runner:
        file = model_in(runner)
        run = runner.run(*BRIEF)
        file.rename(runner.home / GONE)
        return run


def test_a_run_names_the_model_by_file_size_and_digest(brief: Run) -> None:
    assert brief.code == 0, brief.text
    (planned,) = brief.document["checkpoints"]
    digest = planned["model"].removeprefix(f"{FILE}-")
    assert len(digest) == 12
    label = f"own model {FILE} (3,676,416 parameters, digest {digest})"
    assert f"of {label} only (51.5 MB)" in brief.document["scope"]["text"]
    assert label.replace(" ", "") in "".join(brief.text.split())
    page = (brief.report / "certificate.html").read_text()
    assert label in page
    assert "llama3" not in brief.document["scope"]["text"]


def test_a_run_keeps_the_model_and_needs_its_file_no_more(brief: Run) -> None:
    assert not (brief.home / FILE).exists()
    (planned,) = brief.document["checkpoints"]
    assert planned["definition"]["own"]["file"] == FILE
    assert not broken(brief.report)
    again = judge_directory(brief.report, {})
    assert (again["scope"], again["grade"]) == (brief.document["scope"], brief.document["grade"])


def test_another_definition_is_not_taken_for_the_model(brief: Run, tmp_path: Path) -> None:
    directory = shutil.copytree(brief.report, tmp_path / "report")
    for name in ("report.json", "plan.json"):
        document = json.loads((directory / name).read_text())
        document["checkpoints"][0]["definition"]["layers"] += 1
        (directory / name).write_text(json.dumps(document))
    with pytest.raises(UsageError, match="does not match the digest in its name"):
        judge_directory(directory, {})


def test_a_model_with_experts_is_saved_and_loaded(runner: Runner) -> None:
    model_in(runner, EXPERTS)
    run = runner.run(f"--ckpt-model=./{FILE}", "--ckpt-ranks=4", "--ckpt-operations=2")
    assert run.code == 0, run.text
    (planned,) = run.document["checkpoints"]
    assert (planned["processes"], planned["scale"]) == (4, 1.0)
    (found,) = run.document["measurements"]
    assert found["integrity"]["fault_count"] == 0
    assert found["integrity"]["bytes_checked"] == 2 * planned["bytes"]
    assert found["durability"]["files_synced"] == 2 * planned["files"]


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["torch", "safetensors", "dcp"])
def test_every_engine_saves_and_loads_it(runner: Runner, engine: str) -> None:
    model_in(runner, EXPERTS)
    run = runner.run(f"--ckpt-model=./{FILE}", "--ckpt-ranks=4", "--ckpt-operations=2", f"--ckpt-engine={engine}")
    assert run.code == 0, run.text
    assert not broken(run.report)


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["stream", "torch", "safetensors", "dcp"])
def test_a_hybrid_is_saved_and_loaded_with_the_states_of_another_optimizer(runner: Runner, engine: str) -> None:
    model_in(runner, HYBRID)
    run = runner.run(f"--ckpt-model=./{FILE}", "--ckpt-ranks=4", "--ckpt-operations=2", "--ckpt-optimizer=muon",
                   f"--ckpt-engine={engine}")  # fmt: skip
    assert run.code == 0, run.text
    (planned,) = run.document["checkpoints"]
    assert planned["definition"]["own"]["optimizer_of_ends"] == ["float32"]
    assert [kind["name"] for kind in planned["definition"]["own"]["layer_kinds"]][1:3] == ["scan", "full"]
    (found,) = run.document["measurements"]
    assert found["integrity"]["bytes_checked"] == 2 * planned["bytes"]
    assert not broken(run.report)


@pytest.mark.thorough
def test_a_flipped_bit_is_not_certified(runner: Runner) -> None:
    model_in(runner)
    command = shlex.join([sys.executable, str(HERE / "corrupt.py"), str(runner.target), "flipped"])
    run = runner.run(*WHOLE, f"--ckpt-drop-caches={command}")
    assert (run.code, run.document["grade"]) == (1, "not certified"), run.text
    assert any(reason.startswith("INTEGRITY failed") for reason in run.document["grade_reasons"])


@pytest.mark.thorough
def test_a_slow_save_is_not_certified(runner: Runner) -> None:
    model_in(runner)
    # The save takes a second longer, and its limit is half a second.
    sabotage = Sabotage(runner.home, "slow", rank=1, where=" save 7$")
    run = runner.run(*WHOLE, cluster=900_000, environment=sabotage.environment)
    assert (run.code, run.document["grade"]) == (1, "not certified"), run.text
    assert any(reason.startswith("SAVE failed") for reason in run.document["grade_reasons"])


@pytest.mark.thorough
@pytest.mark.alone
def test_a_warm_cache_is_not_certified(runner: Runner) -> None:
    model_in(runner)
    run = runner.run(*WHOLE, TORCH, "--ckpt-drop-caches=never")
    assert (run.code, run.document["grade"]) == (1, "not certified"), run.text
    assert any(reason.startswith("COLD failed") for reason in run.document["grade_reasons"])


@pytest.mark.thorough
@pytest.mark.alone
def test_about_100_m_parameters_at_full_size_are_certified(
    create_home: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A complete run of a small model is certified, signed, verified and judged again.

    It has ten saves, ten loads and every conformance check.
    """
    with temporary_runner(create_home("certified")) as runner:
        file = model_in(runner, ABOUT_100_M)
        key, public = runner.home / "key.pem", runner.home / "public.pem"
        make = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(key)]
        show = ["openssl", "pkey", "-in", str(key), "-pubout", "-out", str(public)]
        for command in (make, show):
            subprocess.run(command, check=True, capture_output=True)
        run = runner.run(
            f"--ckpt-model=./{FILE}",
            "--ckpt-ranks=2",
            "--ckpt-gate-table=posix-local",
            f"--ckpt-sign={key}",
            cluster=16,
        )
        assert run.code == 0, run.text
        assert run.document["grade"] == "certified", run.text
        assert f"own model {FILE} (97,241,856 parameters" in run.document["certified_for"]["text"]
        (found,) = run.document["measurements"]
        assert (found["scale"], len(found["operations"])) == (1.0, 20)
        assert found["bytes"] == 14 * 97_241_856
        file.unlink()
        assert main(["verify", str(run.report), "--key", str(public)]) == 0, capsys.readouterr().out
        assert judge_directory(run.report, {})["grade"] == "certified"
        # The same measurements do not meet the limits of a much larger cluster.
        assert judge_directory(run.report, {"ckpt_cluster": "1000000000"})["grade"] == "not certified"

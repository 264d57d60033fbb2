"""Certified runs on an object store with two hosts, and the reasons that prevent a certificate."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence.judged_run import judge_directory
from tests.support.hosts.lab import Step, StepResult, need_hosts, on_hosts
from tests.support.hosts.storage import Storage
from tests.support.own_model import FILE, SMALL

pytestmark = pytest.mark.thorough

HONEST, FLIPPED, LOST = "", "flipped bit", "lost part"
TWO_CLIENTS, ONE_CLIENT = "--ckpt-hosts=h1:1,h2:1", "--ckpt-hosts=h1:2"
SPEED = "--ckpt-suite=performance"


@pytest.fixture
def home(create_home: Callable[[str], Path]) -> Path:
    """A directory with a model file, a private key for signing, and its public key."""
    directory = create_home("certified-store")
    (directory / FILE).write_text(SMALL)
    make = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(directory / "key.pem")]
    show = ["openssl", "pkey", "-in", str(directory / "key.pem"), "-pubout", "-out", str(directory / "public.pem")]
    for command in (make, show):
        subprocess.run(command, check=True, capture_output=True)
    return directory


def run_of(home: Path, *options: str, store: str) -> StepResult:
    """Make a run at full size on two simulated hosts, and return its result.

    Each run has its own hosts, because several runs on the same hosts would be slow.
    """
    storage = Storage(is_fuse=True, stores=(store,))
    need_hosts(storage)
    model = home / FILE
    words = (f"--ckpt-model={model}", "--ckpt-ranks=2", "--cluster=16",
             "--ckpt-gate-table=object")  # fmt: skip
    (done,) = on_hosts(home, 2, Step(options=(*words, *options), store=store), storage=storage)
    return done


@pytest.mark.alone
def test_a_store_that_meets_everything_is_certified_signed_and_verified(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every = "--ckpt-suite=performance,contention,conformance"
    # With a large cluster the limits are short, and so are paced saves.
    options = (every, "--cluster=100000", f"--ckpt-sign={home / 'key.pem'}")
    done = run_of(home, TWO_CLIENTS, *options, store=HONEST)
    run = done.run
    assert (run.code, run.document["grade"]) == (0, "certified"), run.text
    checks = [v for v in run.document["requirements"] if v["id"].startswith("OBJECT-")]
    assert {v["outcome"] for v in checks} == {"met"}
    assert {v["id"] for v in checks if v["severity"] == "required"} >= {"OBJECT-COMMIT", "OBJECT-DIGEST", "OBJECT-LIVE"}
    assert len(checks) == 22
    (measured,) = run.document["measurements"]
    assert (measured["scale"], measured["bytes"], len(measured["operations"])) == (1.0, 14 * 3_676_416, 20)
    assert sorted(measured["hosts"]) == ["h1", "h2"]
    assert measured["integrity"]["bytes_checked"] == 10 * measured["bytes"]
    assert main(["verify", str(run.report), "--key", str(home / "public.pem")]) == 0, capsys.readouterr().out
    assert judge_directory(run.report, {})["grade"] == "certified"
    assert judge_directory(run.report, {"ckpt_cluster": "1000000000"})["grade"] == "not certified"
    assert done.left == ()


@pytest.mark.parametrize(("store", "requirement"), [(FLIPPED, "INTEGRITY"), (LOST, "SAVE")])
def test_a_store_with_a_fault_is_not_certified(home: Path, store: str, requirement: str) -> None:
    done = run_of(home, TWO_CLIENTS, SPEED, store=store)
    run = done.run
    assert (run.code, run.document["grade"]) == (1, "not certified"), run.text
    assert any(reason.startswith(f"{requirement} failed") for reason in run.document["grade_reasons"])
    assert done.left == ()


@pytest.mark.alone
def test_loads_by_the_only_client_are_not_certified(home: Path) -> None:
    """With only one client, COLD (loads come from storage, not from a cache) is not proven.

    The store declares that its clients do not cache. This declaration is not sufficient.
    """
    run = run_of(home, ONE_CLIENT, SPEED, store=HONEST).run
    assert (run.code, run.document["grade"]) == (8, "incomplete"), run.text
    assert "COLD" in " ".join(run.document["grade_reasons"])

"""End-to-end runs of the engine replay, which repeats the recorded calls of a job, as in docs/own_job.md."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.evidence.judged_run import judge_directory
from pytest_ckpt.evidence.verification import verify_directory
from tests.support.end_to_end import REQUIRED, SUBJECT, TINY, Run, Runner, temporary_runner
from tests.support.machine import need_fuse
from tests.support.synthetic_job_patterns import PAUSED, TWO_RANKS
from tests.support.targets.misbehaving import misbehaving

OWN = f"{SUBJECT}/replay"
FILE, SMALL = "replay-1-0.bin", "replay-0-2.bin"
# A command that drops caches after it has damaged a file of the first checkpoint.
DAMAGE = """
import os, pathlib, sys
(directory,) = pathlib.Path(sys.argv[1]).glob("pytest-ckpt-*/*/checkpoint-0001")
file, way = directory / sys.argv[2], sys.argv[3]
if way == "remove":
    file.unlink(missing_ok=True)
elif way == "cut":
    os.truncate(file, file.stat().st_size // 2)
else:
    with file.open("r+b") as out:
        out.seek(file.stat().st_size // 2)
        byte = out.read(1)
        out.seek(-1, 1)
        out.write(bytes([byte[0] ^ 1]))
for path in directory.parent.glob("*/*"):
    with path.open("rb") as data:
        os.fsync(data.fileno())
        os.posix_fadvise(data.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
"""


def replay_options(home: Path) -> tuple[str, ...]:
    """Write a recorded pattern of two ranks to ``home``; return the options that replay the pattern."""
    (home / "job.pattern.json").write_text(TWO_RANKS)
    return (f"--ckpt-engine=replay:file={home}/job.pattern.json",)


@pytest.fixture(scope="module")
def replayed(create_home: Callable[[str], Path]) -> Run:
    home = create_home("replay")
    with temporary_runner(home) as runner:
        run = runner.run(*TINY, *replay_options(home))
    # Later steps must not need the pattern file.
    (home / "job.pattern.json").unlink()
    return run


def test_a_run_meets_all_that_is_required_and_leaves_nothing(replayed: Run) -> None:
    assert replayed.code == 0, replayed.text
    assert replayed.outcomes(OWN) == dict.fromkeys(REQUIRED, "met")
    assert replayed.left_on_target == []


def test_every_byte_of_every_load_is_compared(replayed: Run) -> None:
    measurement = replayed.measurement(OWN)
    integrity = measurement["integrity"]
    assert integrity["bytes_checked"] == integrity["bytes_expected"] == 2 * measurement["bytes"]


def test_its_files_are_planned_with_what_is_beside_the_tensors(replayed: Run) -> None:
    (planned,) = replayed.document["checkpoints"]
    durability = replayed.measurement(OWN)["durability"]
    assert (planned["files"], durability["files"], durability["files_synced"]) == (4, 8, 8)
    files = {f["name"]: f["bytes"] for rank in planned["ranks"] for f in rank["files"]} if "ranks" in planned else {}
    assert not files or files[SMALL] == 0


def test_the_certificate_names_the_pattern_and_what_the_job_leaves_out(replayed: Run) -> None:
    (listed,) = [s for s in replayed.document["disclosures"] if "replays" in s]
    assert listed.startswith("engine replay replays job.pattern.json (digest ")
    assert listed in (replayed.report / "certificate.html").read_text()
    facts = replayed.measurement(OWN)["engine_facts"]
    assert facts["the job itself"] == (
        "2 of 4 files not flushed after the last write, 1 fsyncs of directories, 0 flushes of the file system by syncfs"
    )
    assert facts["load"].startswith("each rank its own files, in reads of 100,000 bytes")


def test_the_directory_is_judged_and_verified_without_the_pattern(replayed: Run, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(replayed.report, tmp_path / "run"))
    again = judge_directory(directory, {})
    for part in ("checkpoints", "requirements", "measurements", "grade", "exit_code"):
        assert again[part] == replayed.document[part], part
    assert [s for s in again["disclosures"] if "replays job.pattern.json" in s]
    assert {check.outcome for check in verify_directory(directory, None)} <= {"holds", "not checked"}


@pytest.mark.parametrize(
    ("file", "way", "kind"),
    [
        (FILE, "flip", "flipped"),
        pytest.param(SMALL, "flip", "flipped", marks=pytest.mark.thorough),
        pytest.param(FILE, "cut", "short", marks=pytest.mark.thorough),
        pytest.param(SMALL, "cut", "short", marks=pytest.mark.thorough),
        pytest.param(FILE, "remove", "", marks=pytest.mark.thorough),
    ],
)
def test_a_damaged_file_changes_the_verdict(runner: Runner, tmp_path: Path, file: str, way: str, kind: str) -> None:
    script = tmp_path / "damage.py"
    script.write_text(DAMAGE)
    drop = shlex.join([sys.executable, str(script), str(runner.target), file, way])
    run = runner.run(*TINY, *replay_options(tmp_path), f"--ckpt-drop-caches={drop}")
    assert run.code == 1, run.text
    assert "Traceback" not in run.text
    measurement = run.measurement(OWN)
    if kind:
        assert run.outcomes(OWN)["INTEGRITY"] == "failed"
        fault = measurement["integrity"]["faults"][0]
        assert (fault["kind"], fault["file"]) == (kind, file)
    else:
        # The missing file is noticed when its cached pages are counted before the load.
        assert run.outcomes(OWN)["LOAD"] == "failed"
        assert measurement["failure"]["errno"] == "ENOENT"


@pytest.mark.thorough
def test_a_run_with_the_pauses_of_the_job_mentions_them(runner: Runner, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(PAUSED)
    run = runner.run(*TINY, f"--ckpt-engine=replay:file={tmp_path}/job.json,timing=recorded")
    assert run.code == 0, run.text
    (listed,) = [s for s in run.document["disclosures"] if "replays" in s]
    assert listed.endswith(", with the pauses that the job made")
    measurement = run.measurement(OWN)
    assert measurement["engine_facts"]["pauses"] == "as recorded, 0.060 s of a thread at most, within every save"
    saves = [o for o in measurement["operations"] if o["kind"] == "save"]
    assert all(save["phases"]["pause"] >= 0.06 for save in saves)
    assert {check.outcome for check in verify_directory(run.report, None)} <= {"holds", "not checked"}


@pytest.mark.thorough
@pytest.mark.parametrize("fault", ["EIO in write", "EIO in fsync"])
def test_an_error_of_the_storage_is_named(runner: Runner, create_home: Callable[[str], Path], fault: str) -> None:
    need_fuse()
    home = create_home("refuses")
    with misbehaving(home) as target:
        target.fault(fault, path=f"*/{FILE}")
        run = runner.run(*TINY, *replay_options(home), target=target.path)
        assert run.left_on_target == []
    assert run.code == 1, run.text
    assert (run.measurement(OWN)["failure"]["rank"], run.measurement(OWN)["failure"]["errno"]) == (1, "EIO")
    assert "Traceback" not in run.text


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["async", "tiered"])
def test_a_job_is_replayed_while_training_continues(
    runner: Runner, create_home: Callable[[str], Path], strategy: str
) -> None:
    tier = create_home("tier")
    more = (f"--ckpt-strategy={strategy}", *((f"--ckpt-strategy=local-tier={tier}",) if strategy == "tiered" else ()))
    run = runner.run(*TINY, *replay_options(create_home("job")), *more)
    subject = f"{OWN}/{strategy}"
    # Saves in tiers on one host cannot survive the loss of that host.
    assert run.code == (8 if strategy == "tiered" else 0), run.text
    outcomes = {v["id"]: v["outcome"] for v in run.document["requirements"] if v["subject"] == subject}
    asked = {"async": ("BACKGROUND", "LOST-WORK"), "tiered": ("DRAIN", "TIER-ORDER")}[strategy]
    for requirement in (
        *asked,
        "BLOCKING",
        "CRASH-ASYNC",
        "RETAIN-COMMITTED",
        "LOAD",
        "INTEGRITY",
        "COLD",
        "DURABLE-CALLS",
    ):
        assert outcomes[requirement] == "met", (requirement, run.text)
    assert run.left_on_target == []
    assert list(tier.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "expected_text"),
    [
        (["--ckpt-engine=replay"], "needs the pattern of a job"),
        (["--ckpt-engine=file=x.json"], "no engine that was chosen replays a job"),
        (["--ckpt-engine=replay:file=x"], "unknown pattern"),
        (["--ckpt-engine=replay:file=./none.json"], "it cannot be read"),
        (["--ckpt-engine=replay:file={}", "--ckpt-strategy=incremental:changed=10%"],
         "the record does not show which bytes it would have left out or compressed"),
        (["--ckpt-engine=replay:file={}/bad.json"], "it is not a pattern"),
        (["--ckpt-engine=timing=recorded"], "--ckpt-engine=replay:timing: no engine that was chosen replays a job"),
        (["--ckpt-engine=replay:file=dcp,timing=recorded"], "dcp contains no pauses"),
        (["--ckpt-engine=replay:file=dcp,timing=slow"],
         "one of asap, recorded is expected"),
        (["--ckpt-engine=replay:file={}/slow.json,timing=recorded"],
         "is taken for hung"),
    ],
)  # fmt: skip
def test_an_unreplayable_pattern_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], expected_text: str
) -> None:
    (tmp_path / "bad.json").write_text("{}")
    (tmp_path / "slow.json").write_text(PAUSED.replace("20000", "2000000000"))
    assert main(["plan", "--cluster=64", *(word.format(tmp_path) for word in words)]) == 4
    output = capsys.readouterr().err
    assert expected_text in output
    assert "Traceback" not in output

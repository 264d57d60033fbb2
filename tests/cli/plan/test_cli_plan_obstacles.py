"""``pytest-ckpt plan`` changes nothing. It names each obstacle to a run, with its remedy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.run import fitting
from pytest_ckpt.targets.posix import target
from pytest_ckpt.targets.posix.storage_stack import Mount
from pytest_ckpt.targets.posix.target import PosixTarget
from pytest_ckpt.targets.timed_calls import NoAnswerError
from tests.support import CHECKOUT

pytestmark = pytest.mark.covers(commands=("plan",))
HEAVY = ("torch", "mpi4py", "jinja2", "numpy", "psutil", "pytest")
SMALL = ("--ckpt-model=llama3-8b", "--ckpt-mode=open", "--ckpt-ranks=2", "--ckpt-profile=smoke")


def command(*arguments, **how):
    words = [sys.executable, "-m", "pytest_ckpt.cli.main", *map(str, arguments)]
    return subprocess.run(words, cwd=how.pop("cwd", CHECKOUT), capture_output=True, text=True, check=False, **how)


# --- text ------------------------------------------------------------------------------------------------------------


def test_requirements_that_cannot_run_are_reported_with_their_reason(plan):
    text = plan("--ckpt-mode=full", "--ckpt-ranks=64")
    assert text.count("not run:") == 2
    assert "not run: llama3-405b in full has 512 ranks" in text


# --- its cost and its effects ----------------------------------------------------------------------------------------


def test_planning_imports_nothing_heavy():
    code = (
        "import sys; from pytest_ckpt.cli.main import main; "
        "main(['plan', '--cluster=16000', '--ckpt-target=/tmp', '--json', '--ranks', '--ckpt-ranks=1024']); "
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert not set(done.stderr.split()) & set(HEAVY)


def test_planning_touches_neither_the_target_nor_the_report_directory(plan, tmp_path, monkeypatch):
    target = tmp_path / "target"
    target.mkdir()
    before = target.stat()
    monkeypatch.chdir(tmp_path)
    plan(f"--ckpt-target={target}", "--ckpt-report=report", *SMALL)
    assert not any(target.iterdir())
    assert target.stat().st_mtime_ns == before.st_mtime_ns
    assert [p.name for p in tmp_path.iterdir()] == ["target"]


@pytest.mark.parametrize("form", ["text", "JSON"])
def test_a_target_that_does_not_exist_can_be_planned_for_and_is_the_first_obstacle(capsys, form):
    words = ["plan", "--cluster=64", "--ckpt-target=/nonexistent/array", *SMALL]
    assert main([*words, "--json"] if form == "JSON" else words) == 4
    out, error = capsys.readouterr()
    assert "error: --ckpt-target /nonexistent/array does not exist.\n  Mount the storage" in error
    if form == "JSON":
        document = json.loads(out)
        assert len(document["checkpoints"]) == 1
        found = [(o["grade"], o["text"]) for o in document["obstacles"]]
        assert found[0] == ("none", "--ckpt-target /nonexistent/array does not exist.")
        assert {grade for grade, _ in found[1:]} == {"rehearsal"}
    else:
        assert "llama3-8b-open-2" in out
        assert "grade possible: none, the run would not start; between this command and a certificate:\n" in out
        assert "does not exist. Remedy: Mount the storage and name a directory on it that exists.\n" in out


def test_a_target_that_does_not_answer_holds_a_plan_for_seconds_and_is_named(capsys, monkeypatch, tmp_path):
    def hangs(_spec, _text, seconds):
        raise NoAnswerError(4711, seconds)

    monkeypatch.setattr(fitting, "check_in_time", hangs)
    assert main(["plan", "--cluster=64", f"--ckpt-target={tmp_path}", *SMALL]) == 4
    output = capsys.readouterr().out
    assert "did not answer for 10 s; process 4711 waits for it" in output
    assert "Remedy: Unmount it" in output


@pytest.mark.parametrize("form", ["text", "JSON"])
def test_a_target_in_memory_is_an_obstacle(plan, form, monkeypatch):
    # The mount table of a host with a file system in memory.
    monkeypatch.setattr(target, "mount_of", lambda _: Mount(
        mount_point="/dev/shm", file_system="tmpfs", source="tmpfs", options="rw"))  # fmt: skip
    monkeypatch.setattr(fitting, "check_in_time", lambda *_: PosixTarget("/tmp").check())
    printed = plan("--ckpt-target=/dev/shm", *SMALL, *(["--json"] if form == "JSON" else []))
    assert "COLD will fail: the target is memory of this host" in printed
    assert "cached pages of the target can be counted" not in printed


def test_space_and_memory_are_obstacles_beside_all_others_each_with_its_remedy(capsys, tmp_path):
    words = ["--ckpt-model=llama3-1t", "--ckpt-mode=full", "--ckpt-ranks=1024", "--ckpt-operations=2"]
    assert main(["plan", "--cluster=64", f"--ckpt-target={tmp_path}", *words]) == 4
    output = capsys.readouterr().out.partition("grade possible: none")[2].splitlines()
    for expected_text, remedy in (
        ("Too little space on the target", "Give the target more space"),
        ("Too little memory on this host", "Spread the ranks over more hosts"),
        ("acceptance needs 10 of each", "--ckpt-profile=acceptance"),
    ):
        (line,) = [line for line in output if expected_text in line]
        assert f"Remedy: {remedy}" in line
        assert line.endswith(".")
        assert not line.endswith("..")


@pytest.mark.parametrize("word", ["--ckpt-hosts=n1:512,n2:512", "--ckpt-launcher=srun"])
def test_the_memory_of_other_hosts_is_not_guessed(capsys, tmp_path, word):
    words = ["--ckpt-model=llama3-1t", "--ckpt-mode=full", "--ckpt-ranks=1024", word]
    main(["plan", "--cluster=64", f"--ckpt-target={tmp_path}", *words])
    output = capsys.readouterr().out
    assert "Too little space" in output
    assert "Too little memory" not in output


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected_text"),
    [
        (["plan"], "--cluster is missing"),
        (["plan", "--cluster=0"], "--ckpt-cluster 0"),
        (["plan", "--cluster=16000", "--ckpt-save-budget=100%"], "--ckpt-save-budget 100%"),
        (["plan", "--cluster=16000", "--ckpt-model=lama3-8b"], "did you mean 'llama3-8b'?"),
        (["plan", "--cluster=16000", "--ckpt-ranks=3"], "3 processes fit no layout"),
        (["plan", "--cluster=16000", "--ckpt-failures=mttf:x"], "--ckpt-failures mttf:x"),
        (["plan", "--cluster=16000", "--ckpt-config=/nonexistent.toml"], "it cannot be read"),
        (["plan", "--cluster=16000", "--no-such-option"], "--no-such-option"),
        (["plna", "--cluster=16000"], "plna"),
        ([], "command"),
    ],
)
def test_errors_exit_with_4_and_state_the_cause(arguments, expected_text):
    done = command(*arguments)
    assert (done.returncode, done.stdout) == (4, "")
    assert expected_text in done.stderr
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_leaves_early_sees_no_traceback():
    """``pytest-ckpt plan --ranks | head -1`` prints no traceback. The output is larger than the buffer of a pipe."""
    reading, writing = os.pipe()
    words = [
        sys.executable,
        "-m",
        "pytest_ckpt.cli.main",
        "plan",
        "--cluster=16000",
        "--ranks",
        "--ckpt-ranks=1024",
    ]
    with subprocess.Popen(words, cwd=CHECKOUT, stdout=writing, stderr=subprocess.PIPE, text=True) as process:
        os.close(writing)
        os.read(reading, 1)
        os.close(reading)
        assert process.stderr.read() == ""


def test_the_version_is_that_of_the_package():
    from pytest_ckpt import __version__  # noqa: PLC0415

    assert command("--version").stdout.strip() == f"pytest-ckpt {__version__}"


def test_an_error_of_ours_is_one_sentence_and_exit_3(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def broken(*_):
        raise TypeError("must be real number, not str")

    monkeypatch.setattr("pytest_ckpt.sizing.plan.plan_run", broken)
    assert main(["plan", "--cluster=64"]) == 3
    output = capsys.readouterr().err
    assert "Traceback" not in output
    (line,) = output.splitlines()
    assert "This is an error of pytest-ckpt, not of the storage: TypeError: must be real number" in line
    assert "Traceback" in Path(line.rpartition("its traceback is in ")[2].rstrip(".")).read_text()


def test_a_report_file_in_place_of_its_directory_is_refused_with_the_directory_to_name(tmp_path, capsys):
    (tmp_path / "report.json").write_text("{}")
    assert main(["judge", str(tmp_path / "report.json")]) == 4
    assert f"Name its directory: {tmp_path}" in capsys.readouterr().err

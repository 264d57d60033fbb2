"""Runs that are ended by Ctrl-C, SIGTERM or SIGKILL. After SIGKILL a run cannot clean up."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.evidence.starts import running_operations
from pytest_ckpt.ranks.content import Content, TensorKey, content_seed
from pytest_ckpt.sizing.models import layout
from tests.support import CHECKOUT
from tests.support.end_to_end import (
    DIRECTORY,
    MEASURED,
    REQUIRED,
    TINY,
    Run,
    Runner,
    Sabotage,
    Started,
    processes_of,
)
from tests.support.machine import eventually, patience
from tests.support.run_progress import is_certifying, is_in_a_check, operates

FIRST, SECOND = "llama3-8b-full", "llama3-70b-subset"


def _start_blocked(runner: Runner, *options: str, target: Path | None = None) -> Started:
    """Start a run; return it when a rank is stopped in its second save."""
    sabotage = Sabotage(runner.home, "hold", rank=1)
    started = runner.start(*TINY, *options, target=target, environment=sabotage.environment)
    sabotage.wait_until_blocked(started)
    started.until(lambda: "save 2" in running_operations(started.report).values(), "its start is recorded")
    return started


def _damaged_tensors(directory: Path, *, checkpoint: int, seed: int) -> list[str]:
    """Load a checkpoint with torch; return "file: tensor" for each tensor whose bytes differ from the saved bytes."""
    import torch  # noqa: PLC0415 - every worker collects this module, and torch takes seconds

    content = Content(content_seed(seed, MEASURED))
    damaged = []
    for rank in layout("llama3-8b", mode="open", processes=2, scale=1e-4).ranks():
        number = 0
        for file in rank.files:
            state = torch.load(directory / file.name, weights_only=True)
            for tensor in file.tensors:
                data = state[tensor.name].view(torch.uint8).numpy()
                place = TensorKey(checkpoint=checkpoint, rank=rank.rank, tensor=number)
                if len(data) != tensor.bytes or content.differing_pages(data, place):
                    damaged.append(f"{file.name}: {tensor.name}")
                number += 1
    return damaged


def _is_ended_cleanly(run: Run) -> None:
    assert run.code == 2, run.text
    assert processes_of(run.run_id) == []
    assert run.left_on_target == []
    assert run.document["exit_code"] == 2
    assert set(run.outcomes().values()) == {"not run"}
    assert [o["index"] for o in run.operations("save")] == [1]
    assert run.measurement()["failure"]["kind"] == "interrupted"
    assert (run.report / "certificate.html").is_file()
    assert "not everything required was run" in run.text


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.thorough), signal.SIGTERM])
def test_a_signal_ends_ranks_and_run_and_the_report_has_what_there_is(runner: Runner, number: signal.Signals) -> None:
    started = _start_blocked(runner)
    os.kill(started.process.pid, number)
    _is_ended_cleanly(started.finish())


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_ranks_that_a_worker_of_xdist_started(runner: Runner, number: signal.Signals) -> None:
    started = _start_blocked(runner, "-n", "2")
    if number == signal.SIGINT:
        os.killpg(started.process.pid, number)  # a terminal signals the workers, too
    else:
        os.kill(started.process.pid, number)
    run = started.finish()
    assert run.code == 2, run.text
    assert processes_of(run.run_id) == []
    assert run.left_on_target == []
    assert set(run.outcomes().values()) == {"not run"}


def test_ctrl_c_before_the_run_is_open_leaves_nothing(runner: Runner) -> None:
    launcher, begun, scratch = runner.home / "launcher", runner.home / "begun", runner.home / "tmp"
    launcher.write_text(f"#!/bin/sh\n[ $1 = --version ] && exit\ntouch '{begun}'\nexec tail -f /dev/null\n")
    launcher.chmod(0o755)
    scratch.mkdir()
    started = runner.start(*TINY, f"--ckpt-launcher={launcher}", environment={"TMPDIR": str(scratch)})
    started.until(begun.exists, "the ranks are being started to see their hosts")
    os.kill(started.process.pid, signal.SIGINT)
    assert started.process.wait(patience(60)) == 2, started.text
    assert list(scratch.iterdir()) == list(runner.target.iterdir()) == []
    assert not started.report.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_second_client_is_looked_for_leaves_nothing(runner: Runner, number: signal.Signals) -> None:
    mount, scratch = runner.home / "mount", runner.home / "tmp"
    scratch.mkdir()
    # Another run's directory makes the mount look like storage with late caches, for which a run waits.
    (mount / "pytest-ckpt-of-another").mkdir(parents=True)
    options = (*TINY, f"--ckpt-second-mount={mount}")
    started = runner.start(*options, environment={"TMPDIR": str(scratch)})
    started.until(lambda: list(runner.target.glob("pytest-ckpt-*/same-*")), "the second client is looked for")
    os.kill(started.process.pid, number)
    assert started.process.wait(patience(60)) == 2, started.text
    assert list(scratch.iterdir()) == list(runner.target.iterdir()) == []
    assert not started.report.exists()


_STAGES: dict[str, Callable[[Started], object]] = {
    "preflight": lambda started: list(started.home.glob("tmp/pytest-ckpt-probe-*")),
    "area": lambda started: list(started.target.glob("pytest-ckpt-*")),
    "report directory": lambda started: started.report.exists(),
    "start of ranks": lambda started: (started.report / "launches" / "1").exists(),
    "save": operates("save"),
    "load": operates("load"),
    "check": is_in_a_check,
    "between checks": lambda started: list((started.report / "observations").glob("*.json")),
    "draft": lambda started: list((started.report / "measurements").glob("*.json")),
    "cleaning": lambda started: (started.report / "report.json").exists(),
    "certifying": is_certifying,
    "signing": lambda started: (started.report / "certificate.html").exists(),
    "last lines": lambda started: "storage acceptance for AI checkpoints" in started.text,
}
_ONCE, _TWICE, _ASKED = "Ctrl-C", "Ctrl-C twice", "SIGTERM"


def _signal(started: Started, how: str) -> None:
    """End a run by signals: one SIGTERM to the controller, or Ctrl-C once or twice.

    Like a terminal, the function sends Ctrl-C (SIGINT) to the whole process group.
    """
    if how == _ASKED:
        with contextlib.suppress(ProcessLookupError):
            os.kill(started.process.pid, signal.SIGTERM)
        return
    for _ in range(2 if how == _TWICE else 1):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.process.pid, signal.SIGINT)
        eventually(lambda: not _has_pending(started.process), "the signal has arrived")


def _has_pending(process: subprocess.Popen[bytes]) -> bool:
    if process.poll() is not None:
        return False
    words = re.findall(r"^(?:SigPnd|ShdPnd):\s*(\w+)", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)
    return any(int(word, 16) >> (signal.SIGINT - 1) & 1 for word in words)


# Sends Ctrl-C in the first test, and once more before any other plugin hears of the first one.
_SECOND_SIGNAL = """
import os, signal, pytest
class Second:
    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self):
        os.kill(os.getpid(), signal.SIGINT)
def pytest_sessionstart(session):
    session.config.pluginmanager.register(Second())
def pytest_runtest_setup():
    os.kill(os.getpid(), signal.SIGINT)
"""


def test_a_second_signal_that_comes_before_the_hooks_of_the_first_is_ignored(runner: Runner) -> None:
    (runner.home / "second_signal.py").write_text(_SECOND_SIGNAL)
    environment = {"PYTHONPATH": f"{runner.home}:{CHECKOUT}"}
    run = runner.run(*TINY, "-p", "second_signal", environment=environment)
    assert "Traceback" not in run.text
    assert run.code == run.document["exit_code"] == 2, run.text
    assert run.left_on_target == []


@pytest.mark.thorough
@pytest.mark.parametrize("how", [_ONCE, _TWICE, _ASKED])
@pytest.mark.parametrize("stage", _STAGES)
def test_a_signal_at_any_stage_leaves_a_report_that_can_be_judged_or_nothing(
    runner: Runner, stage: str, how: str
) -> None:
    scratch = runner.home / "tmp"
    scratch.mkdir()
    options = (*TINY, "--ckpt-gate-table=posix-local", "-k", "SAVE[ or LOAD or COMMIT[")
    started = runner.start(*options, environment={"TMPDIR": str(scratch)})
    eventually(lambda: _STAGES[stage](started) or started.process.poll() is not None, f"it is in this stage: {stage}")
    _signal(started, how)
    run = started.finish()
    if stage == "last lines" and run.code in (-signal.SIGINT, -signal.SIGTERM, 128 + signal.SIGINT):
        # pytest had finished and restored the signals, so all files are written.
        assert run.document["exit_code"] in (0, 8)
        assert run.left_on_target == []
        return
    assert "Traceback" not in run.text
    assert "error of pytest-ckpt" not in run.text
    assert list(Path("/dev/shm").glob(f"ckpt-{started.process.pid}.*")) == []
    assert list(scratch.iterdir()) == []
    if not (run.report / "session.json").exists():
        assert run.code == 2, run.text
        assert not run.report.exists()
        assert run.left_on_target == []
        return
    assert run.code in (0, 2, 8), run.text
    assert processes_of(started.run_id) == []
    for name in run.left_on_target:
        assert any(name in sentence for sentence in run.document["left_behind"])
        assert name in run.text
    assert run.code == run.document["exit_code"]
    found = _command("judge", str(run.report), "--json")
    assert found.returncode in (0, 2, 8), found.stderr
    assert json.loads(found.stdout)["grade"] in ("incomplete", "rehearsal")


def test_ranks_end_with_a_controller_that_was_killed_and_the_next_run_offers_to_clean_up(runner: Runner) -> None:
    target = runner.home / "an array"
    target.mkdir()
    started = _start_blocked(runner, target=target)
    started.process.kill()
    started.process.wait()
    eventually(lambda: not processes_of(started.run_id), "the ranks have ended")
    of_launch = f"ckpt-{started.process.pid}.*"
    eventually(lambda: not list(Path("/dev/shm").glob(of_launch)), "the directory of the launch is gone")
    left = started.run_directory
    # The interrupted save has no final name, and the previous checkpoint loads correctly.
    assert sorted(p.name for p in (left / DIRECTORY).glob("checkpoint-*")) == [
        "checkpoint-0001",
        "checkpoint-0002.partial",
    ]
    assert _damaged_tensors(left / DIRECTORY / "checkpoint-0001", checkpoint=1, seed=started.session["seed"]) == []

    run = runner.run(*TINY, "-k", "nothing_is_called_like_this", target=target)
    header = run.text.partition("collected ")[0]
    assert f"left on the target by run {left.name.removeprefix('pytest-ckpt-')} of " in header
    command = re.search(r"rm -r -- .*$", header, re.MULTILINE)
    assert command
    assert shlex.split(command[0]) == ["rm", "-r", "--", str(left)]
    subprocess.run(command[0], shell=True, check=True)
    assert list(target.iterdir()) == []


@pytest.mark.thorough
def test_a_killed_controllers_run_is_judged_from_what_its_directory_holds(runner: Runner) -> None:
    """The controller is killed during the second of two measurements.

    The first measurement is judged; the second is reported as missing.
    """
    sabotage = Sabotage(runner.home, "hold", rank=5, subject=SECOND)
    started = runner.start(
        "--ckpt-model=llama3-8b,llama3-70b",
        "--ckpt-profile=smoke",
        "--ckpt-operations=2",
        "--ckpt-scale=1/10000",
        "--cluster=1",
        environment=sabotage.environment,
    )
    started.until((started.report / "measurements" / f"{FIRST}+stream.json").exists, "the first is measured")
    sabotage.wait_until_blocked(started)
    started.process.kill()
    started.process.wait()
    eventually(lambda: not processes_of(started.run_id), "the ranks have ended")
    left = started.run_directory

    found = _command("judge", str(started.report), "--json", f"--html={runner.home / 'certificate.html'}")
    document = json.loads(found.stdout)
    assert found.returncode == document["exit_code"] == 8, found.stderr
    assert document["grade"] == "incomplete"
    assert document["run"]["id"] == started.run_id
    outcomes = {
        s: {v["outcome"] for v in document["requirements"] if v["subject"] == f"{s}/stream"} for s in (FIRST, SECOND)
    }
    assert outcomes[SECOND] == {"not run"}
    assert "met" in outcomes[FIRST]
    assert "not run" not in outcomes[FIRST]
    (missing,) = (reason for reason in document["grade_reasons"] if SECOND in reason)
    assert all(name in missing for name in REQUIRED)
    assert any(f"rm -r -- {left}" in sentence for sentence in document["left_behind"])
    assert FIRST in (runner.home / "certificate.html").read_text()

    found = _command("verify", str(started.report), "--json")
    assert found.returncode == 8, found.stdout
    assert json.loads(found.stdout)["outcome"] == "incomplete"


def _command(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest_ckpt.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.thorough
def test_a_run_that_goes_on_is_not_called_left_over(runner: Runner) -> None:
    started = _start_blocked(runner)
    other = runner.run(*TINY, "-k", "nothing_is_called_like_this", report=runner.home / "other-report")
    assert "left on the target" not in other.text
    assert other.left_on_target == [started.run_directory.name]
    os.kill(started.process.pid, signal.SIGINT)
    assert started.finish().left_on_target == []

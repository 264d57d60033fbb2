"""A target stops answering at any moment: the run ends within its deadline and reports the cause."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.end_to_end import SUBJECT, TINY
from tests.support.machine import eventually, need_fuse, patience
from tests.support.targets.misbehaving import misbehaving

SECONDS = 4
SOON = (*TINY, "-p", "tests.support.early_wait_reports")


@pytest.fixture
def target(create_home):
    need_fuse()
    with misbehaving(create_home("silent")) as found:
        try:
            yield found
        finally:
            os.kill(found.pid, signal.SIGCONT)


@contextmanager
def stopped(target) -> Iterator[None]:
    os.kill(target.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(target.pid, signal.SIGCONT)


def deadline() -> str:
    return f"--ckpt-io-timeout={patience(SECONDS):.0f}s"


def test_silent_before_the_run(runner, target):
    with stopped(target):
        run = runner.run(*TINY, deadline(), target=target.path)
    assert run.code == 4, run.text
    assert f"--ckpt-target {target.path} did not answer for " in run.text
    assert "Traceback" not in run.text
    assert not run.report.exists()


@pytest.mark.thorough
def test_silent_between_the_checks(runner, target):
    """If the target stops answering during the checks, one or two checks fail and all later checks are "not run".

    The reason of a later check names the check during which the target stopped answering.
    """
    soon = ("-p", "tests.support.short_timeouts")
    words = (*TINY, *soon, deadline(), "--ckpt-gate-table=posix-local", "--ckpt-suite=conformance")
    started = runner.start(*words, target=target.path)
    made = started.report / "observations"
    started.until(lambda: made.exists() and len([*made.iterdir()]) > 2, "some checks were made")
    with stopped(target):
        run = started.finish()
    assert run.code in (1, 8), run.text
    blocked = [o for o in run.document["observations"] if o["blocked"]]
    silent = [o for o in run.document["observations"] if "has not answered since check" in o["not_run"]]
    assert 1 <= len(blocked) <= 2
    assert len(silent) > 10
    assert run.document["left_behind"]


@pytest.mark.thorough
def test_silent_while_the_target_is_cleaned(runner, target):
    started = runner.start(*TINY, deadline(), target=target.path)
    started.until((started.report / "report.json").exists, "the draft of the report is written")
    with stopped(target):
        run = started.finish()
    # The clean-up may have ended before the target was stopped.
    assert run.document["grade"] == "rehearsal"
    assert run.document["run"]["finished"]
    assert bool(run.document["left_behind"]) is bool(run.left_on_target)


@pytest.mark.thorough
def test_a_run_on_a_silent_target_prints_what_it_waits_for(runner, target):
    """The target stops answering before the run, during saves and loads, during checks, and during clean-up.

    Each time, the run prints the call that it waits for. After this, the target answers again.
    """
    with stopped(target):
        started = runner.start(*SOON, "--ckpt-gate-table=posix-local", "-k", "DURABLE", target=target.path)
        wait_for_line(started, rf"^preflight: \S+ s; --ckpt-target {target.path} has not answered for \S+ s$")
    started.until((started.report / "events.jsonl").exists, "ranks measure")
    with stopped(target):
        wait_for_line(started, rf"^{SUBJECT}/stream .*rank [01] on \S+ (has|was) .* \S+ s( ago)?$")
    started.until(lambda: any((started.report / "observations").glob("*.json")), "a check was made")
    with stopped(target):
        wait_for_line(started, r"^check \S+: \S+ s; ")
    started.until((started.report / "report.json").exists, "the draft of the report is written")
    with stopped(target):
        # The clean-up may have ended before the target was stopped.
        eventually(lambda: re.search(r"^clean-up: \S+ s$", started.text, re.M) or is_over(started), "it is told")
    run = started.finish()
    assert "Traceback" not in run.text
    assert run.code == run.document["exit_code"], run.text
    assert run.left_on_target == []


def is_over(started):
    return started.process.poll() is not None


def wait_for_line(started, pattern):
    """Wait until a line of the output matches the pattern."""
    started.until(lambda: re.search(pattern, started.text, re.MULTILINE), f"it is told: {pattern}")


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_the_controller_makes_no_call_on_the_target(runner):
    log = runner.home / "calls"
    around = ("strace", "-e", "trace=file", "-o", str(log))
    run = runner.run(*TINY, "--ckpt-gate-table=posix-local", "-k", "DURABLE", around=around, python=sys.executable)
    assert run.code in (0, 8), run.text
    calls = [line for line in log.read_text().splitlines() if str(runner.target) in line and "execve(" not in line]
    assert calls == []

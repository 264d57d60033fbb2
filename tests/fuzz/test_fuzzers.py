"""Fuzzers of the commands' inputs find no violation in this code, but detect injected faults.

A test run performs 120 attacks, or 2,000 attacks with ``--all``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from tests.support import CHECKOUT
from tests.support.machine import eventually, patience

FAST, MANY = 120, 2000


def attack(*words, cases=MANY):
    """Run ``cases`` attacks from the command line; return the completed process."""
    command = [sys.executable, "-m", "tests.support.fuzz", "--processes=1", *words]
    seconds = patience(600) * max(1, cases / MANY)
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=seconds)


@pytest.mark.parametrize(
    "cases", [pytest.param(FAST, id="some"), pytest.param(MANY, id="many", marks=pytest.mark.thorough)]
)
def test_nothing_that_is_read_breaks_what_reads_it(cases):
    if cases == MANY:
        cases = int(os.environ.get("CKPT_FUZZ_CASES", MANY))
    done = attack(f"--cases={cases}", f"--seed={os.environ.get('CKPT_FUZZ_SEED', '1')}", cases=cases)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert int(done.stdout.split(" attacks")[0].split()[-1]) >= cases


# Runs in a separate process, because the sandbox cannot be removed from a process again.
PROGRAM = """
import os, subprocess, sys, tempfile
from pathlib import Path
from tests.support.fuzz import sandbox
from tests.support.fuzz.families import RunDirectories, reported
sandbox.HANG_SECONDS = 1
home = Path(tempfile.mkdtemp())
(home / "inside").mkdir()
(home / "link").symlink_to(home)
os.chdir(home)
box = sandbox.Sandbox()
box.enclose()
def call():
    {body}
    return 0
outcome = box.run(call, (home / "inside",))
print(reported(["x"], outcome, (0, 4)))
"""
WRONG = {
    "a traceback": ("1 / 0", "ZeroDivisionError"),
    "an error of ours in a sentence": ("print('This is an error of pytest-ckpt')", "is an error of pytest-ckpt"),
    "a hang": ("os.mkfifo('inside/p'); open('inside/p')", "it went on for more than 1 s"),
    "a loop": ("exec('while True: pass')", "it went on for more than 1 s"),
    "memory": ("bytearray(2 << 30)", "MemoryError"),
    "a file elsewhere": ("open('elsewhere', 'w')", "written elsewhere (opened to write)"),
    "a file elsewhere, through a link": ("open(home / 'link' / 'elsewhere', 'w')", "written elsewhere"),
    "a directory elsewhere": ("os.mkdir(home / 'elsewhere')", "written elsewhere (os.mkdir)"),
    "a file that is removed": ("os.rename(home / 'link', home / 'inside' / 'x')", "written elsewhere (os.rename)"),
    "a process": ("subprocess.run(['true'])", "subprocess.Popen"),
    "what steers a terminal": ("print(chr(27) + '[2J')", "standard output holds"),
    "an exit code of none": ("return 7", "ended with 7"),
    "a refusal without a word": ("return 4", "ended with 4 and said"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "a traceback" else pytest.mark.thorough) for n in WRONG]
)
def test_the_fuzzer_reports_each_kind_of_forbidden_behaviour(name):
    body, expected_text = WRONG[name]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM).format(body=body)],
        cwd=CHECKOUT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, timeout=patience(120),
    )  # fmt: skip
    assert expected_text in done.stdout, done.stdout + done.stderr


SABOTAGED = """
import dataclasses, tempfile
from pathlib import Path
from pytest_ckpt.evidence import judged_run
from tests.support.fuzz.__main__ import Worker
worker = Worker(Path(tempfile.mkdtemp()), keep=False)
worker.begin(["directories"])
{sabotage}
worker.enclose()
print([fault for number in range(60) for fault in worker.attempt("directories", "planted", number)[1]])
"""


@pytest.mark.thorough
def test_a_verdict_that_becomes_better_is_seen():
    """The fuzzers find a sabotaged ``judge`` that ignores changed measurements and returns only met verdicts."""
    sabotage = "judged_run.changes_of_facts = lambda directory: []\n" + textwrap.dedent(
        """
        def met(*said, before=judged_run.decide):
            return dataclasses.replace(before(*said), outcome="met")
        judged_run.decide = met
        """
    )
    planted = SABOTAGED.replace("{sabotage}", sabotage)
    done = subprocess.run(
        [sys.executable, "-c", planted], cwd=CHECKOUT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, timeout=patience(300),
    )  # fmt: skip
    assert "judge ended with 0, and with" in done.stdout or "met now" in done.stdout, done.stdout + done.stderr


@pytest.mark.thorough
def test_the_same_case_is_made_again():
    output = [attack("--case=inputs/7/3").stdout for _ in range(2)]
    assert all("1 attacks with seed 7" in text for text in output), output


@pytest.mark.thorough
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_attacks_that_are_ended_leave_nothing_behind(how, tmp_path):
    """Fuzzers that a signal ends remove their directory and end their processes."""
    program = f"""
import sys, tempfile
from tests.support.fuzz import __main__ as fuzz
fuzz._memory = lambda: {str(tmp_path)!r}
sys.argv = ["fuzz", "--cases=100000", "--family=inputs", "--processes=2"]
sys.exit(fuzz.main())
"""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        eventually(lambda: list(tmp_path.glob("*/case-*")), "attacks are made", patience(120))
        process.send_signal(how)
        # The processes of the attacks hold this pipe, too, so the read returns when they have ended.
        output, _ = process.communicate(timeout=patience(60))
    assert process.returncode, output
    assert list(tmp_path.iterdir()) == [], output

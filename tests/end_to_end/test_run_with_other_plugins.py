"""Runs with other projects' pytest plugins: the plugins print the right results, and verdicts do not change.

The plugins are installed into separate directories, so that other tests do not load them.
"""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.end_to_end import REQUIRED, TINY, TORCH, Runner

pytestmark = pytest.mark.thorough

# From PyPI, in versions that were tested together with the pytest of constraints-runtime.txt.
HTML = ("pytest-html==4.2.0", "pytest-metadata==3.1.1")
FORKED = ("pytest-forked==1.7.5", "py==1.11.0")
OTHERS = (
    "pytest-rerunfailures==16.7",
    "pytest-randomly==5.1.0",
    "pytest-repeat==0.9.4",
    "pytest-cov==7.1.0",
    "coverage==7.17.3",
    "allure-pytest==2.16.2",
    "allure-python-commons==2.16.2",
)
SAVE_IS_ADVISORY = """
name = "ours"
text = "Saves are looked at, loads are what counts."
extends = "speed-only"

[requirements]
SAVE = { gate = "advisory" }
"""
# So many accelerators that no limit can be met.
FAR_TOO_MANY = 10**9

Installed = Callable[..., dict[str, str]]


@pytest.fixture(scope="module")
def installed(create_home: Callable[[str], Path]) -> Installed:
    """Return a function that installs packages into a new directory.

    The function returns the environment variables that let Python import these packages.
    """

    def install(*packages: str) -> dict[str, str]:
        home = create_home("plugins")
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(home), *packages]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"they cannot be installed here: {done.stderr.strip()[-300:]}")
        return {"PYTHONPATH": os.pathsep.join(filter(None, (str(home), os.environ.get("PYTHONPATH", ""))))}

    return install


def results_of(page: Path) -> dict[str, str]:
    """Return {name of a test: result} from a page of pytest-html. The name is the last component of the full name."""
    found = re.search(r'data-jsonblob="([^"]*)"', page.read_text())
    assert found, page
    tests = json.loads(html.unescape(found[1]))["tests"]
    return {name.rpartition("::")[2]: each[-1]["result"] for name, each in tests.items()}


def test_pytest_html_shows_what_failed_and_takes_advice_for_passed(runner: Runner, installed: Installed) -> None:
    gates = runner.home / "gates.toml"
    gates.write_text(SAVE_IS_ADVISORY)
    run = runner.run(
        *TINY, TORCH, f"--ckpt-gate-table={gates}", "--html=page.html", "--self-contained-html",
        cluster=FAR_TOO_MANY, environment=installed(*HTML),
    )  # fmt: skip
    assert run.code == 1, run.text
    assert {name: run.verdict(name)["outcome"] for name in ("SAVE", "LOAD", "INTEGRITY")} == {
        "SAVE": "failed", "LOAD": "failed", "INTEGRITY": "met"
    }  # fmt: skip
    assert "Generated html report" in run.text
    shown = results_of(runner.home / "page.html")
    for name, result in {"SAVE[": "Passed", "LOAD[": "Failed", "INTEGRITY[": "Passed"}.items():
        assert [shown[test] for test in shown if test.startswith(name)] == [result], shown
    # As docs/faq.md says, our own pages show an advisory failure as such.
    assert re.search(r"\d advisory in ", run.text)
    assert run.left_on_target == []


def test_pytest_forked_is_refused_before_the_first_write(runner: Runner, installed: Installed) -> None:
    run = runner.run(*TINY, "--forked", environment=installed(*FORKED))
    assert run.code == 4, run.text
    assert "--forked (pytest-forked)" in run.text
    assert run.left_on_target == []


def test_the_verdict_is_the_same_beside_many_others_at_once(runner: Runner, installed: Installed) -> None:
    run = runner.run(
        *TINY, "--reruns=1", "--cov=.", "--alluredir=allure", "--timeout=600", "--count=1",
        environment=installed(*OTHERS),
    )  # fmt: skip
    assert run.code == 0, run.text
    assert {name: run.outcomes()[name] for name in REQUIRED} == dict.fromkeys(REQUIRED, "met")
    assert "Using --randomly-seed" in run.text
    assert list((runner.home / "allure").glob("*-result.json"))
    assert len(run.launches) == 1, "nothing is measured twice"
    assert run.left_on_target == []

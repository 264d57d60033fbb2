"""The examples in the docstrings of all hooks work unchanged, and in a single run."""

from __future__ import annotations

import inspect
import json
import os
import platform
import re
import shlex
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.plugin import hookspecs
from pytest_ckpt.plugin.vendor_hooks import HOOKS
from tests.support.doc_pages import DOCS
from tests.support.doc_pages import blocks as blocks_of_page
from tests.support.end_to_end import MEASURED, REQUIRED, Run, temporary_runner
from tests.support.machine import need
from tests.support.vendor_directory import QUICK


def blocks(name: str) -> list[str]:
    """Return the code examples in a hook's docstring."""
    text = inspect.getdoc(getattr(hookspecs, name)) or ""
    found = re.findall(r"::\n\n((?:    .*\n|\n)+)", text + "\n")
    return [textwrap.dedent(block).strip() + "\n" for block in found]


EXAMPLES = {name: blocks(name) for name in HOOKS}


@pytest.fixture(scope="module")
def run(create_home: Callable[[str], Path]) -> Run:
    need(os.access("/proc/sys/vm/drop_caches", os.W_OK), "an example drops caches, which needs root")
    with temporary_runner(create_home("examples")) as runner:
        directory = runner.home / "acme"
        directory.mkdir()
        every = [block for name in HOOKS for block in EXAMPLES[name]]
        (directory / "conftest.py").write_text("\n\n".join(every))
        return runner.run(*QUICK, "--pyargs", "pytest_ckpt.suites", "acme")


@pytest.mark.parametrize("name", HOOKS)
def test_every_hook_has_an_example_that_implements_it(name: str) -> None:
    assert any(f"def {name}(" in block for block in EXAMPLES[name])
    for block in EXAMPLES[name]:
        compile(block, name, "exec")


@pytest.mark.parametrize("name", HOOKS)
def test_an_example_takes_what_the_hook_gives(name: str) -> None:
    """An example of a hook has all arguments of the hook, in the order of the hook specification."""
    arguments = ", ".join(inspect.signature(getattr(hookspecs, name)).parameters)
    assert f"def {name}({arguments}):" in "".join(EXAMPLES[name])


def test_the_example_hooks_run(run: Run) -> None:
    assert run.code == 0, run.text
    assert run.outcomes() == dict.fromkeys(REQUIRED, "met")
    assert run.document["environment"]["plugins"][0]["hooks"] == list(HOOKS)


def test_the_values_from_the_example_hooks_are_used(run: Run) -> None:
    settings = {s["option"]: s for s in run.document["settings"]}
    for option in ("--ckpt-drop-caches", "--ckpt-actions [power_cut] command", "--ckpt-launcher"):
        assert settings[option]["source"] == "hook of acme/conftest.py"
    assert shlex.split(settings["--ckpt-actions [power_cut] command"]["value"])[0] == sys.executable
    assert run.measurement()["cache"]["method"].endswith("sh -c 'sync; echo 3 > /proc/sys/vm/drop_caches'")
    assert "-x ACME_READ_AHEAD=off" in (run.report / "launches" / "1" / "command").read_text()


def test_the_reports_and_files_of_the_example_hooks_exist(run: Run) -> None:
    assert run.document["environment"]["plugins"][0]["facts"] == {"client kernel": platform.release()}
    (line,) = (run.home / "acme.jsonl").read_text().splitlines()
    assert json.loads(line) == {
        "subject": MEASURED,
        "save_seconds": [o["seconds"] for o in run.operations("save")],
    }
    (section,) = run.document["sections"]
    assert section["rows"] == [[MEASURED, "4"]]


def test_the_requirements_of_the_example_hooks_are_judged(run: Run) -> None:
    verdict = run.verdict("ACME-CLIENTS")
    assert (verdict["outcome"], verdict["measured"], verdict["limit"], verdict["unit"]) == ("met", 1, 1, "clients")


@pytest.mark.parametrize("name", ["pytest_ckpt_engines", "pytest_ckpt_targets"])
def test_the_page_for_vendors_shows_the_same_example(name: str) -> None:
    shown = [block.text for block in blocks_of_page(DOCS / "writing_a_hook.md") if f"def {name}(" in block.text]
    assert [text.split() for text in shown] == [text.split() for text in EXAMPLES[name]]

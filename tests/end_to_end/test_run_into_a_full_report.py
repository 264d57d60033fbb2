"""A full report directory is reported once, with the remedy. The target is not blamed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import CHECKOUT
from tests.support.end_to_end import TINY, Runner
from tests.support.machine import Mounts, patience

# Fills the file system of the report except for some bytes when the run reaches a hook.
FILLS = """
import os
from pathlib import Path

def {hook}(*_):
    place = Path({place!r})
    if not place.exists():
        left = os.statvfs(place.parent)
        place.write_bytes(bytes(left.f_bavail * left.f_frsize - {but}))
"""
SENTENCE = "The report directory {} cannot be written: No space left on device. Give it space, or name another with "


@pytest.fixture
def place(mount: Mounts) -> Path:
    """A file system of 4 MiB for the report directory."""
    return mount("tmpfs", 4)


def words_of(runner: Runner, place: Path, hook: str, but: int) -> dict[str, str]:
    (runner.home / "fills.py").write_text(FILLS.format(hook=hook, place=str(place / "full"), but=but))
    return {"PYTHONPATH": f"{runner.home}:{CHECKOUT}"}


def test_a_report_directory_that_is_full_before_the_run_is_refused(runner: Runner, place: Path) -> None:
    (place / "full").write_bytes(bytes(4 << 20))
    started = runner.start(*TINY, "--ckpt-engine=stream", report=place / "report")
    assert started.process.wait(patience(240)) == 4, started.text
    assert started.text.count(SENTENCE.format(place / "report")) == 1, started.text
    assert not (place / "report").exists()
    assert list(runner.target.iterdir()) == []


@pytest.mark.parametrize("suites", ["performance", pytest.param("conformance", marks=pytest.mark.thorough)])
def test_a_report_directory_that_is_full_in_the_run_is_reported_once(runner: Runner, place: Path, suites: str) -> None:
    environment = words_of(runner, place, "pytest_runtest_setup", but=0)
    gates = ("--ckpt-gate-table=posix-local",) if suites == "conformance" else ()
    started = runner.start(
        *TINY, "--ckpt-engine=stream", f"--ckpt-suite={suites}", *gates, "-p", "fills",
        report=place / "report", environment=environment,
    )  # fmt: skip
    assert started.process.wait(patience(240)) == 3, started.text
    assert started.text.count(SENTENCE.format(place / "report")) == 1, started.text
    assert started.text.count("No space left on device") == 1, started.text
    assert "error of pytest-ckpt" not in started.text
    assert "Traceback" not in started.text
    assert started.text.count("FAILED ") == 1, "the other tests are not tried"
    assert list(runner.target.iterdir()) == []


@pytest.mark.parametrize(
    "but",
    [0, pytest.param(64 << 10, marks=pytest.mark.thorough)],
    ids=["no room for the draft", "room for the draft alone"],
)
def test_a_report_that_does_not_fit_at_the_end_is_reported_once(runner: Runner, place: Path, but: int) -> None:
    environment = words_of(runner, place, "pytest_sessionfinish", but=but)
    started = runner.start(
        *TINY, "--ckpt-engine=stream", "-p", "fills", report=place / "report", environment=environment
    )
    assert started.process.wait(patience(240)) == 3, started.text
    assert started.text.count(SENTENCE.format(place / "report")) == 1, started.text
    assert list(runner.target.iterdir()) == []

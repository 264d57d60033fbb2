"""Runs on a host with busy processors.

A requirement on a ratio of times is "not run". A requirement with a limit in seconds is judged as usual.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.end_to_end import SUBJECT, TINY, Run, temporary_runner

# The busy processes of this module would disturb every other test.
pytestmark = pytest.mark.alone

# Parts of a span shorter than a quarter of a second are not counted. These saves are long enough: each writes 160 MB.
OPTIONS = (
    *TINY,
    "--ckpt-operations=8",
    "--ckpt-scale=1/700",
    "--ckpt-ranks=4",
    "--ckpt-suite=performance:data-pairs=1",
)
FOUR = SUBJECT.replace("-2", "-4")


@pytest.fixture(scope="module")
def run(create_home: Callable[[str], Path]) -> Iterator[Run]:
    """A run during which four CPU-bound processes per core run."""
    with temporary_runner(create_home("busy")) as runner:
        with ExitStack() as loops:
            for _ in range(4 * (os.cpu_count() or 1)):
                loop = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
                loops.callback(loop.wait)
                loops.callback(loop.kill)
            done = runner.run(*OPTIONS, with_host_load=True)
        yield done


@pytest.mark.parametrize("requirement", ["STRAGGLER", "DATA"])
def test_a_ratio_of_times_does_not_decide(run: Run, requirement: str) -> None:
    verdict = run.verdict(requirement, FOUR)
    assert (verdict["outcome"], verdict["reason"]) == ("not run", "host busy"), run.text
    assert "The host was busy (" in verdict["because"]
    assert "load average" in verdict["because"]


def test_times_that_vary_fail_nothing(run: Run) -> None:
    verdict = run.verdict("REPEAT", FOUR)
    assert verdict["outcome"] in ("met", "not run")
    assert verdict["reason"] in ("met", "host busy")


def test_absolute_limits_are_judged_on_a_busy_host_and_the_verdict_shows_the_load(run: Run) -> None:
    assert run.outcomes(FOUR) == dict.fromkeys(run.outcomes(FOUR), "met")
    assert "busy host: " in run.verdict("SAVE", FOUR)["detail"]


def test_the_load_of_the_host_is_in_the_measurement(run: Run) -> None:
    loads = {load["span"]: load for load in run.measurement(FOUR)["host_loads"]}
    assert set(loads) == {"operations", "data"}
    for load in loads.values():
        assert load["idle_share"] < 0.1
        assert load["others_share"] >= 0.25

"""Processor times that the kernel counts, from fake files and from this kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_ckpt.support.processor_times import host_times, load_average, seconds_of_this_process

TICK = 1 / os.sysconf("SC_CLK_TCK")
STAT = """cpu  100 10 50 700 40 5 15 80 30 0
cpu0 50 5 25 350 20 2 8 40 15 0
cpu1 50 5 25 350 20 3 7 40 15 0
intr 1
"""


def test_the_times_of_a_host_are_those_of_all_its_processors(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text(STAT)
    (tmp_path / "loadavg").write_text("5.78 5.61 6.21 11/163 21972\n")
    found = host_times(tmp_path)
    assert found is not None
    assert found.cores == 2
    # Time of guests is a part of user time.
    assert found.total == pytest.approx(1000 * TICK)
    assert found.idle == pytest.approx(740 * TICK)
    assert found.steal == pytest.approx(80 * TICK)
    assert load_average(tmp_path) == 5.78


@pytest.mark.parametrize("text", ["", "cpu\n", "cpu  1 2 3 4\ncpu0 1 2 3 4\n", "cpu  a b c d e f g h\n", STAT[:34]])
def test_pages_that_the_kernel_does_not_count_are_unknown(tmp_path: Path, text: str) -> None:
    assert host_times(tmp_path) is None
    (tmp_path / "stat").write_text(text)
    assert host_times(tmp_path) is None
    assert load_average(tmp_path) == 0.0


def test_this_kernel_counts() -> None:
    found = host_times()
    assert found is not None
    assert found.total > found.idle + found.steal
    assert found.cores >= 1


# A child of a child works until it has used a tenth of a second, says so, and goes on to wait.
WORKS = """
import subprocess, sys, time
if sys.argv[1:] == ["inner"]:
    while time.process_time() < 0.1: pass
    print("done", flush=True)
    sys.stdin.read()
else:
    subprocess.run([sys.executable, "-S", __file__, "inner"])
"""


def test_children_count_while_they_run_and_when_they_have_ended(tmp_path: Path) -> None:
    program = tmp_path / "works.py"
    program.write_text(WORKS)
    before = seconds_of_this_process()
    command = [sys.executable, "-S", str(program)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout
        assert child.stdout.readline() == b"done\n"
        running = seconds_of_this_process()
        child.communicate()
    # The kernel counts in ticks.
    assert running - before >= 0.1 - 2 * TICK
    assert seconds_of_this_process() - running >= -4 * TICK

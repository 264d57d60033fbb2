"""A process of a run is killed at a random moment, again and again: nothing runs on, and nothing is left behind.

``CKPT_KILLS`` and ``CKPT_KILLS_SEED`` say how many, and which; each is made again from its seed and number.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
import uuid
from pathlib import Path

import pytest

from tests.support.front_door import STREAM, FrontDoor
from tests.support.machine import eventually, patience

KILLS, SEED = int(os.environ.get("CKPT_KILLS", "6")), os.environ.get("CKPT_KILLS_SEED", "1")
# What a run takes at least on a quiet machine: a moment behind its end kills nothing.
LATEST_SECONDS = 30.0
OPTIONS = ("--ckpt-profile=smoke", "--ckpt-model=llama3-8b", "--ckpt-gates=auto", STREAM)
OF_CONTROLLER = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


def started_with(mark: str) -> list[int]:
    """Return all processes whose environment has a mark: of whatever was started, and by whom."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
            is_dead = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if mark.encode() in environment and not is_dead:
            found.append(int(folder.name))
    return sorted(found)


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(KILLS))
def test_a_killed_process_leaves_nothing_behind(door: FrontDoor, number: int) -> None:
    chance, mark = random.Random(f"{SEED}/{number}"), f"CKPT_TEST_KILLS={uuid.uuid4()}"
    name, _, value = mark.partition("=")
    started = door.start(*OPTIONS, environment={name: value})
    controller = started.process.pid
    try:
        started.process.wait(chance.uniform(0.0, LATEST_SECONDS))
    except subprocess.TimeoutExpired:
        victim = chance.choice(started_with(mark) or [controller])
        how = chance.choice(OF_CONTROLLER) if victim == controller else signal.SIGKILL
    else:
        victim, how = 0, signal.SIGTERM
    told = f"{SEED}/{number}: {how.name} for {victim}, the controller is {controller}"
    if victim:
        os.kill(victim, how)
    code = started.process.wait(patience(600))
    began = time.monotonic()
    eventually(lambda: not started_with(mark), f"no process is left; {told}\n{started.text}")
    took = time.monotonic() - began
    assert took < patience(60), f"{told}: the last process ended {took:.0f} s after the run"
    # Before that pytest itself is being loaded, and ends as Python does.
    has_begun = "test session starts" in started.text
    if has_begun:
        assert "Traceback" not in started.text, f"{told}\n{started.text}"
        assert "INTERNALERROR" not in started.text, f"{told}\n{started.text}"
    was_killed = victim == controller and how == signal.SIGKILL
    left = sorted(door.target.iterdir())
    if was_killed:
        # Nobody was there to remove the run's own folder; the next run names it.
        assert all(path.name.startswith("pytest-ckpt-") for path in left), told
        for path in left:
            shutil.rmtree(path)
    else:
        assert left == [], f"{told}\n{started.text}"
        assert code in (0, 1, 2, 3, 4, 8) or not has_begun, f"{told}: exit code {code}\n{started.text}"

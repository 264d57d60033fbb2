"""Saves for a given duration, and saves on a nearly full volume.

The tests check measurements, refused options, and the removal of the ballast (files that fill the volume).
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_ckpt.support.units import format_seconds
from tests.support.end_to_end import (
    MEASURED,
    TINY,
    TORCH,
    Runner,
    Sabotage,
    counted_steps,
    progress_lines,
)

MEBIBYTES = 200
OPTIONS = (*TINY, "--ckpt-suite=performance,endurance", "--ckpt-gate-table=posix-shared")
FILLING = (*OPTIONS, "--ckpt-suite=near-full=on")


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["torch", "stream"])
def test_saves_continue_for_the_duration_and_on_a_full_volume(
    runner: Runner, mount: Callable[..., Path], engine: str
) -> None:
    volume = mount("ext4", MEBIBYTES)
    run = runner.run(*FILLING, "--ckpt-suite=duration=2s", f"--ckpt-engine={engine}", target=volume)
    patterns = run.measurement()["patterns"]
    found = patterns["endurance"]
    assert found["requested_seconds"] == 2
    assert found["seconds"] >= 2
    assert len(found["start_seconds"]) == len(found["save_seconds"]) >= 5
    assert sum(found["save_seconds"]) <= found["seconds"]
    assert found["start_seconds"] == sorted(found["start_seconds"])
    levels = patterns["near_full"]["levels"]
    assert [level["requested"] for level in levels] == [0, 0.8, 0.9]
    assert [level["used"] >= level["requested"] for level in levels] == [True] * 3
    assert [len(level["save_seconds"]) for level in levels] == [5] * 3
    # The speed of a busy machine decides nothing here; the test only shows that it was judged.
    assert run.verdict("NEARFULL")["outcome"] in ("met", "failed")
    assert run.verdict("STEADY")["detail"]
    assert format_seconds(found["seconds"]) in run.verdict("ENDURE")["because"]
    assert len(run.operations("save")) == 2
    stages = run.measurement()["stages"]
    every = sum(found["save_seconds"]) + sum(s for level in levels for s in level["save_seconds"])
    assert stages["endurance"] == pytest.approx(every)
    assert stages["ballast"] > 0
    assert {p.name for p in volume.iterdir()} == {"lost+found"}
    assert counted_steps(run.text) == [(number, 20) for number in range(1, 21)]
    assert "save on a filled volume 15 of 15" in progress_lines(run.text)[-1]


@pytest.mark.thorough
def test_a_storage_that_slows_down_with_the_hours_or_when_full_fails(
    runner: Runner, mount: Callable[..., Path]
) -> None:
    """ENDURE fails if saves become slow over time. NEARFULL fails if saves are slow on a nearly full volume.

    The test slows down the saves of ENDURE from the fifth save on. It slows down the saves of NEARFULL on a volume that
    is 90 % full.
    """
    volume = mount("ext4", MEBIBYTES)
    sabotage = Sabotage(runner.home, "slow", rank=1, where=r" endurance ([5-9]|[1-9]\d+)$| near_full [1-5] at 90%$")
    table = runner.home / "lasting.toml"
    rows = 'ENDURE = { gate = "required" }\nNEARFULL = { gate = "required" }\n'
    table.write_text(f'name = "lasting"\nextends = "posix-shared"\n[requirements]\n{rows}')
    options = (*FILLING, "--ckpt-suite=duration=30s", TORCH, f"--ckpt-gate-table={table}")
    run = runner.run(*options, target=volume, environment=sabotage.environment, cluster=1)
    assert run.code == 1
    assert {name: run.verdict(name)["outcome"] for name in ("ENDURE", "NEARFULL")} == {
        "ENDURE": "failed",
        "NEARFULL": "failed",
    }
    assert "at 90%" in run.verdict("NEARFULL")["because"]
    assert run.verdict("SAVE")["outcome"] == "met"


@pytest.mark.thorough
def test_the_ballast_goes_though_a_rank_is_killed_beside_it(runner: Runner, mount: Callable[..., Path]) -> None:
    volume = mount("ext4", MEBIBYTES)
    sabotage = Sabotage(runner.home, "pause", rank=0, where=" near_full 1 at 80%$")
    started = runner.start(*FILLING, target=volume, environment=sabotage.environment, cluster=1)
    sabotage.wait_until_blocked(started)
    assert list(started.run_directory.glob("*/ballast-80-*"))
    os.kill(started.pid_of_rank(1), signal.SIGKILL)
    run = started.finish()
    # A killed rank is no evidence about the storage.
    assert run.verdict("NEARFULL")["outcome"] == "not run"
    assert run.verdict("SAVE")["outcome"] == "met"
    assert {p.name for p in volume.iterdir()} == {"lost+found"}


@pytest.mark.thorough
def test_without_being_asked_nothing_is_filled_and_nothing_is_called_met(runner: Runner) -> None:
    run = runner.run(*OPTIONS, "--ckpt-engine=stream")
    assert {name: run.verdict(name)["outcome"] for name in ("ENDURE", "NEARFULL")} == {
        "ENDURE": "not run",
        "NEARFULL": "not run",
    }
    assert "--ckpt-suite=endurance:duration" in run.verdict("ENDURE")["because"]
    assert "--ckpt-suite=endurance:near-full" in run.verdict("NEARFULL")["because"]
    count = len(run.measurement()["patterns"]["endurance"]["save_seconds"])
    assert 5 <= count <= 25
    # Endurance is one step of the run, whatever the number of its saves.
    assert counted_steps(run.text) == [(number, 5) for number in range(1, 6)]
    assert progress_lines(run.text)[-1].endswith(f" endurance: {count} saves")
    saves = re.findall(r" endurance save (\d+): .*, at most .* left$", run.text, re.MULTILINE)
    assert [int(number) for number in saves] == list(range(1, count + 1))
    assert run.document["requirements"][0]["subject"] == MEASURED


def test_a_volume_that_others_use_is_not_filled(runner: Runner, mount: Callable[..., Path]) -> None:
    volume = mount("ext4", MEBIBYTES)
    (volume / "theirs").write_bytes(os.urandom(90 << 20))
    run = runner.run(*FILLING, target=volume)
    assert run.code == 4
    assert "--ckpt-suite=endurance:near-full cannot be done" in run.text
    assert "a volume is filled only if it contains no data of users" in run.text
    assert "Traceback" not in run.text
    assert {p.name for p in volume.iterdir()} == {"lost+found", "theirs"}


@pytest.mark.parametrize("option", ["--ckpt-suite=near-full=on", "--ckpt-suite=duration=4h"])
def test_an_option_of_a_suite_that_is_not_run_is_refused(runner: Runner, option: str) -> None:
    run = runner.run(*TINY, "--ckpt-suite=performance", option)
    assert run.code == 4
    assert "belongs to the suite endurance, which is not chosen" in run.text

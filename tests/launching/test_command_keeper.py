"""The command keeper, a process that runs a user's commands: its answers, and the detection of its end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pytest_ckpt.facts.commands import Command, CommandRun
from pytest_ckpt.launching.command_keeper import CommandKeeper
from pytest_ckpt.support import waits
from tests.support.machine import eventually

Started = Callable[[Mapping[Command, str]], tuple[CommandKeeper, int]]


@pytest.fixture
def started(tmp_path: Path) -> Started:
    """Return a function that starts a command keeper with the given commands and returns (keeper, its process id)."""

    def start_keeper(commands: Mapping[Command, str]) -> tuple[CommandKeeper, int]:
        keeper = CommandKeeper({"upgrade": f"sh -c 'echo $PPID > {tmp_path}/pid'", **commands}, 60.0, tmp_path / "log")
        keeper.start("upgrade")
        assert next_of(keeper)[0].is_good
        return keeper, int((tmp_path / "pid").read_text())

    return start_keeper


def next_of(keeper: CommandKeeper) -> list[CommandRun]:
    runs: list[CommandRun] = []
    while not runs:
        runs = keeper.ended(os.read(keeper.descriptor, 1 << 16))
    return runs


def test_injected_faults_are_repaired_at_the_end(started: Started, tmp_path: Path) -> None:
    keeper, _ = started({"fault": "true", "repair": f"touch {tmp_path}/repaired"})
    keeper.start("fault")
    assert [run.sentence for run in next_of(keeper) if not run.is_good] == []
    assert [(run.command, run.exit_code) for run in keeper.close()] == [("repair", 0)]
    assert (tmp_path / "repaired").exists()


def test_a_command_that_is_asked_of_a_process_that_died_is_told_as_not_run(started: Started) -> None:
    keeper, pid = started({"fault": "true", "repair": "true"})
    keeper.start("fault")
    assert next_of(keeper)[0].is_good
    os.kill(pid, signal.SIGKILL)
    assert keeper.ended(os.read(keeper.descriptor, 1 << 16)) == []
    keeper.start("repair")
    (run,) = next_of(keeper)
    assert run.sentence == (
        "The repair command did not end well: the process that runs the commands was killed by signal 9 (SIGKILL), "
        "and a command that it had started may still run."
    )
    assert keeper.close() == [], "it was told already"


def test_a_process_that_dies_in_a_command_is_reported_with_its_pending_commands(
    started: Started, tmp_path: Path
) -> None:
    words = f"sh -c 'echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/of_command; exec sleep 600'"
    keeper, pid = started({"fault": words, "repair": "true"})
    keeper.start("fault")
    eventually((tmp_path / "of_command").exists, "the command runs")
    os.kill(pid, signal.SIGTERM)
    (broke,) = next_of(keeper)
    os.kill(int((tmp_path / "of_command").read_text()), signal.SIGKILL)
    assert (broke.command, broke.exit_code) == ("fault", None)
    assert "was killed by signal 15 (SIGTERM)" in broke.output
    (owed,) = keeper.close()
    assert owed.sentence == (
        "The repair command did not end well: the process that runs the commands was killed by signal 15 (SIGTERM): "
        "the command was not run, so run it by hand."
    )


def test_a_process_that_died_with_nothing_to_do_owes_nothing(started: Started) -> None:
    keeper, pid = started({"snapshot": "false", "remove": "true"})
    keeper.start("snapshot")
    assert not next_of(keeper)[0].is_good
    os.kill(pid, signal.SIGKILL)
    assert keeper.close() == []


@pytest.mark.parametrize(
    ("asked", "name"), [pytest.param([], "repair", id="owed"), pytest.param(["repair"], "repair", id="asked")]
)
def test_a_command_that_runs_long_is_reported_while_it_is_waited_for(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[Command], name: str
) -> None:
    os.mkfifo(gate := tmp_path / "gate")
    monkeypatch.setattr(waits, "TELL_SECONDS", 0.0)
    monkeypatch.setattr(waits, "LOOK_SECONDS", 0.05)
    told: list[str] = []

    def say(text: str) -> None:
        told.append(text)
        with contextlib.suppress(OSError):  # the keeper does not listen yet
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))

    keeper, _ = started({"fault": "true", "repair": f"cat {gate}"})
    keeper.start("fault")
    assert next_of(keeper)[0].is_good
    for command in asked:
        keeper.start(command)
    with waits.telling(say):
        assert [(run.command, run.exit_code) for run in keeper.close()] == [("repair", 0)]
    assert told
    assert all(re.fullmatch(rf"the {name} command: \d+ s", text) for text in told)

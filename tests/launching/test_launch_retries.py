"""A launcher that fails before any rank has sent a message is started again. A later failure ends the run."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from pytest_ckpt.cli.main import main
from tests.support.end_to_end import TINY, Runner

# A worker of pytest-xdist measures, so the controller's waiting ranks are not used, and a new launch starts.
LAUNCHES_AGAIN = "-n1"


@pytest.fixture
def launcher(runner: Runner) -> str:
    """Return the option for a launcher whose behavior is set in the file ``plan``, by one word for each launch.

    "fail" ends with an error, "nothing" ends without starting ranks, and "silence" hangs. Any other word starts the
    ranks.
    """
    program = runner.home / "launch"
    # A "#!" line could not name a Python whose path contains a space.
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(program))}.py "$@"\n')
    program.chmod(0o755)
    program.with_suffix(".py").write_text(
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "mpiexec = os.path.join(os.path.dirname(sys.executable), 'mpiexec')\n"
        "if sys.argv[1:] == ['--version']:\n    os.execv(mpiexec, [mpiexec, '--version'])\n"
        "plan = Path(__file__).with_name('plan')\n"
        "word, _, rest = plan.read_text().partition(' ')\n"
        "plan.write_text(rest)\n"
        "if word == 'fail':\n"
        # The last output is a line without a newline.
        "    print('no daemon answers', end='', file=sys.stderr)\n    raise SystemExit(213)\n"
        "if word == 'nothing':\n    raise SystemExit(0)\n"
        "if word == 'silence':\n    signal.pause()\n"
        "os.execv(mpiexec, [mpiexec, *sys.argv[1:]])\n"
    )
    return f"--ckpt-launcher={shlex.quote(str(program))}"


def tries(report: Path, launch: str) -> tuple[int, int]:
    ended = json.loads((report / "launches" / launch / "exit.json").read_text())
    return ended["exit_code"], ended["tries"]


def test_a_launch_that_did_not_start_is_tried_again_and_that_is_reported(runner: Runner, launcher: str) -> None:
    (runner.home / "plan").write_text("fail fail start")
    run = runner.run(*TINY, "--ckpt-engine=stream", launcher)
    assert run.code == 0, run.text
    assert set(run.outcomes().values()) == {"met"}
    assert tries(run.report, "1") == (0, 3)
    assert run.launches == ["1"]
    assert run.text.count("The launcher started no rank (exit code 213: no daemon answers)") == 2
    assert (run.report / "launches/1/launcher.log").read_text().count("trying again") == 2


@pytest.mark.thorough  # the shortest deadline of a launch is a minute
def test_a_launch_on_this_host_that_stays_silent_is_tried_once_more(runner: Runner, launcher: str) -> None:
    (runner.home / "plan").write_text("silence start")
    run = runner.run(*TINY, "--ckpt-engine=stream", "--ckpt-io-timeout=30s", launcher)
    assert run.code == 0, run.text
    assert set(run.outcomes().values()) == {"met"}
    assert tries(run.report, "1") == (0, 2)
    assert run.text.count("The launcher started no rank (2 of 2 ranks had not started after 60 s)") == 1


def test_a_launcher_that_ends_well_without_starting_a_rank_fails_the_measurement_once(
    runner: Runner, launcher: str
) -> None:
    (runner.home / "plan").write_text("start" + " nothing" * 9)
    run = runner.run(*TINY, launcher, LAUNCHES_AGAIN)
    assert run.code != 0, run.text
    assert run.launches == ["1"]
    assert "met" not in run.outcomes().values()
    assert run.left_on_target == []


def test_a_launcher_that_never_starts_anything_fails_the_launch_after_three_tries(
    runner: Runner, launcher: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (runner.home / "plan").write_text("start fail fail fail start")
    run = runner.run(*TINY, "--ckpt-engine=stream", launcher, LAUNCHES_AGAIN)
    assert run.code == 8, run.text
    assert set(run.outcomes().values()) == {"not run"}
    failure = run.measurement()["failure"]
    assert (failure["kind"], failure["rank"]) == ("launch", None)
    assert failure["message"] == "exit code 213: no daemon answers (tried 3 times)"
    assert tries(run.report, "1") == (213, 3)
    assert (runner.home / "plan").read_text() == "start"
    # No rank reported anything; ``verify`` must not take that for a change.
    assert main(["verify", str(run.report)]) == 0, capsys.readouterr().out

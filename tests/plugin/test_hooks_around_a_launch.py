"""Hooks before and after a launch. If a hook fails, skips or exits, only the current measurement is lost.

A message names the failed hook.
"""

from __future__ import annotations

import signal
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.actions import actions
from tests.support.end_to_end import CHECKOUT, REQUIRED, SUBJECT, Run, Runner, processes_of
from tests.support.vendor_directory import QUICK


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_hook_that_fails_afterwards_takes_what_was_met_but_not_what_failed(
    run_with: Callable[..., Run], workers: tuple[str, ...]
) -> None:
    """If the hook after a measurement fails, requirements that were met become "not run". Failed ones remain failed.

    The cluster is so large that SAVE and LOAD fail on any storage.
    """
    run = run_with(
        """
        def pytest_ckpt_after_measure(measurement):
            raise RuntimeError("the counters of the array were reset")
        """,
        *workers,
        cluster=100_000_000,
    )
    assert run.code == 1, run.text
    assert run.outcomes() == {
        "SAVE": "failed", "LOAD": "failed", "INTEGRITY": "not run", "COLD": "not run", "DURABLE-CALLS": "not run"
    }  # fmt: skip
    message = (
        "Plugin vendor/conftest.py failed in pytest_ckpt_after_measure: RuntimeError: the counters of the array were "
        "reset (conftest.py, line 3)"
    )
    assert run.measurement()["failure"]["message"] == message
    assert run.verdict("INTEGRITY")["because"] == f"It was met, but {message}."
    assert len(run.operations("load")) == 2
    assert "Traceback" not in run.text
    assert "the counters of the array were reset" in (run.report / "launches" / "1" / "hooks.log").read_text()
    assert run.left_on_target == []
    assert run.launches == ["1"]


def test_a_hook_that_skips_skips_nothing(run_with: Callable[..., Run]) -> None:
    run = run_with(
        """
        import pytest

        def pytest_ckpt_before_measure():
            pytest.skip("not today")
        """
    )
    assert run.code == 8, run.text
    assert run.outcomes() == dict.fromkeys(REQUIRED, "not run")
    assert "failed in pytest_ckpt_before_measure: Skipped: not today" in run.measurement()["failure"]["message"]


@pytest.mark.thorough
@pytest.mark.parametrize("breaks", ["", "before", "after"])
def test_hooks_are_called_around_a_launch_with_commands_too(run_with: Callable[..., Run], breaks: str) -> None:
    """Hooks are also called for a launch with maintenance commands.

    If a hook fails in one of these calls, only UPGRADE is "not run".
    """
    run = run_with(
        f"""
        seen = []

        def pytest_ckpt_before_measure(subjects):
            seen.append("before")
            if len(seen) == 3 and {breaks!r} == "before":
                raise RuntimeError("the array is busy")

        def pytest_ckpt_after_measure(measurement):
            seen.append("after")
            if len(seen) == 4:
                assert measurement.patterns.upgrade
                if {breaks!r} == "after":
                    raise RuntimeError("the array is busy")
        """,
        "--ckpt-suite=performance,maintenance",
        actions(upgrade_command="true"),
    )
    assert run.verdict("SAVE")["outcome"] == "met"
    verdict = run.verdict("UPGRADE")
    if breaks:
        assert (verdict["outcome"], verdict["reason"]) == ("not run", "run ended"), verdict
        assert f"failed in pytest_ckpt_{breaks}_measure: RuntimeError: the array is busy" in verdict["because"]
        assert "the array is busy" in (run.report / "launches" / "2" / "hooks.log").read_text()
    else:
        assert verdict["outcome"] == "met", verdict
    assert run.left_on_target == []


def test_every_after_hook_is_called_even_if_a_before_hook_fails(runner: Runner) -> None:
    """If a plugin's before-hook fails, the after-hook of every plugin is still called."""
    calls = runner.home / "calls"
    for name, breaks in (("one", ""), ("two", "    raise ValueError('{} is ill')\n")):
        (runner.home / f"{name}.py").write_text(
            f"def tell(words):\n    open({str(calls)!r}, 'a').write(f'{name} {{words}}\\n')\n"
            "def pytest_ckpt_before_measure(subjects):\n    tell('before ' + ','.join(subjects))\n"
            + breaks.format("before")
            + "def pytest_ckpt_after_measure(measurement):\n    tell('after ' + measurement.failure.kind)\n"
            + breaks.format("after")
        )
    path = {"PYTHONPATH": f"{runner.home}:{CHECKOUT}"}
    run = runner.run(*QUICK, "-p", "one", "-p", "two", environment=path)
    assert run.code == 8, run.text
    called = calls.read_text().splitlines()
    assert sorted(called) == sorted([*called[:-2], "one after hook", "two after hook"])
    assert f"two before {SUBJECT}/stream" in called
    assert "before is ill" in run.measurement()["failure"]["message"]
    assert "after is ill" in (run.report / "launches" / "1" / "hooks.log").read_text()


@pytest.mark.thorough
def test_ctrl_c_in_a_hook_leaves_a_report_and_no_measurement_to_rely_on(runner: Runner) -> None:
    directory = runner.home / "vendor"
    directory.mkdir()
    waiting = runner.home / "waiting"
    (directory / "conftest.py").write_text(
        "import time\nfrom pathlib import Path\n\ndef pytest_ckpt_after_measure():\n"
        f"    Path({str(waiting)!r}).touch()\n    time.sleep(600)\n"
    )
    started = runner.start(*QUICK, "--pyargs", "pytest_ckpt.suites", "vendor")
    started.until(waiting.exists, "the hook waits")
    assert processes_of(started.run_id) == [], "no rank is left while a hook runs"
    started.process.send_signal(signal.SIGINT)
    run = started.finish()
    assert run.code == 2, run.text
    assert run.outcomes() == dict.fromkeys(REQUIRED, "not run")
    assert run.measurement()["failure"]["kind"] == "hook"
    assert "It was met, but The run was interrupted in a plugin's hook" in run.verdict("SAVE")["because"]
    assert run.left_on_target == []


@pytest.mark.thorough
def test_a_worker_that_dies_in_a_hook_leaves_nothing_to_judge(run_with: Callable[..., Run], tmp_path: Path) -> None:
    """If a worker process ends during a hook, the next worker repeats the measurement with the same plugin."""
    once = tmp_path / "once"
    run = run_with(
        "import os\nfrom pathlib import Path\n\ndef pytest_ckpt_after_measure():\n"
        f"    once = Path({str(once)!r})\n    if not once.exists():\n        once.touch()\n        os._exit(1)\n",
        "-n",
        "1",
    )
    assert run.code == 1, run.text
    assert "crashed while running" in run.text
    assert run.launches == ["1", "2"]
    assert run.measurement()["launch"] == "launches/2"
    assert run.left_on_target == []


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_the_power_is_cut_by_the_command_of_a_hook(runner: Runner, mount, workers: tuple[str, ...]) -> None:
    place = mount("ext4", 400)
    directory = runner.home / "vendor"
    directory.mkdir()
    (directory / "conftest.py").write_text(textwrap.dedent(
        '''
        import shlex
        import sys

        def pytest_ckpt_power_cut(settings):
            command = [sys.executable, "-m", "pytest_ckpt.targets.posix.power_cut", "--patience=300", settings.target]
            return shlex.join(command)
        '''
    ))  # fmt: skip
    gates = ("--ckpt-gate-table=posix-local", "--ckpt-suite=conformance")
    run = runner.run(
        *QUICK, *gates, *workers, "-k", "DURABLE and not CALLS", "pytest_ckpt.suites", "vendor", target=place
    )
    verdict = run.verdict("DURABLE", "power-cut")
    assert (verdict["outcome"], verdict["severity"]) == ("met", "required"), verdict
    assert any(
        "--ckpt-actions [power_cut] command" in s and "from hook of vendor/conftest.py" in s
        for s in run.document["disclosures"]
    )

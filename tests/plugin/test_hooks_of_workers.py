"""Workers of pytest-xdist use the plugins of the controller. If a worker lacks a plugin, it runs no test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.end_to_end import REQUIRED, Run, Runner
from tests.support.hostile_plugin import JUDGES
from tests.support.vendor_directory import QUICK


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("plugin", "expected_text"),
    [
        ("if 'PYTEST_XDIST_WORKER' not in os.environ:\n    def pytest_ckpt_before_measure(): pass\n",
         "A worker of pytest-xdist has not the plugins of the run: vendor/conftest.py (pytest_ckpt_before_measure)"),
        ("def pytest_ckpt_requirements():\n    if 'PYTEST_XDIST_WORKER' in os.environ:\n        1 / 0\n    return []\n",
         "failed in pytest_ckpt_requirements: ZeroDivisionError"),
        (JUDGES + "\n_all = pytest_ckpt_requirements\ndef pytest_ckpt_requirements():\n"
         "    return [] if 'PYTEST_XDIST_WORKER' in os.environ else _all()\n",
         "A worker of pytest-xdist has other requirements of plugins than the run."),
    ],
)  # fmt: skip
def test_workers_without_the_plugins_of_the_run_run_nothing(
    run_with: Callable[..., Run], plugin: str, expected_text: str
) -> None:
    run = run_with("import os\n" + plugin, "-n", "2")
    assert run.code == 1, run.text
    assert expected_text in run.text
    assert "INTERNALERROR" not in run.text
    assert run.outcomes() == dict.fromkeys(REQUIRED, "not run")
    assert run.left_on_target == []


@pytest.mark.thorough
def test_a_plugin_that_comes_when_the_run_is_open_stops_workers_too(runner: Runner) -> None:
    directory = runner.home / "vendor" / "below"
    directory.mkdir(parents=True)
    (directory / "conftest.py").write_text("def pytest_ckpt_before_measure(): raise ValueError('nobody asked')\n")
    run = runner.run(*QUICK, "-n", "2", "pytest_ckpt.suites", "vendor")
    assert run.code == 1, run.text
    assert "Plugin vendor/below/conftest.py comes too late for pytest_ckpt_before_measure" in run.text
    assert "INTERNALERROR" not in run.text
    assert run.outcomes() == dict.fromkeys(REQUIRED, "not run")
    assert run.document["measurements"] == []


def test_without_measurements_the_requirement_of_a_plugin_is_not_run(runner: Runner) -> None:
    directory = runner.home / "vendor"
    directory.mkdir()
    (directory / "conftest.py").write_text(JUDGES.replace('"advisory"', '"required"'))
    options = ("--ckpt-gate-table=posix-local", "--ckpt-suite=conformance", "-k", "ACME or FULL")
    run = runner.run(*QUICK, *options, "pytest_ckpt.suites", "vendor")
    assert run.code == 8, run.text
    verdict = run.verdict("ACME-MUTATES")
    assert (verdict["outcome"], verdict["severity"]) == ("not run", "required")
    assert verdict["because"] == "Performance suite not selected (--ckpt-suite)."
    assert run.document["measurements"] == []


@pytest.mark.thorough
def test_a_plugin_may_restrict_a_hook_to_the_controller(run_with: Callable[..., Run]) -> None:
    run = run_with(
        """
        class OfTheController:
            def pytest_ckpt_environment_facts(self):
                return {"seen by": "the controller"}

        def pytest_configure(config):
            if not hasattr(config, "workerinput"):
                config.pluginmanager.register(OfTheController())
                config.pluginmanager.register(OfTheController())
        """,
        "-n",
        "2",
    )
    assert run.code == 0, run.text
    plugins = run.document["environment"]["plugins"]
    assert sorted(p["name"] for p in plugins) == ["OfTheController", "OfTheController (2)"]
    assert [p["facts"] for p in plugins] == [{"seen by": "the controller"}] * 2


def test_workers_use_the_options_of_the_controller(run_with: Callable[..., Run]) -> None:
    """Workers use the launcher that the hook returned in the controller. The hook is called only in the controller."""
    run = run_with(
        """
        import os

        def pytest_ckpt_launch_command():
            if "PYTEST_XDIST_WORKER" in os.environ:
                return "no_such_launcher"
            import shlex, sys
            from pathlib import Path
            return shlex.join([str(Path(sys.executable).with_name("mpiexec")), "-x", "ACME=1"])
        """,
        "-n",
        "2",
    )
    assert run.code == 0, run.text
    assert "-x ACME=1" in (run.report / "launches" / "1" / "command").read_text()

"""The hooks with which a vendor's plugin adds commands, facts, requirements or code. Each hook has a tested example.

A plugin is a ``conftest.py`` in a directory given to pytest, a module given with ``-p``, or an installed package with
an entry point ``pytest11``. The function that implements a hook declares only the arguments that it needs. Plugins
import classes from `pytest_ckpt.vendors`. docs/examples/acme is a complete plugin; docs/writing_a_hook.md explains it.

The report and the certificate list every plugin that implements one of these hooks, with the plugin's version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_ckpt.vendors import Decision, EngineSpec, Measurement, Section, Settings, TargetSpec


@pytest.hookspec(firstresult=True)
def pytest_ckpt_drop_caches(config: pytest.Config, settings: Settings) -> str | None:
    """Return the command that drops caches before loads; None if this plugin has no such command.

    Every host runs the command, without a shell. The option ``--ckpt-drop-caches`` has the same effect and takes
    precedence. The hook is called once, before the first write, if the option was not given. If two plugins return a
    command, the run ends with an error. The report states the origin of the command as "hook of PLUGIN". Example::

        def pytest_ckpt_drop_caches(config, settings):
            return "sh -c 'sync; echo 3 > /proc/sys/vm/drop_caches'"
    """


@pytest.hookspec(firstresult=True)
def pytest_ckpt_power_cut(config: pytest.Config, settings: Settings) -> str | None:
    """Return the command that cuts and restores the storage's power; None if this plugin has no such command.

    The command runs on this host, without a shell, and ends when the power is back. The option
    ``--ckpt-actions [power_cut] command`` has the same effect and takes precedence. The hook is called once, like
    `pytest_ckpt_drop_caches`. Example, for a file system on a loop device::

        import shlex
        import sys

        def pytest_ckpt_power_cut(config, settings):
            return shlex.join([sys.executable, "-m", "pytest_ckpt.targets.posix.power_cut", settings.target])
    """


@pytest.hookspec(firstresult=True)
def pytest_ckpt_fault_command(config: pytest.Config, settings: Settings) -> str | None:
    """Return the command that makes a component of the storage fail; None if this plugin has no such command.

    The command runs on this host, without a shell, at random moments of separate saves and loads (requirement
    FAILOVER). The option ``--ckpt-actions [failover] fault`` has the same effect and takes precedence. A repair command
    is required, either from the hook `pytest_ckpt_repair_command` or from ``--ckpt-actions [failover] repair``. This
    hook is called once, like `pytest_ckpt_drop_caches`. Example::

        def pytest_ckpt_fault_command(config, settings):
            return "ssh array-admin fail-drive 7"
    """


@pytest.hookspec(firstresult=True)
def pytest_ckpt_repair_command(config: pytest.Config, settings: Settings) -> str | None:
    """Return the command that repairs the component in which the fault command caused a failure.

    Return None if this plugin has no such command. The command runs after each fault, even if the run ends early. The
    next save begins when the command ends; the command may end before a rebuild is complete. The option
    ``--ckpt-actions [failover] repair`` has the same effect and takes precedence. The hook is called once, like
    `pytest_ckpt_drop_caches`. Example::

        def pytest_ckpt_repair_command(config, settings):
            return "ssh array-admin replace-drive 7"
    """


@pytest.hookspec(firstresult=True)
def pytest_ckpt_launch_command(config: pytest.Config, settings: Settings) -> str | None:
    """Return the command that starts the ranks; None if this plugin has no such command.

    The texts {processes} and {hosts} in the command are replaced by the number of ranks and the hosts. The option
    ``--ckpt-launcher`` has the same effect and takes precedence. The hook is called once, like
    `pytest_ckpt_drop_caches`. Example::

        import shlex
        import sys
        from pathlib import Path

        def pytest_ckpt_launch_command(config, settings):
            mpiexec = Path(sys.executable).with_name("mpiexec")
            return shlex.join([str(mpiexec), "-x", "ACME_READ_AHEAD=off"]) if mpiexec.exists() else None
    """


def pytest_ckpt_environment_facts(config: pytest.Config, settings: Settings) -> Mapping[str, str]:  # type: ignore[empty-body]
    """Return additional facts about the environment of the run, as a dictionary of names and texts.

    The report contains them in ``environment``, under the plugin's name. Values of names such as ``token`` are masked.
    The hook is called once, before the first write. An exception ends the run. Example::

        import platform

        def pytest_ckpt_environment_facts(config, settings):
            return {"client kernel": platform.release()}
    """


def pytest_ckpt_before_measure(config: pytest.Config, subjects: Sequence[str]) -> None:
    """Run code before the launch of the ranks that measure ``subjects``.

    The hook is called in the process that starts the ranks, which may be a worker of pytest-xdist. If the hook raises
    an exception, no rank is started and the measurements of ``subjects`` fail. The time of the hook counts as the stage
    "hooks". Example::

        from pathlib import Path

        def pytest_ckpt_before_measure(config, subjects):
            raid = Path("/proc/mdstat")
            if raid.exists() and "recovery" in raid.read_text():
                raise RuntimeError("a RAID array is being rebuilt; start again when it is done")
    """


def pytest_ckpt_after_measure(config: pytest.Config, measurement: Measurement) -> None:
    r"""Run code for each measurement of a launch, after the ranks have ended. ``measurement`` is a copy.

    The hook is also called for a failed measurement, so that the plugin can undo the actions of
    `pytest_ckpt_before_measure`. ``measurement.failure`` then contains the reason. If the hook raises an exception, the
    measurement fails: met requirements become "not run", and failed requirements remain failed.

    The requirements FAILOVER, UPGRADE and SNAPSHOT, and RESHAPED with engine `dcp`, have separate launches.
    `pytest_ckpt_before_measure` and this hook are called for these launches as well (once for all launches of
    RESHAPED). ``measurement.patterns`` then contains the results of the launch.
    An exception then affects only the requirement of the launch. Example::

        import json

        def pytest_ckpt_after_measure(config, measurement):
            seconds = [operation.seconds for operation in measurement.of_kind("save")]
            with open("acme.jsonl", "a") as log:
                log.write(json.dumps({"subject": str(measurement.subject), "save_seconds": seconds}) + "\n")
    """


def pytest_ckpt_requirements(  # type: ignore[empty-body]
    config: pytest.Config, settings: Settings
) -> Sequence[Callable[..., Decision]]:
    """Return additional requirements. Each requirement is judged on every measured checkpoint.

    A requirement is one decorated function without side effects. Its parameters name the facts that it needs
    (``measurement``, ``limits``, ``saves``, ``loads``, a pattern such as ``storm``). Its docstring is printed in the
    certificate, and its body returns the decision. Each requirement becomes a separate test with its id. If the test is
    deselected, the requirement is "not run" and the run is incomplete. The hook is called in every process of the run.
    Example::

        from pytest_ckpt.vendors import Decision, requirement

        @requirement("ACME-CLIENTS", title="Enough clients", source="ACME's sizing guide", units=("clients",))
        def enough_clients_take_part(measurement, limits):
            \"\"\"One client takes part for every 1,000 accelerators of the cluster.

            Fewer clients do not show the limits of the network between clients and storage.
            \"\"\"
            there, needed = len(measurement.hosts), -(-limits.accelerators // 1000)
            return Decision(
                outcome="met" if there >= needed else "failed",
                measured=there,
                limit=needed,
                because=f"{there} of {needed} clients took part.",
            )

        def pytest_ckpt_requirements(config, settings):
            return [enough_clients_take_part]
    """


def pytest_ckpt_engines(config: pytest.Config) -> Sequence[EngineSpec]:  # type: ignore[empty-body]
    """Return additional engines. The option ``--ckpt-engine`` chooses an engine by the engine's name.

    ``make`` names a function as "module:function". The ranks import the module, so the module must be installed or on
    PYTHONPATH. Instead of this hook, a package can name an engine by an entry point in the group
    ``pytest_ckpt.engines``. The hook is called once, by the controller, before the first write. Example::

        from pytest_ckpt.vendors import EngineSpec, MemoryRule

        def pytest_ckpt_engines(config):
            return [
                EngineSpec(
                    name="acme",
                    help="ACME's own client library",
                    make="acme_client.engine:make",
                    memory=MemoryRule(process_bytes=200_000_000, state_share=1.0),
                )
            ]
    """


def pytest_ckpt_targets(config: pytest.Config) -> Sequence[TargetSpec]:  # type: ignore[empty-body]
    """Return additional kinds of targets. The option --ckpt-target=scheme://… chooses a kind by its scheme.

    A run on a plugin's target is a rehearsal and cannot be certified. The commands `pytest-ckpt plan` and `pytest-ckpt
    doctor` call no hooks. If these commands must know the target, name its TargetSpec by an entry point in the group
    ``pytest_ckpt.targets``. The hook is called once, when the run begins. Example::

        from pytest_ckpt.vendors import TargetSpec

        def pytest_ckpt_targets(config):
            return [TargetSpec(scheme="acme", help="an ACME array without a mount", make="acme.targets:target")]
    """


def pytest_ckpt_suites(config: pytest.Config, settings: Settings) -> Sequence[str | Path]:  # type: ignore[empty-body]
    """Return directories or files of additional tests.

    If the command line names no tests, the additional tests run as well as pytest-ckpt's own tests. The hook is called
    in every process of the run. Example::

        from pathlib import Path

        def pytest_ckpt_suites(config, settings):
            return [Path(__file__).parent]
    """


def pytest_ckpt_report_sections(config: pytest.Config, document: dict[str, Any]) -> Sequence[Section]:  # type: ignore[empty-body]
    """Return sections with text and tables for the end of the certificate. They appear under the plugin's name.

    ``document`` is a copy of the report, in the form of report.json. HTML in the sections is escaped. If the hook
    raises an exception, the certificate contains the exception in place of the sections. Verdicts do not change.
    Example::

        from pytest_ckpt.vendors import Section

        def pytest_ckpt_report_sections(config, document):
            rows = [[m["subject"], str(len(m["operations"]))] for m in document["measurements"]]
            return [
                Section(
                    title="How to read this on an ACME array",
                    paragraphs=["Times hold for the array as it was delivered."],
                    head=["checkpoint", "operations"],
                    rows=rows,
                )
            ]
    """

"""The hooks of plugins: commands, facts, requirements and code that a vendor can add. Each has a tested example.

A plugin is a ``conftest.py`` in a directory given to pytest, a module given with ``-p``, or an installed package with
an entry point ``pytest11``. The function of a hook names the arguments that it needs and can omit the others. It
imports the records that it needs from `pytest_ckpt.vendors`. docs/examples/acme is a complete plugin;
docs/writing_a_hook.md explains it.

The report and the certificate list every plugin that implements one of these hooks, with its version.
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
    """Return the command that empties caches before loads, or None. Every host runs the command, without a shell.

    The same as ``--ckpt-drop-caches``, which takes precedence. Called once, before the first write, if the option was
    not given. None means that this plugin has no such command. If two plugins return a command, the run is refused. The
    report names the origin as "hook of PLUGIN". Example::

        def pytest_ckpt_drop_caches(config, settings):
            return "sh -c 'sync; echo 3 > /proc/sys/vm/drop_caches'"
    """


@pytest.hookspec(firstresult=True)
def pytest_ckpt_power_cut(config: pytest.Config, settings: Settings) -> str | None:
    """Return the command that cuts the storage's power, or None. The command returns when the power is back.

    The same as ``--ckpt-actions [power_cut] command``, which takes precedence. The command runs on this host without a
    shell. Called once, like `pytest_ckpt_drop_caches`. Example, for a file system on a loop device::

        import shlex
        import sys

        def pytest_ckpt_power_cut(config, settings):
            return shlex.join([sys.executable, "-m", "pytest_ckpt.targets.posix.power_cut", settings.target])
    """


@pytest.hookspec(firstresult=True)
def pytest_ckpt_fault_command(config: pytest.Config, settings: Settings) -> str | None:
    """Return the command that makes a component of the storage fail, or None.

    The same as ``--ckpt-actions [failover] fault``, which takes precedence. The command runs on this host without a
    shell, at random moments of separate saves and loads (requirement FAILOVER). It requires the hook
    `pytest_ckpt_repair_command`, or ``--ckpt-actions [failover] repair``. Called once, like `pytest_ckpt_drop_caches`.
    Example::

        def pytest_ckpt_fault_command(config, settings):
            return "ssh array-admin fail-drive 7"
    """


@pytest.hookspec(firstresult=True)
def pytest_ckpt_repair_command(config: pytest.Config, settings: Settings) -> str | None:
    """Return the command that repairs the component that the fault command made fail, or None.

    The same as ``--ckpt-actions [failover] repair``, which takes precedence. The command runs after each fault, also if
    the run ends early. The next save begins as soon as the command returns; the command need not wait for a rebuild.
    Called once, like `pytest_ckpt_drop_caches`. Example::

        def pytest_ckpt_repair_command(config, settings):
            return "ssh array-admin replace-drive 7"
    """


@pytest.hookspec(firstresult=True)
def pytest_ckpt_launch_command(config: pytest.Config, settings: Settings) -> str | None:
    """Return the command that starts the ranks, or None. {processes} and {hosts} are filled in.

    The same as ``--ckpt-launcher``, which takes precedence. Called once, like `pytest_ckpt_drop_caches`. Example::

        import shlex
        import sys
        from pathlib import Path

        def pytest_ckpt_launch_command(config, settings):
            mpiexec = Path(sys.executable).with_name("mpiexec")
            return shlex.join([str(mpiexec), "-x", "ACME_READ_AHEAD=off"]) if mpiexec.exists() else None
    """


def pytest_ckpt_environment_facts(config: pytest.Config, settings: Settings) -> Mapping[str, str]:  # type: ignore[empty-body]
    """Return further facts about the environment of the run, as names and texts.

    ``environment`` of the report contains them under the plugin's name. Called once, before the first write: an
    exception ends the run. Values of names such as ``token`` are masked. Example::

        import platform

        def pytest_ckpt_environment_facts(config, settings):
            return {"client kernel": platform.release()}
    """


def pytest_ckpt_before_measure(config: pytest.Config, subjects: Sequence[str]) -> None:
    """Run code before the launch of the ranks that measure ``subjects``.

    Called in the process that starts the ranks, which may be a worker of pytest-xdist. An exception fails these
    measurements, and no rank is started. The time counts as the stage "hooks", not as part of an operation. Example::

        from pathlib import Path

        def pytest_ckpt_before_measure(config, subjects):
            raid = Path("/proc/mdstat")
            if raid.exists() and "recovery" in raid.read_text():
                raise RuntimeError("a RAID array is being rebuilt; start again when it is done")
    """


def pytest_ckpt_after_measure(config: pytest.Config, measurement: Measurement) -> None:
    """Run code after each measurement of a launch, when its ranks have ended. ``measurement`` is a copy.

    The hook is also called for a failed measurement, with the reason in ``measurement.failure``. So the plugin can undo
    its actions of `pytest_ckpt_before_measure`. An exception fails the measurement: a met requirement becomes "not
    run", and a failed one stays failed. FAILOVER, UPGRADE, SNAPSHOT and RESHAPED have separate launches, and both hooks
    are called again before and after these. Then ``measurement.patterns`` contains the findings, and an exception
    affects only that requirement. Example::

        import json

        def pytest_ckpt_after_measure(config, measurement):
            seconds = [operation.seconds for operation in measurement.of_kind("save")]
            with open("acme.jsonl", "a") as log:
                log.write(json.dumps({"subject": str(measurement.subject), "save_seconds": seconds}) + "\\n")
    """


def pytest_ckpt_requirements(  # type: ignore[empty-body]
    config: pytest.Config, settings: Settings
) -> Sequence[Callable[..., Decision]]:
    """Return additional requirements; each is judged on every measured checkpoint.

    A requirement is one decorated function. Its parameters name the facts that it needs (``measurement``, ``limits``,
    ``saves``, ``loads``, a pattern such as ``storm``), its docstring is the text that the certificate prints, and its
    body decides. It must be pure. Each requirement becomes a separate test with its id. If this test is deselected, the
    requirement is "not run", and the run is incomplete. Called in every process of the run. Example::

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
    """Return additional engines; ``--ckpt-engine`` chooses one by its name.

    ``make`` names a function by "module:function". The ranks import that module, so it must be installed, or found
    through PYTHONPATH. A package can also name an engine without a hook, by an entry point in the group
    ``pytest_ckpt.engines``. Called once, by the controller, before the first write. Example::

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
    """Return additional kinds of targets; --ckpt-target=scheme://… chooses one by its scheme.

    Called once, when the run begins. A run on a target of a plugin is a rehearsal and cannot be certified. `pytest-ckpt
    plan` and `doctor` call no hooks: for them, name a TargetSpec by an entry point of the group
    ``pytest_ckpt.targets``. Example::

        from pytest_ckpt.vendors import TargetSpec

        def pytest_ckpt_targets(config):
            return [TargetSpec(scheme="acme", help="an ACME array without a mount", make="acme.targets:target")]
    """


def pytest_ckpt_suites(config: pytest.Config, settings: Settings) -> Sequence[str | Path]:  # type: ignore[empty-body]
    """Return directories or files of tests. If the command names no tests, they run in addition to pytest-ckpt's own.

    Called in every process of the run. Example::

        from pathlib import Path

        def pytest_ckpt_suites(config, settings):
            return [Path(__file__).parent]
    """


def pytest_ckpt_report_sections(config: pytest.Config, document: dict[str, Any]) -> Sequence[Section]:  # type: ignore[empty-body]
    """Return text and tables for the end of the certificate, where they appear under the plugin's name.

    ``document`` is a copy of the report, in the form of report.json: changes of the copy do not change the report. All
    content is text: HTML is escaped. If the hook raises, the certificate names the exception in place of the sections;
    the verdicts stay. Example::

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

"""The hooks of plugins: what a vendor may say of his storage, and ask of it. Each with an example that runs.

A plugin is a ``conftest.py`` in a directory that pytest is given, a module given with ``-p``, or an installed package
with an entry point ``pytest11``. A hook takes any of its arguments by name and may leave out the rest. What a hook
needs is in `pytest_ckpt.vendors`; a whole plugin is in docs/examples/acme, and docs/writing_a_hook.md leads through it.

Every plugin that implements one of these is named in report and certificate, with its version.
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
    """Return the command that empties caches before loads; every host runs it, without a shell. None: not this plugin.

    The same as ``--ckpt-drop-caches``, which wins. Asked once, before anything is written, where the option was given
    nowhere; two plugins that both answer are an error. Its place in the report: "hook of PLUGIN". Example::

        def pytest_ckpt_drop_caches(config, settings):
            return "sh -c 'sync; echo 3 > /proc/sys/vm/drop_caches'"
    """


@pytest.hookspec(firstresult=True)
def pytest_ckpt_power_cut(config: pytest.Config, settings: Settings) -> str | None:
    """Return the command that cuts the storage's power and returns when it is back. None: not this plugin.

    The same as ``--ckpt-actions [power_cut] command``, which wins; run on this host without a shell. Asked as
    `pytest_ckpt_drop_caches`. Example, for a file system on a loop device::

        import shlex
        import sys

        def pytest_ckpt_power_cut(config, settings):
            return shlex.join([sys.executable, "-m", "pytest_ckpt.targets.posix.power_cut", settings.target])
    """


@pytest.hookspec(firstresult=True)
def pytest_ckpt_fault_command(config: pytest.Config, settings: Settings) -> str | None:
    """Return the command that breaks a component of the storage. None: not this plugin.

    The same as ``--ckpt-actions [failover] fault``, which wins; run on this host without a shell, at random moments of
    saves and loads of their own (requirement FAILOVER). It needs the hook `pytest_ckpt_repair_command`, or
    ``--ckpt-actions [failover] repair``. Asked as `pytest_ckpt_drop_caches`. Example::

        def pytest_ckpt_fault_command(config, settings):
            return "ssh array-admin fail-drive 7"
    """


@pytest.hookspec(firstresult=True)
def pytest_ckpt_repair_command(config: pytest.Config, settings: Settings) -> str | None:
    """Return the command that repairs what the break command broke. None: not this plugin.

    The same as ``--ckpt-actions [failover] repair``, which wins; run after each break, also when the run ends early.
    The next save begins as soon as it returns, so it need not wait for a rebuild. Asked as `pytest_ckpt_drop_caches`.
    Example::

        def pytest_ckpt_repair_command(config, settings):
            return "ssh array-admin replace-drive 7"
    """


@pytest.hookspec(firstresult=True)
def pytest_ckpt_launch_command(config: pytest.Config, settings: Settings) -> str | None:
    """Return the command that starts the ranks; {processes} and {hosts} are filled in. None: not this plugin.

    The same as ``--ckpt-launcher``, which wins. Asked as `pytest_ckpt_drop_caches`. Example::

        import shlex
        import sys
        from pathlib import Path

        def pytest_ckpt_launch_command(config, settings):
            mpiexec = Path(sys.executable).with_name("mpiexec")
            return shlex.join([str(mpiexec), "-x", "ACME_READ_AHEAD=off"]) if mpiexec.exists() else None
    """


def pytest_ckpt_environment_facts(config: pytest.Config, settings: Settings) -> Mapping[str, str]:  # type: ignore[empty-body]
    """Return what else a reader should know of where the run took place: names and texts.

    They stand in ``environment`` of the report below the plugin's name. Asked once, before anything is written: an
    exception ends the run there. Values of names such as ``token`` are hidden. Example::

        import platform

        def pytest_ckpt_environment_facts(config, settings):
            return {"client kernel": platform.release()}
    """


def pytest_ckpt_before_measure(config: pytest.Config, subjects: Sequence[str]) -> None:
    """Do something, or look at something, before ranks are started that measure these checkpoints.

    Called in the process that starts them, which may be a worker of pytest-xdist. An exception fails these
    measurements; no rank is started. The time is the stage "hooks", and no operation's. Example::

        from pathlib import Path

        def pytest_ckpt_before_measure(config, subjects):
            raid = Path("/proc/mdstat")
            if raid.exists() and "recovery" in raid.read_text():
                raise RuntimeError("a RAID array is being rebuilt; start again when it is done")
    """


def pytest_ckpt_after_measure(config: pytest.Config, measurement: Measurement) -> None:
    """Do something with each measurement of a launch, when its ranks are gone; ``measurement`` is a copy.

    Also called for one that failed (``measurement.failure`` says why), so that what was done before can be undone. An
    exception fails the measurement: what was met by it is then "not run", what failed stays failed. Both hooks are
    called again around each launch in which commands change the storage (FAILOVER, UPGRADE, SNAPSHOT): then
    ``measurement.patterns`` holds what was seen, and an exception ends that part alone. Example::

        import json

        def pytest_ckpt_after_measure(config, measurement):
            seconds = [operation.seconds for operation in measurement.of_kind("save")]
            with open("acme.jsonl", "a") as log:
                log.write(json.dumps({"subject": str(measurement.subject), "save_seconds": seconds}) + "\\n")
    """


def pytest_ckpt_requirements(  # type: ignore[empty-body]
    config: pytest.Config, settings: Settings
) -> Sequence[Callable[..., Decision]]:
    """Return requirements beside those of pytest-ckpt; each is judged on every checkpoint that is measured.

    A requirement is one decorated function. Its parameters name the facts that it needs (``measurement``, ``limits``,
    ``saves``, ``loads``, a pattern such as ``storm``), its docstring is the text that the certificate prints, and its
    body decides. It must be pure. Each becomes a test of its own, called by its id; one that is deselected is "not
    run", and the run is then incomplete. Called in every process of the run. Example::

        from pytest_ckpt.vendors import Decision, requirement

        @requirement("ACME-CLIENTS", title="Enough clients", source="ACME's sizing guide", units=("clients",))
        def enough_clients_take_part(measurement, limits):
            \"\"\"One client takes part for every 1,000 accelerators of the cluster.

            Fewer would not show what the network between clients and storage does.
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
    """Return engines beside those of pytest-ckpt; ``--ckpt-engine`` chooses one by its name.

    ``make`` names a function by "module:function". The ranks import that module, so it must be installed, or found
    through PYTHONPATH. A package may name an engine without a hook too, by an entry point in the group
    ``pytest_ckpt.engines``. Asked once, by the controller, before anything is written. Example::

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
    """Return kinds of targets beside a path: each has a scheme, and --ckpt-target=scheme://… then chooses it.

    Asked once, when the run begins. Nothing is certified on a target of a plugin: its run is a rehearsal. What
    `pytest-ckpt plan` and `doctor` are to know too is an entry point of the group ``pytest_ckpt.targets`` instead,
    whose object is a TargetSpec. Example::

        from pytest_ckpt.vendors import TargetSpec

        def pytest_ckpt_targets(config):
            return [TargetSpec(scheme="acme", help="an ACME array without a mount", make="acme.targets:target")]
    """


def pytest_ckpt_suites(config: pytest.Config, settings: Settings) -> Sequence[str | Path]:  # type: ignore[empty-body]
    """Return directories or files of tests to run with those of pytest-ckpt if the command names no tests.

    Called in every process of the run. Example::

        from pathlib import Path

        def pytest_ckpt_suites(config, settings):
            return [Path(__file__).parent]
    """


def pytest_ckpt_report_sections(config: pytest.Config, document: dict[str, Any]) -> Sequence[Section]:  # type: ignore[empty-body]
    """Return text and tables for the certificate; they stand below the plugin's name, after all that was measured.

    ``document`` is a copy of the report, in the form of report.json: nothing that is done to it changes the report.
    Everything is text; what looks like HTML is shown as it is written. An exception costs these sections and is named
    in their place; the verdicts stay. Example::

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

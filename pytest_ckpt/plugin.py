"""pytest's face: hooks and nothing else. Everything heavy is imported inside them, and only when there is a target."""

from __future__ import annotations

import shlex
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ckpt.errors import UsageError
from pytest_ckpt.options import OPTIONS, add_options, resolve

if TYPE_CHECKING:
    from collections.abc import Generator

_FOLDER, _FACTS = "pytest_ckpt_folder", "pytest_ckpt_facts"
# Options with which pytest runs no test.
_LISTING = ("collectonly", "showfixtures", "show_fixtures_per_test", "markers", "cacheshow")
_NO_TARGET = "the suites of pytest-ckpt judge a storage target\n  Say --ckpt-target=/mnt/array --cluster=16000."
_OLD_HANDLER = pytest.StashKey[Any]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare every option, on the command line and in ini files."""
    group = parser.getgroup("ckpt", "acceptance of storage for AI checkpoints (pytest-ckpt)")
    add_options(group.addoption)
    for option in OPTIONS:
        parser.addini(option.ini_name, option.help, default=None)


def pytest_configure(config: pytest.Config) -> None:
    """Open a run when there is a target; without one, this plugin does nothing."""
    config.addinivalue_line("markers", "requirement(id): the requirement of pytest-ckpt that a test of a suite judges")
    said = {o.ini_name: config.getoption(o.ini_name) for o in OPTIONS}
    ini = {o.ini_name: config.getini(o.ini_name) or None for o in OPTIONS}
    if not (said["ckpt_target"] or ini["ckpt_target"] or said["ckpt_config"] or ini["ckpt_config"]):
        if any(said.values()):
            names = ", ".join(o.flag for o in OPTIONS if said[o.ini_name])
            raise pytest.UsageError(
                f"{names} without --ckpt-target: where is the storage mounted?\n  Say --ckpt-target=/mnt/array."
            )
        return
    if config.option.help or getattr(config.option, "version", 0):
        return
    try:
        _open(config, said, ini)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None


def _open(config: pytest.Config, said: dict[str, str | None], ini: dict[str, str | None]) -> None:
    from pytest_ckpt import fixtures, resources  # noqa: PLC0415
    from pytest_ckpt.measure.launcher import refuse_inside_mpi  # noqa: PLC0415
    from pytest_ckpt.session import Session  # noqa: PLC0415

    settings = resolve(said, ini)
    is_worker = hasattr(config, "workerinput")
    only_lists = any(getattr(config.option, name, False) for name in _LISTING)
    if is_worker:
        from pathlib import Path  # noqa: PLC0415

        told = config.workerinput  # type: ignore[attr-defined]
        session = Session.join(settings, Path(told[_FOLDER]), told[_FACTS])
    else:
        command = ["pytest", *config.invocation_params.args]
        refuse_inside_mpi(shlex.join(command))
        session = Session.preview(settings, command) if only_lists else Session.open(settings, command)
    config.stash[fixtures.SESSION] = session
    config.pluginmanager.register(fixtures, "pytest-ckpt-fixtures")
    if not is_worker and not only_lists:
        from pytest_ckpt.ledger import Ledger  # noqa: PLC0415

        _end_on_sigterm(config)
        config.pluginmanager.register(Ledger(config, session), "pytest-ckpt-ledger")
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = [str(resources.folder("suites"))]


def _end_on_sigterm(config: pytest.Config) -> None:
    """Let SIGTERM end a run as Ctrl-C does: ranks gone, target clean, report written."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    config.stash[_OLD_HANDLER] = signal.signal(signal.SIGTERM, interrupt)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give SIGTERM back."""
    if _OLD_HANDLER in config.stash:
        signal.signal(signal.SIGTERM, config.stash[_OLD_HANDLER])


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist which run it belongs to."""
    if session := _session(node.config):
        node.workerinput[_FOLDER] = str(session.folder)
        node.workerinput[_FACTS] = session.facts_text()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give the tests of a suite every subject of the plan."""
    if not _judges(metafunc.definition):
        return
    session = _session(metafunc.config)
    if session is None:
        # A worker of xdist cannot end the run; it can fail the collection, and does so here.
        if hasattr(metafunc.config, "workerinput"):
            raise pytest.UsageError(_NO_TARGET)
    elif "subject" in metafunc.fixturenames:
        (requirement,) = next(metafunc.definition.iter_markers("requirement")).args
        metafunc.parametrize("subject", session.subjects(requirement))


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> list[pytest.Item] | None:
    """Leave out the requirements for which the settings measure nothing: they are no part of the run."""
    session = _session(collector.config)
    marks = [mark for mark in getattr(obj, "pytestmark", ()) if getattr(mark, "name", "") == "requirement"]
    if session is None or not marks or "judge" not in _parameters(obj):
        return None
    return None if session.runs(marks[0].args[0]) else []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse to run a suite without a target."""
    if _session(config) is None and any(_judges(item) for item in items):
        raise pytest.UsageError(_NO_TARGET)


def _parameters(obj: object) -> tuple[str, ...]:
    code = getattr(obj, "__code__", None)
    return tuple(code.co_varnames[: code.co_argcount]) if code else ()


def _judges(item: pytest.Item) -> bool:
    """Whether a test belongs to a suite; a marker alone may be another plugin's."""
    return item.get_closest_marker("requirement") is not None and "judge" in getattr(item, "fixturenames", ())


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what is about to be done to which target."""
    session = _session(config)
    if session is None:
        return []
    from pytest_ckpt.report.header import header_lines  # noqa: PLC0415

    return header_lines(session.plan, session.settings, session.gates, session.facts.environment, session.notices)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Hang the verdict on the report of a suite's test."""
    report = yield
    if _session(item.config) is not None:
        from pytest_ckpt.fixtures import carry  # noqa: PLC0415

        carry(item, report)
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    """Show a failed advisory requirement as what it is: neither passed nor failed."""
    carried = getattr(report, "pytest_ckpt", None)
    if carried and report.when == "call" and report.passed and '"outcome": "failed"' in carried["verdict"]:
        return "advisory", "a", ("ADVISORY", {"yellow": True})
    return None


def _session(config: pytest.Config) -> Any:
    if "pytest_ckpt.fixtures" not in sys.modules:
        return None
    from pytest_ckpt.fixtures import SESSION  # noqa: PLC0415

    return config.stash.get(SESSION, None)

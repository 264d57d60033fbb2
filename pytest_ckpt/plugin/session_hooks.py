"""pytest's face: hooks and nothing else. Without a target only the table of options is imported."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ckpt.facts.options import GROUPS, OPTIONS, declaration
from pytest_ckpt.plugin.stash import OLD_HANDLERS, OPEN_RUN, REFUSED, RUN

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_ckpt.run.context import RunContext

_OURS = ("--ckpt", "--clu")
_NO_TARGET = "the suites of pytest-ckpt judge a storage target\n  Say --ckpt-target=/mnt/array --cluster=16000."


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare what plugins may implement."""
    from pytest_ckpt.plugin import hookspecs  # noqa: PLC0415

    pluginmanager.add_hookspecs(hookspecs)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare every option, on the command line and in ini files."""
    groups = {name: parser.getgroup(f"ckpt {name}", f"pytest-ckpt: {name}") for name in GROUPS}
    for option in OPTIONS:
        groups[option.group].addoption(*option.flags, **declaration(option))
        parser.addini(option.ini_name, option.help, default=None)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(parser: pytest.Parser, args: list[str]) -> Generator[None, object, object]:
    """Refuse an option that looks like one of ours and is none, once every plugin has declared its own."""
    result = yield
    if any(word.startswith(_OURS) for word in args):
        _, unknown = parser.parse_known_and_unknown_args(args)
        if wrong := [word for word in unknown if word.startswith(_OURS)]:
            from pytest_ckpt.support.errors import nearest  # noqa: PLC0415

            flags = [flag for option in OPTIONS for flag in option.flags]
            given = wrong[0].partition("=")[0]
            raise pytest.UsageError(
                f"{given} is no option{nearest(given, flags)}.\n  pytest --help lists the options of pytest-ckpt."
            )
    return result


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Open a run when there is a target; without one, this plugin does nothing. Last, when all plugins are there."""
    config.addinivalue_line("markers", "requirement(id): the requirement of pytest-ckpt that a test of a suite judges")
    given = {o.ini_name: config.getoption(o.ini_name) for o in OPTIONS}
    ini = {o.ini_name: config.getini(o.ini_name) or None for o in OPTIONS}
    if not (given["ckpt_target"] or ini["ckpt_target"] or given["ckpt_config"] or ini["ckpt_config"]):
        if any(given.values()):
            names = ", ".join(o.flag for o in OPTIONS if given[o.ini_name])
            raise pytest.UsageError(
                f"{names} without --ckpt-target: where is the storage mounted?\n  Say --ckpt-target=/mnt/array."
            )
        return
    if config.option.help or getattr(config.option, "version", 0):
        return
    from pytest_ckpt.plugin.opening import take_part  # noqa: PLC0415
    from pytest_ckpt.report.svg import printable  # noqa: PLC0415
    from pytest_ckpt.support.errors import UsageError  # noqa: PLC0415

    try:
        take_part(config, given, ini)
    except UsageError as error:
        # A value of an option may steer a terminal.
        raise pytest.UsageError(printable(str(error))) from None


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give the signals back."""
    for number, handler in config.stash.get(OLD_HANDLERS, {}).items():
        signal.signal(number, handler)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist which run it belongs to."""
    if run := node.config.stash.get(RUN, None):
        from pytest_ckpt.plugin.opening import PACKED  # noqa: PLC0415

        node.workerinput[PACKED] = run.pack()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give the tests of a suite every subject of the plan."""
    if not _judges(metafunc.definition):
        return
    run = metafunc.config.stash.get(RUN, None)
    if run is None:
        # A worker of xdist cannot end the run; it can fail the collection, and does so here.
        if hasattr(metafunc.config, "workerinput"):
            raise pytest.UsageError(_NO_TARGET)
    elif "subject" in metafunc.fixturenames:
        mark = next(metafunc.definition.iter_markers("requirement"))
        requirement = _requirement(mark, run, metafunc.definition.nodeid, metafunc.config)
        metafunc.parametrize("subject", run.subjects(requirement) if requirement else [])


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> list[pytest.Item] | None:
    """Leave out the requirements for which the settings measure nothing: they are no part of the run."""
    config = collector.config
    run = config.stash.get(RUN, None)
    if run is None:
        return None
    marks = [mark for mark in getattr(obj, "pytestmark", ()) if getattr(mark, "name", "") == "requirement"]
    if not marks or "judge" not in _parameters(obj):
        return None
    requirement = _requirement(marks[0], run, f"{collector.nodeid}::{getattr(obj, '__name__', '')}", config)
    return None if requirement and run.runs(requirement) else []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse to run a suite without a target, and what was found to be wrong."""
    if RUN not in config.stash and any(_judges(item) for item in items):
        raise pytest.UsageError(_NO_TARGET)
    sentences = config.stash.get(REFUSED, [])
    if not sentences:
        return
    refused = "\n".join(sentences)
    if not hasattr(config, "workerinput"):
        raise pytest.UsageError(refused)
    # A worker of xdist cannot end the run; it can tell of a failed collection, and run nothing.
    items.clear()
    config.hook.pytest_collectreport(report=pytest.CollectReport("pytest-ckpt", "failed", refused, []))


def _requirement(mark: pytest.Mark, run: RunContext, test: str, config: pytest.Config) -> str:
    """Return the requirement that a mark names; empty for one that cannot be asked of the target.

    One that nobody knows is refused.
    """
    from pytest_ckpt.judging.catalogue import REQUIREMENTS  # noqa: PLC0415

    given = mark.args[0] if len(mark.args) == 1 and not mark.kwargs else None
    if isinstance(given, str) and (given in run.catalogue or given in REQUIREMENTS):
        return given if given in run.catalogue else ""
    from pytest_ckpt.support.errors import nearest  # noqa: PLC0415

    config.stash[REFUSED].append(
        f"{test} judges {given!r}, which is no requirement of this run{nearest(str(given), run.catalogue)}.\n"
        "  A plugin says its own with the hook pytest_ckpt_requirements."
    )
    return ""


def _parameters(obj: object) -> tuple[str, ...]:
    code = getattr(obj, "__code__", None)
    return tuple(code.co_varnames[: code.co_argcount]) if code else ()


def _judges(item: pytest.Item) -> bool:
    """Whether a test belongs to a suite; a marker alone may be another plugin's."""
    return item.get_closest_marker("requirement") is not None and "judge" in getattr(item, "fixturenames", ())


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what is about to be done to which target."""
    run = config.stash.get(RUN, None)
    if run is None:
        return []
    from pytest_ckpt.report.header import header_lines  # noqa: PLC0415
    from pytest_ckpt.report.svg import printable  # noqa: PLC0415

    opened = config.stash.get(OPEN_RUN, None)
    notices, sight = (opened.notices, opened.cache_sight) if opened else ((), "untried")
    lines = header_lines(run.plan, run.settings, run.gates, run.target, run.environment, notices, run.catalogue, sight)
    return [printable(line) for line in lines]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Hang the verdict on the report of a suite's test."""
    report = yield
    if RUN in item.config.stash:
        from pytest_ckpt.plugin.fixtures import carry  # noqa: PLC0415

        carry(item, report)
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    """Show a failed advisory requirement as what it is: neither passed nor failed."""
    if not hasattr(report, "pytest_ckpt") or not report.passed:
        return None
    from pytest_ckpt.plugin.carried import carried_by  # noqa: PLC0415 - only where a run is judged

    carried = carried_by(report)
    if carried and carried.verdict and carried.verdict.outcome == "failed":
        return "advisory", "a", ("ADVISORY", {"yellow": True})
    return None

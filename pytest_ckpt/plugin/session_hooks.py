"""The hook functions of this plugin that pytest calls.

If pytest runs without a target, this module imports only the table of options, so that other pytest runs remain fast.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ckpt.facts.options import GROUPS, OPTIONS, declarations, option_of, written
from pytest_ckpt.plugin.stash import OLD_HANDLERS, OPEN_RUN, REFUSED, RUN

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

_OURS = ("--ckpt", "--clu")
_OWN = tuple(option for option in OPTIONS if option.is_option)
_NO_TARGET = "the suites of pytest-ckpt judge a storage target\n  Say --ckpt-target=/mnt/array --cluster=16000."


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks that plugins can implement."""
    from pytest_ckpt.plugin import hookspecs  # noqa: PLC0415

    pluginmanager.add_hookspecs(hookspecs)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare every option, on the command line and in ini files."""
    groups = {name: parser.getgroup(f"ckpt {name}", f"pytest-ckpt: {name}") for name in GROUPS}
    for option in _OWN:
        for flag, words in declarations(option, is_listed=option.is_listed):
            groups[option.group].addoption(flag, **words)
        parser.addini(option.ini_name, f"as {option.flag}", default=None)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(parser: pytest.Parser, args: list[str]) -> Generator[None, object, object]:
    """Refuse unknown options with the prefix of pytest-ckpt. Called after every plugin has declared its options."""
    result = yield
    if any(word.startswith(_OURS) for word in args):
        _, unknown = parser.parse_known_and_unknown_args(args)
        if wrong := [word for word in unknown if word.startswith(_OURS)]:
            from pytest_ckpt.support.errors import nearest  # noqa: PLC0415

            flags = [flag for option in _OWN for flag in option.flags]
            given = wrong[0].partition("=")[0]
            parameter = option_of(given)
            hint = f": write {parameter.flag}" if parameter else nearest(given, flags)
            raise pytest.UsageError(
                f"{given} is not an option{hint}.\n  pytest-ckpt options lists all options and their parameters."
            )
    return result


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Open a run if there is a target. Called last, after all plugins are loaded.

    Raises pytest.UsageError if the command line has options of pytest-ckpt without a target, or if the run cannot be
    opened.
    """
    given = {o.ini_name: written(config.getoption(o.ini_name)) for o in _OWN}
    ini = {o.ini_name: config.getini(o.ini_name) or None for o in _OWN}
    if not (given["ckpt_target"] or ini["ckpt_target"] or given["ckpt_config"] or ini["ckpt_config"]):
        if any(given.values()):
            names = ", ".join(o.flag for o in _OWN if given[o.ini_name])
            raise pytest.UsageError(
                f"{names} without --ckpt-target: where is the storage mounted?\n  Say --ckpt-target=/mnt/array."
            )
        return
    if config.option.help or getattr(config.option, "version", 0):
        return
    from pytest_ckpt.plugin.opening import open_session  # noqa: PLC0415
    from pytest_ckpt.report.svg import printable  # noqa: PLC0415
    from pytest_ckpt.support.errors import UsageError  # noqa: PLC0415

    try:
        open_session(config, given, ini)
    except UsageError as error:
        # The value of an option may contain control characters for a terminal.
        raise pytest.UsageError(printable(str(error))) from None


def pytest_unconfigure(config: pytest.Config) -> None:
    """Restore the signal handlers."""
    for number, handler in config.stash.get(OLD_HANDLERS, {}).items():
        signal.signal(number, handler)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Send the context of the run to a worker of pytest-xdist."""
    if run := node.config.stash.get(RUN, None):
        from pytest_ckpt.plugin.opening import PACKED  # noqa: PLC0415

        node.workerinput[PACKED] = run.pack()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Create the tests of a suite's file from the run's catalogue, even if the file does not match ``python_files``."""
    collectors = yield
    # For other files, the cost is one comparison of the name.
    if RUN not in parent.config.stash or not file_path.name.startswith("test_"):
        return collectors
    from pytest_ckpt.plugin.items import SuiteFile  # noqa: PLC0415
    from pytest_ckpt.support import resources  # noqa: PLC0415

    if file_path.resolve().parent != resources.directory("suites"):
        return collectors
    return [SuiteFile.from_parent(parent, path=file_path)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """In a worker of pytest-xdist, fail the collection of a suite if there is no target.

    A worker cannot end the run itself. It can only report a failed collection.
    """
    if hasattr(metafunc.config, "workerinput") and _is_requirement(metafunc.definition):
        raise pytest.UsageError(_NO_TARGET)


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by -k or --deselect
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the tests of plugins, and report errors of the collection.

    If there is no target, tests of the suites are refused.
    """
    if RUN not in config.stash:
        if any(map(_is_requirement, items)):
            raise pytest.UsageError(_NO_TARGET)
    elif not all("::" in word for word in config.args):
        from pytest_ckpt.plugin.items import items_of_plugins  # noqa: PLC0415

        items.extend(items_of_plugins(session))
    sentences = config.stash.get(REFUSED, [])
    if not sentences:
        return
    refused = "\n".join(sentences)
    if not hasattr(config, "workerinput"):
        raise pytest.UsageError(refused)
    # A worker of xdist cannot end the run; it can only report a failed collection, and run no tests.
    items.clear()
    config.hook.pytest_collectreport(report=pytest.CollectReport("pytest-ckpt", "failed", refused, []))


def _is_requirement(item: pytest.Item) -> bool:
    """Return whether pytest itself has collected this item from a function that defines a requirement.

    In a run with a target, the items are created from the run's catalogue instead.
    """
    # If a function was decorated as a requirement, this module has already been imported.
    module = sys.modules.get("pytest_ckpt.judging.requirement")
    return module is not None and module.requirement_of(getattr(item, "function", None)) is not None


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return the lines of pytest's header: the plan of the run, the target and notices."""
    run = config.stash.get(RUN, None)
    if run is None:
        return []
    from pytest_ckpt.report.plan import header_lines  # noqa: PLC0415
    from pytest_ckpt.report.svg import printable  # noqa: PLC0415

    opened = config.stash.get(OPEN_RUN, None)
    notices, cache = (opened.notices, opened.cache_visibility) if opened else ((), "not_tested")
    lines = header_lines(run.plan, run.settings, run.gates, run.target, run.environment, notices, run.catalogue, cache)
    return [printable(line) for line in lines]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the verdict of a requirement's test to the test's report."""
    report = yield
    if RUN in item.config.stash:
        from pytest_ckpt.plugin.items import carry  # noqa: PLC0415

        carry(item, report)
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    """Report a failed advisory requirement with the separate status "advisory"."""
    if not hasattr(report, "pytest_ckpt") or not report.passed:
        return None
    from pytest_ckpt.plugin.worker_results import carried_by  # noqa: PLC0415 - only where a run is judged

    carried = carried_by(report)
    if carried and carried.verdict and carried.verdict.outcome == "failed":
        return "advisory", "a", ("ADVISORY", {"yellow": True})
    return None

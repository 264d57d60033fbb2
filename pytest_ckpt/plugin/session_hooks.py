"""pytest's face: hooks and nothing else. Without a target only the table of options is imported."""

from __future__ import annotations

import shlex
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ckpt.facts.options import GROUPS, OPTIONS, declaration

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_ckpt.judging.catalogue import Requirement
    from pytest_ckpt.plugin.vendor_hooks import Plugins
    from pytest_ckpt.run.session import Session

_FOLDER, _FACTS, _HOOKED = "pytest_ckpt_folder", "pytest_ckpt_facts", "pytest_ckpt_hooked"
_SUITES = "pytest_ckpt.suites"
_OURS = ("--ckpt", "--clu")
# Options with which pytest runs no test.
_LISTING = ("collectonly", "showfixtures", "show_fixtures_per_test", "markers", "cacheshow")
_NO_TARGET = "the suites of pytest-ckpt judge a storage target\n  Say --ckpt-target=/mnt/array --cluster=16000."
_OLD_HANDLER = pytest.StashKey[Any]()
# Sentences on what was found to be wrong while tests were collected, or in a worker.
_REFUSED = pytest.StashKey[list[str]]()
_DECIDED = pytest.StashKey[dict[str, tuple[str, str]]]()


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
            said = wrong[0].partition("=")[0]
            raise pytest.UsageError(
                f"{said} is no option{nearest(said, flags)}.\n  pytest --help lists the options of pytest-ckpt."
            )
    return result


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Open a run when there is a target; without one, this plugin does nothing. Last, when all plugins are there."""
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
    from pytest_ckpt.support.errors import UsageError  # noqa: PLC0415

    try:
        _open(config, said, ini)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None


def _open(config: pytest.Config, said: dict[str, str | None], ini: dict[str, str | None]) -> None:
    from pytest_ckpt.config.options import resolve  # noqa: PLC0415
    from pytest_ckpt.launching.launcher import refuse_inside_mpi  # noqa: PLC0415
    from pytest_ckpt.plugin import fixtures  # noqa: PLC0415
    from pytest_ckpt.plugin.vendor_hooks import Plugins  # noqa: PLC0415
    from pytest_ckpt.run.session import Session  # noqa: PLC0415

    plugins = Plugins.of(config)
    config.stash[_REFUSED] = []
    is_worker = hasattr(config, "workerinput")
    only_lists = any(getattr(config.option, name, False) for name in _LISTING)
    if is_worker:
        session = _join(config, plugins, said, ini)
    else:
        command = ["pytest", *config.invocation_params.args]
        refuse_inside_mpi(shlex.join(command))
        config.stash[_DECIDED] = decided = plugins.settings(resolve(said, ini))
        settings = resolve(said, ini, hooked=decided)
        extras = plugins.requirements(settings)
        _choose_tests(config, plugins.suites(settings))
        if only_lists:
            session = Session.preview(settings, command, extras)
        else:
            session = Session.open(settings, command, extras, plugins.told(settings))
    config.stash[fixtures.SESSION] = session
    config.stash[fixtures.PLUGINS] = plugins
    config.pluginmanager.register(fixtures, "pytest-ckpt-fixtures")
    config.pluginmanager.register(_Late(config), "pytest-ckpt-late")
    if not is_worker and not only_lists:
        from pytest_ckpt.plugin.verdict_collector import Ledger  # noqa: PLC0415

        _end_on_sigterm(config)
        config.pluginmanager.register(Ledger(config, session, plugins), "pytest-ckpt-ledger")


def _join(config: pytest.Config, plugins: Plugins, said: dict[str, str | None], ini: dict[str, str | None]) -> Session:
    """Take part, in a worker of xdist, in the run that the controller opened, by what it was told by plugins."""
    from pathlib import Path  # noqa: PLC0415

    from pytest_ckpt.config.options import resolve  # noqa: PLC0415
    from pytest_ckpt.run.session import Session  # noqa: PLC0415
    from pytest_ckpt.support.errors import UsageError  # noqa: PLC0415

    told = config.workerinput  # type: ignore[attr-defined]
    settings = resolve(said, ini, hooked={name: (source, text) for name, (source, text) in told[_HOOKED].items()})
    extras: tuple[Requirement, ...] = ()
    try:
        extras = plugins.requirements(settings)
        _choose_tests(config, plugins.suites(settings))
    except UsageError as error:
        config.stash[_REFUSED].append(str(error))
    session = Session.join(settings, Path(told[_FOLDER]), told[_FACTS], extras)
    if differs := plugins.differs(session.facts.environment.get("plugins") or (), session.facts.extras, extras):
        config.stash[_REFUSED].append(differs)
    return session


def _choose_tests(config: pytest.Config, suites: list[str]) -> None:
    """Run our suites, and those of plugins, where no tests were named; find ours where they lie in a checkout."""
    from pytest_ckpt.support import resources  # noqa: PLC0415

    ours = resources.folder("suites")
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = [str(ours), *suites]
        return
    for number, word in enumerate(config.args):
        name, colons, rest = word.partition("::")
        if name == _SUITES or name.startswith(f"{_SUITES}."):
            place = ours.joinpath(*name.split(".")[2:])
            config.args[number] = str(place if place.is_dir() else place.with_suffix(".py")) + colons + rest


class _Late:
    """Refuses plugins whose hooks come when the run is open: what they would decide is decided."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._known = {id(plugin) for plugin in config.pluginmanager.get_plugins()}

    def pytest_plugin_registered(self, plugin: object, plugin_name: str, manager: pytest.PytestPluginManager) -> None:
        """Note a plugin that comes too late."""
        from pytest_ckpt.plugin import vendor_hooks  # noqa: PLC0415

        if id(plugin) not in self._known and plugin is not self and (late := vendor_hooks.own_hooks(manager, plugin)):
            name = vendor_hooks.plugin_name(self._config, plugin, plugin_name)
            self._config.stash[_REFUSED].append(
                f"Plugin {name} comes too late for {', '.join(h.name for h in late)}: the run was open when it was "
                "loaded.\n  Name its folder on the command line, or load it with -p or an entry point."
            )


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
        node.workerinput[_HOOKED] = {name: list(pair) for name, pair in node.config.stash[_DECIDED].items()}


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
        mark = next(metafunc.definition.iter_markers("requirement"))
        requirement = _requirement(mark, session, metafunc.definition.nodeid, metafunc.config)
        metafunc.parametrize("subject", session.subjects(requirement) if requirement else [])


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> list[pytest.Item] | None:
    """Leave out the requirements for which the settings measure nothing: they are no part of the run."""
    config = collector.config
    session = _session(config)
    if session is None:
        return None
    marks = [mark for mark in getattr(obj, "pytestmark", ()) if getattr(mark, "name", "") == "requirement"]
    if not marks or "judge" not in _parameters(obj):
        return None
    requirement = _requirement(marks[0], session, f"{collector.nodeid}::{getattr(obj, '__name__', '')}", config)
    return None if requirement and session.runs(requirement) else []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse to run a suite without a target, and what was found to be wrong."""
    if _session(config) is None and any(_judges(item) for item in items):
        raise pytest.UsageError(_NO_TARGET)
    sentences = config.stash.get(_REFUSED, [])
    if not sentences:
        return
    refused = "\n".join(sentences)
    if not hasattr(config, "workerinput"):
        raise pytest.UsageError(refused)
    # A worker of xdist cannot end the run; it can tell of a failed collection, and run nothing.
    items.clear()
    config.hook.pytest_collectreport(report=pytest.CollectReport("pytest-ckpt", "failed", refused, []))


def _requirement(mark: pytest.Mark, session: Session, test: str, config: pytest.Config) -> str:
    """Return the requirement that a mark names; one that the run does not know is refused."""
    said = mark.args[0] if len(mark.args) == 1 and not mark.kwargs else None
    if isinstance(said, str) and said in session.catalogue:
        return said
    from pytest_ckpt.support.errors import nearest  # noqa: PLC0415

    config.stash[_REFUSED].append(
        f"{test} judges {said!r}, which is no requirement of this run{nearest(str(said), session.catalogue)}.\n"
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
    session = _session(config)
    if session is None:
        return []
    from pytest_ckpt.report.header import header_lines  # noqa: PLC0415

    return header_lines(
        session.plan,
        session.settings,
        session.gates,
        session.facts.environment,
        session.notices,
        session.catalogue,
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Hang the verdict on the report of a suite's test."""
    report = yield
    if _session(item.config) is not None:
        from pytest_ckpt.plugin.fixtures import carry  # noqa: PLC0415

        carry(item, report)
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    """Show a failed advisory requirement as what it is: neither passed nor failed."""
    carried = getattr(report, "pytest_ckpt", None)
    if carried and report.when == "call" and report.passed and '"outcome": "failed"' in carried["verdict"]:
        return "advisory", "a", ("ADVISORY", {"yellow": True})
    return None


def _session(config: pytest.Config) -> Any:
    if "pytest_ckpt.plugin.fixtures" not in sys.modules:
        return None
    from pytest_ckpt.plugin.fixtures import SESSION  # noqa: PLC0415

    return config.stash.get(SESSION, None)

"""Opens a run in pytest's controller process. A worker process of pytest-xdist joins the open run."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import signal
from typing import TYPE_CHECKING

import pytest

from pytest_ckpt.config.engines import find_engines
from pytest_ckpt.config.options import resolve
from pytest_ckpt.grading.grading import EXIT_CRASHED
from pytest_ckpt.launching.launcher import refuse_inside_mpi
from pytest_ckpt.plugin import fixtures, vendor_hooks
from pytest_ckpt.plugin.stash import OLD_HANDLERS, OPEN_RUN, PLUGINS, REFUSED, RUN
from pytest_ckpt.plugin.terminal import TerminalLines
from pytest_ckpt.plugin.vendor_hooks import Plugins
from pytest_ckpt.plugin.verdict_collector import RECORDERS, VerdictCollector, recorders
from pytest_ckpt.report.svg import printable
from pytest_ckpt.run.context import unpack
from pytest_ckpt.run.crash import Crash
from pytest_ckpt.run.open import open_run, preview_run
from pytest_ckpt.support import resources, waits
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.processes import end_undisturbed
from pytest_ckpt.support.redaction import Redactor
from pytest_ckpt.targets.schemes import known_targets

if TYPE_CHECKING:
    from pytest_ckpt.judging.requirement import Requirement
    from pytest_ckpt.run.context import RunContext

PACKED = "pytest_ckpt_run"
"""The name under which a worker of xdist receives the run."""

_SUITES = "pytest_ckpt.suites"
# With these options pytest does not run tests.
_LISTING = ("collectonly", "showfixtures", "show_fixtures_per_test", "markers", "cacheshow")


# A run needs these parts of the plugin.
_PARTS = ("pytest-ckpt-fixtures", "pytest-ckpt-late", "pytest-ckpt-verdicts")


def open_session(config: pytest.Config, given: dict[str, str | None], ini: dict[str, str | None]) -> None:
    """Open a run or preview it. In a worker of pytest-xdist, join the open run.

    ``given`` are the options of the command line; ``ini`` are the options of pytest's configuration files. Raises
    UsageError if settings or plugins are invalid.
    """
    if off := [name for name in _PARTS if config.pluginmanager.is_blocked(name)]:
        raise UsageError(
            f"{', '.join(off)} is switched off (-p no:…, also by PYTEST_ADDOPTS): no report would be written.",
            "Leave that out. To run pytest without pytest-ckpt, leave out --ckpt-target.",
        )
    plugins = Plugins.of(config)
    config.stash[REFUSED] = []
    if hasattr(config, "workerinput"):
        config.stash[RUN] = _join(config, plugins)
    else:
        _lead(config, plugins, given, ini)
    config.stash[PLUGINS] = plugins
    config.pluginmanager.register(fixtures, "pytest-ckpt-fixtures")
    config.pluginmanager.register(_LatePlugins(config), "pytest-ckpt-late")


def _lead(config: pytest.Config, plugins: Plugins, given: dict[str, str | None], ini: dict[str, str | None]) -> None:
    """Open a run as the controller. If pytest only lists tests, create a preview of the run."""
    command = ["pytest", *config.invocation_params.args]
    refuse_inside_mpi(shlex.join(command))
    if getattr(config.option, "forked", False):
        raise UsageError(
            "--forked (pytest-forked) makes each test in a process whose verdict does not come back to the run.",
            "Leave it out; for several processes use pytest-xdist: -n 4.",
        )
    engines = find_engines(plugins.engines())
    decide = functools.partial(resolve, given, ini, engines=engines, environment=os.environ)
    settings = decide(hooked=plugins.settings(decide()))
    extras = plugins.requirements(settings)
    _choose_tests(config, plugins.suites(settings))
    targets = known_targets(plugins.targets())
    if any(getattr(config.option, name, False) for name in _LISTING):
        config.stash[RUN] = preview_run(settings, command, extras, targets)
        return
    _end_on_signals(config)
    _print_waits(config, Redactor.of(os.environ, [*(o.value for o in settings.origins), *command]))
    try:
        config.stash[OPEN_RUN] = run = open_run(
            settings,
            command,
            extras,
            plugins.facts(settings),
            targets,
            recorders=recorders(config),
            # The first ranks cannot wait if workers of xdist start the ranks, or if a plugin has a hook around
            # launches.
            measures_here=getattr(config.option, "dist", "no") == "no" and not plugins.is_active,
        )
    except Crash as crash:
        pytest.exit(str(crash), EXIT_CRASHED)
    config.stash[RUN] = run.context
    reporter = None
    if run.context.settings.metrics:
        from pytest_ckpt.run.live_metrics import MetricsReporter  # noqa: PLC0415 - most runs report none

        reporter = MetricsReporter(run.context)
    config.pluginmanager.register(VerdictCollector(config, run, plugins, reporter), "pytest-ckpt-verdicts")


def _join(config: pytest.Config, plugins: Plugins) -> RunContext:
    """Return the context of the run that the controller has opened. Called in a worker of pytest-xdist."""
    packed = config.workerinput[PACKED]  # type: ignore[attr-defined]
    run = unpack(packed)
    extras: tuple[Requirement, ...] = ()
    try:
        extras = plugins.requirements(run.settings)
        _choose_tests(config, plugins.suites(run.settings))
    except UsageError as error:
        config.stash[REFUSED].append(str(error))
    if differs := plugins.differs(run.environment.plugins, run.extras, extras):
        config.stash[REFUSED].append(differs)
    return unpack(packed, extras)


def _choose_tests(config: pytest.Config, suites: list[str]) -> None:
    """If the command line names no tests, select all suites. Otherwise replace the suites' module names by their paths.

    ``suites`` are the suites of plugins. They are selected only if the command line names no tests. In a checkout of
    pytest-ckpt, the suites of the checkout are used.
    """
    ours = resources.directory("suites")
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = [str(ours), *suites]
        return
    for number, word in enumerate(config.args):
        name, colons, rest = word.partition("::")
        if name == _SUITES or name.startswith(f"{_SUITES}."):
            place = ours.joinpath(*name.split(".")[2:])
            config.args[number] = str(place if place.is_dir() else place.with_suffix(".py")) + colons + rest


def _end_on_signals(config: pytest.Config) -> None:
    """Handle Ctrl-C and SIGTERM: end the ranks, clean the target and write the report.

    The first signal raises KeyboardInterrupt. Further signals are ignored, because they could end pytest before its
    hooks are called. If Ctrl-C is ignored or handled by other code, this remains so.
    """

    def interrupt(_number: int, _frame: object) -> None:
        end_undisturbed()
        raise KeyboardInterrupt

    config.stash[OLD_HANDLERS] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGTERM, interrupt)
    if config.stash[OLD_HANDLERS][signal.SIGINT] is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)


def _print_waits(config: pytest.Config, redactor: Redactor) -> None:
    """Until pytest ends, print the reason for a wait if nothing was printed for some time."""
    lines = TerminalLines(config)
    if lines.is_shown:
        telling = contextlib.ExitStack()
        telling.enter_context(waits.telling(lambda text: lines.line(printable(redactor.text(text)))))
        config.add_cleanup(telling.close)


class _LatePlugins:
    """Refuses plugins that are registered after the run was opened.

    Some hooks of such a plugin should already have been called.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._known = {id(plugin) for plugin in config.pluginmanager.get_plugins()}

    def pytest_sessionfinish(self) -> None:
        """Send the `recorders` of this pytest-xdist worker to the controller."""
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[RECORDERS] = list(recorders(self._config))

    def pytest_plugin_registered(self, plugin: object, plugin_name: str, manager: pytest.PytestPluginManager) -> None:
        """If a plugin with hooks of pytest-ckpt is registered too late, record an error."""
        if id(plugin) not in self._known and plugin is not self and (late := vendor_hooks.hooks_of(manager, plugin)):
            name = vendor_hooks.plugin_name(self._config, plugin, plugin_name)
            self._config.stash[REFUSED].append(
                f"Plugin {name} comes too late for {', '.join(h.name for h in late)}: the run was open when it was "
                "loaded.\n  Name its directory on the command line, or load it with -p or an entry point."
            )

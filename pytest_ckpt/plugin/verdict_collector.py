"""Collects the verdicts from pytest's test reports, and writes the run's report.

Reports of pytest-xdist workers are included.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ckpt.facts.environment import CONFTEST
from pytest_ckpt.grading.grading import EXIT_CRASHED, EXIT_FAILED, EXIT_INCOMPLETE, EXIT_MET
from pytest_ckpt.plugin.benchmark_bridge import add_benchmark, defer_comparison_errors, quieten_benchmark
from pytest_ckpt.plugin.terminal import TerminalLines
from pytest_ckpt.plugin.vendor_hooks import Plugins
from pytest_ckpt.plugin.worker_results import carried_by
from pytest_ckpt.report.svg import printable
from pytest_ckpt.report.text import summary_lines
from pytest_ckpt.run.close import ClosedRun, close_run
from pytest_ckpt.run.crash import store_traceback
from pytest_ckpt.support.processes import end_undisturbed
from pytest_ckpt.support.resources import PACKAGE_HOME

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pytest_ckpt.facts.verdict import Verdict
    from pytest_ckpt.run.live_metrics import MetricsReporter
    from pytest_ckpt.run.open import OpenRun


RECORDERS = "pytest_ckpt_recorders"
"""The name under which a worker of pytest-xdist reports its `recorders` to the controller."""

# This package, and the plugins of pytest that it supports.
_OWN_DISTRIBUTIONS = frozenset({"pytest-ckpt", "pytest-benchmark", "pytest-xdist"})
_VARIABLES = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")
_OWN_MODULES = ("_pytest.", "pytest_ckpt.", "xdist.", "pytest_benchmark.")
_CONFTEST = "conftest.py"
# In a checkout, pytest loads the conftests of these two directories, which belong to this package.
_OWN_DIRECTORIES = frozenset({PACKAGE_HOME, PACKAGE_HOME / "tests"})
# The digest of conftest.py at the top of a checkout.
_OF_A_CHECKOUT = "139bf1546465688fd4433319991c490561da5d5c40195c8e2d5b6ac75436651b"


def recorders(config: pytest.Config) -> tuple[str, ...]:
    """Return the conftests, plugins and environment variables that could change the recorded results.

    The conftests and plugins are those loaded in this process, except those of pytest, pytest-ckpt, pytest-xdist and
    pytest-benchmark. The environment variables are those that add options or plugins to pytest.
    """
    return tuple(dict.fromkeys((*_plugins(config), *_variables())))


def _plugins(config: pytest.Config) -> Iterator[str]:
    manager = config.pluginmanager
    distributions = {id(plugin): distribution for plugin, distribution in manager.list_plugin_distinfo()}
    for name, plugin in manager.list_name_plugin():
        file = getattr(plugin, "__file__", None)
        if plugin is None or not file:
            continue
        distribution = distributions.get(id(plugin))
        if distribution is not None:
            if (title := str(distribution.project_name)) not in _OWN_DISTRIBUTIONS:
                yield f"plugin {title} {distribution.version}"
        elif Path(file).name == _CONFTEST:
            if not _is_of_a_checkout(Path(file)):
                yield f"{CONFTEST}{file}"
        elif not str(getattr(plugin, "__name__", "")).startswith(_OWN_MODULES):
            yield f"plugin {name} ({file})"


def _is_of_a_checkout(conftest: Path) -> bool:
    """Whether a conftest belongs to pytest-ckpt, according to its directory or the digest of its content."""
    if conftest.parent in _OWN_DIRECTORIES:
        return True
    try:
        return sha256(conftest.read_bytes()).hexdigest() == _OF_A_CHECKOUT
    except OSError:
        return False


def _variables() -> Iterator[str]:
    for name in _VARIABLES:
        if value := os.environ.get(name):
            yield f"{name}={value}"


class VerdictCollector:
    """Collects the verdicts of a run. Registered only in pytest's controller."""

    def __init__(
        self, config: pytest.Config, run: OpenRun, plugins: Plugins, reporter: MetricsReporter | None = None
    ) -> None:
        """Store the open run. ``reporter`` reports live metrics; None if live metrics are off."""
        self._config = config
        self._reporter = reporter
        self._run = run
        self._plugins = plugins
        self._verdicts: list[Verdict] = []
        self._crashes: list[str] = []
        self._closed: ClosedRun | None = None
        self._is_closed = False
        self._session: pytest.Session | None = None
        self._comparison: list[str] = []
        self._of_workers: list[str] = []

    def pytest_sessionstart(self) -> None:
        """Suppress the table of pytest-benchmark, and defer the errors of its failed comparisons."""
        quieten_benchmark(self._config)
        self._comparison = defer_comparison_errors(self._config)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the verdict in a test's report, and pass the measured seconds to pytest-benchmark."""
        carried = carried_by(report)
        if carried and carried.crash:
            self._note(carried.crash)
        elif carried and carried.verdict:
            self._verdicts.append(carried.verdict)
            add_benchmark(self._config, carried.timed)
            if self._reporter:
                self._reporter.send(carried.verdict)
                if warning := self._reporter.warning():
                    TerminalLines(self._config).line(printable(warning))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the `recorders` of a pytest-xdist worker.

        A worker may load conftests that the controller does not load.
        """
        self._of_workers += getattr(node, "workeroutput", {}).get(RECORDERS, ())

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """After the first Ctrl-C or SIGTERM, ignore further signals until pytest ends, except during the clean-up.

        A further signal during the clean-up of the target ends the clean-up, but not the run.
        """
        end_undisturbed()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the report from all recorded verdicts, and set the exit code of the run."""
        end_undisturbed()
        self._session = session
        undecided = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
        self._is_closed = True
        if exitstatus in undecided and self._crashes:
            exitstatus = EXIT_CRASHED
        self._closed = self._close(int(exitstatus), final=exitstatus not in undecided)
        session.exitstatus = self._closed.document["exit_code"] if self._closed else EXIT_CRASHED

    @pytest.hookimpl(wrapper=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None]:
        """Print the verdict at the end of pytest's summary, even if another plugin's summary raises an error."""
        try:
            return (yield)
        finally:
            for sentence in self._comparison:
                terminalreporter.write_line(sentence, red=True)
                self._fail()
            if self._closed is not None:
                terminalreporter.section("storage acceptance for AI checkpoints")
                for line, markup in summary_lines(self._closed.document):
                    terminalreporter.write_line(line, **markup)
                for words in self._closed.last_words:
                    terminalreporter.write_line(words)
            if self._reporter and (warning := self._reporter.warning()):
                terminalreporter.write_line(printable(warning))
            for sentence in self._crashes:
                terminalreporter.write_line(sentence, red=True)

    def _fail(self) -> None:
        """Set the exit code "failed" after a failure that is not a verdict. A worse exit code remains unchanged."""
        if self._session and self._session.exitstatus in (EXIT_MET, EXIT_INCOMPLETE):
            self._session.exitstatus = EXIT_FAILED

    def pytest_unconfigure(self) -> None:
        """Close the run if pytest ends without the end of a session, so that the target is cleaned."""
        if not self._is_closed:
            self._close(int(pytest.ExitCode.INTERNAL_ERROR), final=True)

    def _close(self, exit_code: int, *, final: bool) -> ClosedRun | None:
        """Close the run and return the result; None if closing fails.

        After a failure, the run directory can still be judged.
        """
        closed: ClosedRun | None = None
        try:
            closed = close_run(
                self._run,
                self._verdicts,
                exit_code,
                final=final,
                sections=self._plugins.sections,
                # Conftests are loaded during collection, after the run was opened.
                recorders=(*recorders(self._config), *self._of_workers),
            )
        except Exception as error:
            context = self._run.context
            self._note(store_traceback(error, context.directory, context.redactor))
        if self._reporter:
            self._reporter.end(closed.document if closed else None)
        return closed

    def _note(self, crash: str) -> None:
        """Record the sentence ``crash``, which describes an internal error. A repeated sentence is recorded once."""
        if crash not in self._crashes:
            self._crashes.append(crash)

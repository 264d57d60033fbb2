"""Which of the project's own tests run, and beside which others: a plugin that tests/conftest.py loads.

Plain ``pytest`` runs the fast set, ``pytest --all`` also the tests marked ``thorough``. Those of them that need a lab
(several hosts, servers of storage, whole matrices of faults) are marked ``lab`` by the table below: .ci/run runs all
others on each change, .ci/labs runs these.

Where no file is named, the tests run in one process more than there are cores, with ``--all`` in four more, a module to
a process: most of them wait for other processes. Tests marked ``alone`` run while no other test does. A test that takes
15 minutes is ended and shows the stack of each thread.

A run of the product in a checkout loads this file too, in an environment without what the tests need: then it leaves.
There, ``pytest --help`` and ``pytest --markers`` work, and whoever asks for the tests is told what they need.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import gc
import importlib.util
import itertools
import os
import sys
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Modules whose tests share nothing and take long: each test is a piece of work of its own, and they begin first.
SPREAD = (
    "tests/file_systems/test_real_file_systems.py",
    "tests/conformance/test_matrix.py",
    "tests/conformance/test_matrix_of_objects.py",
    "tests/conformance/test_matrix_of_speed.py",
)
# Modules that wait for several minutes: they begin next, so that none is alone at the end.
LONG = (
    "tests/launching/test_bad_luck_of_slurm.py",
    "tests/nfs/test_real_nfs.py",
    "tests/launching/test_bad_luck_on_hosts.py",
    "tests/launching/test_bad_luck_of_mpich.py",
)
# What needs a lab, by module or folder: .ci/labs runs it.
LABS = (
    *SPREAD,
    *LONG,
    "tests/conformance/test_other_servers.py",
    "tests/front_door/test_random_kills.py",
    "tests/front_door/test_run_in_company.py",
    "tests/front_door/test_run_of_own_model.py",
    "tests/front_door/test_run_on_other_clouds.py",
    "tests/front_door/test_run_over_hidden_hosts.py",
    "tests/fuzz/",
    "tests/launching/test_hosts_that_remember.py",
    "tests/launching/test_mpich_hosts.py",
    "tests/launching/test_network_of_hosts.py",
    "tests/launching/test_open_mpi_4_hosts.py",
    "tests/launching/test_pods.py",
    "tests/launching/test_same_on_every_host.py",
    "tests/launching/test_several_hosts.py",
    "tests/launching/test_slurm_hosts.py",
    "tests/launching/test_tiers_on_hosts.py",
    "tests/nfs/",
)
# A short one of each kind runs on each change: several hosts that share MooseFS, and an object store of others.
NOT_LABS = (
    "tests/conformance/test_other_servers.py::test_the_known_defects_are_found_and_nothing_else[s3rver]",
    "tests/launching/test_several_hosts.py",
)
_MAXIMUM_PROCESSES = 8
# The longest takes five minutes beside other load: whoever takes three times as long waits for what never comes.
LIMIT_SECONDS = 900
_FAST_EXAMPLES = 20
# Of what takes seconds to import: what a test module imported as it was collected.
IMPORTED = pytest.StashKey[set[str]]()
_TAKE_SECONDS = ("torch", "mpi4py.MPI")
# What the processes of pytest-xdist are told by this name.
HAS_FAST_SET = "has_fast_set"
# What asks pytest about itself runs no test, in any environment.
_TELLS = ("help", "version", "markers")
_NO_ENVIRONMENT = (
    "the project's own tests need an environment with the extra 'test'\n"
    "  python3 -m venv .venv-tests && .venv-tests/bin/pip install -c constraints.txt -e '.[test]' "
    "&& .venv-tests/bin/pytest\n"
    "  To test storage instead, say --ckpt-target=/mnt/array and --cluster=16000."
)

MARKERS = (
    "thorough: takes long; runs only with --all",
    "lab: thorough, and needs several hosts or servers of storage; set by the table in tests/support/selection",
    "in_short: shows what a thorough test shows, too; does not run with --all",
    "alone: measures or changes something that other work on the machine changes too; runs while no other test does",
    "covers(requirements=(), commands=(), faults=()): what a test is about; the fast set must have all of them",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("the tests of pytest-ckpt itself").addoption(
        "--all", action="store_true", dest="all_tests", help="run the thorough tests, too"
    )


def pytest_configure(config: pytest.Config) -> None:
    if _is_of_the_product(config):
        config.pluginmanager.unregister(sys.modules[__name__])
        return
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if importlib.util.find_spec("hypothesis") is None:
        if any(getattr(config.option, name, False) for name in _TELLS):
            return
        raise pytest.UsageError(_NO_ENVIRONMENT)
    from hypothesis import HealthCheck, settings  # noqa: PLC0415

    # How long an example takes is the machine's business.
    usual = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("all", usual)
    settings.register_profile("fast", usual, max_examples=_FAST_EXAMPLES)
    settings.load_profile("all" if config.getoption("all_tests") else "fast")


class _FailuresAtOnce:
    """Shows why a test failed when it does: the run of all tests takes an hour, and may be stopped before its end."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.write_line(f"\n{report.nodeid} failed:\n{report.longreprtext}", red=True)


@pytest.hookimpl(trylast=True)  # the terminal's reporter is made in this hook, too
def pytest_sessionstart(session: pytest.Session) -> None:
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.config.getoption("all_tests") and terminal and "PYTEST_XDIST_WORKER" not in os.environ:
        session.config.pluginmanager.register(_FailuresAtOnce(terminal))


def examples(count: int) -> int:
    """Return how many examples a property that costs much is tried with: a fifth in the fast set."""
    from hypothesis import settings  # noqa: PLC0415

    return count if settings.default.max_examples > _FAST_EXAMPLES else max(1, count // 5)


def first_few(cases: Iterable[Any], fast: int = 1) -> list[Any]:
    """Return the cases of a test: the first ``fast`` ones for every run, the others for that of all tests."""
    found = []
    for number, case in enumerate(cases):
        values = case if isinstance(case, tuple) else (case,)
        found.append(case if number < fast else pytest.param(*values, marks=pytest.mark.thorough))
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Spread the tests over processes before pytest-xdist looks how many are wanted."""
    if _is_all_of_ours(config) and getattr(config.option, "numprocesses", 0) is None and not config.option.usepdb:
        more = 4 if config.option.all_tests else 1
        config.option.numprocesses = min(_MAXIMUM_PROCESSES, (os.cpu_count() or 1) + more)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of pytest-xdist whether what it collects is the fast set and nothing less."""
    option = node.config.option
    is_cut = option.all_tests or option.keyword or option.markexpr or getattr(option, "lf", False)
    node.workerinput[HAS_FAST_SET] = _is_all_of_ours(node.config) and not is_cut


def _is_of_the_product(config: pytest.Config) -> bool:
    """Whether a target is judged here, and no test of the project runs."""
    return any(config.getoption(name, None) for name in ("ckpt_target", "ckpt_config"))


def _is_all_of_ours(config: pytest.Config) -> bool:
    """Whether this is the run of all tests; one of the product, of a file or to list tests is not."""
    return (
        config.args_source is pytest.Config.ArgsSource.TESTPATHS
        and not hasattr(config, "workerinput")
        and not config.option.collectonly
        and not _is_of_the_product(config)
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each process a module at a time: what the tests of a module share is made once."""
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - only where pytest-xdist is there

    class ByModule(LoadScopeScheduling):
        @functools.cached_property
        def _pieces(self) -> dict[str, str]:
            """For each test its piece of work: those of a module that come later than its others are another one."""
            follow = enumerate(itertools.groupby(self.collection or (), lambda nodeid: nodeid.partition("::")[0]))
            return {
                nodeid: nodeid if module in SPREAD else f"{module}, {number}"
                for number, (module, nodeids) in follow
                for nodeid in nodeids
            }

        def _split_scope(self, nodeid: str) -> str:
            return self._pieces[nodeid]

    config.option.loadscopereorder = False  # they are in the order that they should begin in
    return ByModule(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what was collected to no collector of garbage: ten thousand tests stay, and cost each pass."""
    if not _is_of_the_product(session.config):
        session.config.stash[IMPORTED] = {name for name in _TAKE_SECONDS if name in sys.modules}
        gc.collect()
        gc.freeze()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what needs a lab, before ``-m`` chooses."""
    is_thorough = item.get_closest_marker("thorough") is not None
    if is_thorough and item.nodeid.startswith(LABS) and not item.nodeid.startswith(NOT_LABS):
        item.add_marker(pytest.mark.lab)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the set does not run; begin with what takes longest, end with who is alone."""
    other_set = "in_short" if config.getoption("all_tests") else "thorough"
    if left_out := [item for item in items if item.get_closest_marker(other_set)]:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker(other_set)]
    for item in items:
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LIMIT_SECONDS))
    order = {module: place for place, module in enumerate((*SPREAD, *LONG))}
    items.sort(
        key=lambda item: (
            _is_alone(item),
            order.get(_module(item), len(order)),
        )
    )


def _is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


def _module(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@pytest.hookimpl(wrapper=True, tryfirst=True)  # whoever waits to be alone has not begun, and no limit runs
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    # Each process has a folder below the run's.
    folder = item.config._tmp_path_factory.getbasetemp().parent  # type: ignore[attr-defined]
    with beside_others(folder, alone=_is_alone(item)):
        return (yield)


@contextlib.contextmanager
def beside_others(folder: Path, *, alone: bool) -> Iterator[None]:
    """Wait until no other process is in here alone, or, to be alone, until none is in here."""
    with (folder / "door.lock").open("w") as door, (folder / "room.lock").open("w") as room:
        # Who waits to be alone keeps the door shut, so that the room empties.
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(room, fcntl.LOCK_UN)  # also for a process that was forked meanwhile

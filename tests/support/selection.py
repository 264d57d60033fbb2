"""Selection and parallelism of the project's own tests: a plugin that tests/conftest.py loads.

Plain ``pytest`` runs the fast set. ``pytest --all`` also runs the tests marked ``thorough``. A thorough test may need a
lab: several hosts, storage servers, or a complete fault matrix. The tables below mark such tests as ``lab``. .ci/labs
runs the tests marked ``lab``; .ci/run runs all other tests on each change.

If the command line names no file, the number of processes is the number of cores plus 2 (with ``--all`` plus 4), at
most 8. There are more processes than cores, because most tests wait for other processes. Each process runs one module
at a time. Tests marked ``alone`` run while no other test runs. After 15 minutes, a test is ended and prints all thread
stacks.

A run of pytest-ckpt in a checkout also loads this plugin. In such a run, the plugin deactivates itself, and the
packages that tests need may be missing. If the packages are missing in a test run, an error names them. ``pytest
--help`` and ``pytest --markers`` work without the packages.
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
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Its longest test runs all fast tests in two processes, so it begins before all others: at the end, no other could run.
LONGEST = "tests/test_new_entries.py"
# Modules whose tests are long and independent. Each test is a separate unit of work, and they begin next.
SPREAD = (
    "tests/file_systems/test_real_file_systems.py",
    "tests/conformance/test_matrix.py",
    "tests/conformance/test_matrix_of_objects.py",
    "tests/conformance/test_matrix_of_speed.py",
)
# Modules that wait for several minutes. They begin next, so that no such module runs alone at the end.
LONG = (
    "tests/launching/test_faults_with_slurm.py",
    "tests/nfs/test_real_nfs.py",
    "tests/launching/test_faults_with_open_mpi.py",
    "tests/launching/test_faults_with_mpich.py",
)
# Modules of .ci/run that take minutes; they need no lab, and begin first there.
LONG_WITHOUT_LAB = (
    "tests/docs/test_examples.py",
    "tests/end_to_end/test_run_that_is_interrupted.py",
    "tests/end_to_end/test_run_with_maintenance.py",
    "tests/end_to_end/test_run_of_conformance.py",
    "tests/end_to_end/test_run_on_objects.py",
    "tests/end_to_end/test_run_with_failover.py",
    "tests/end_to_end/test_run_with_strategies.py",
    "tests/end_to_end/test_run_without_page_counts.py",
    "tests/launching/test_several_hosts.py",
)
# Tests that need a lab, by module, directory or test; .ci/labs runs them.
LABS = (
    *SPREAD,
    *LONG,
    "tests/conformance/test_gateways_of_ceph.py",
    "tests/conformance/test_other_servers.py",
    "tests/evidence/test_longest_run.py",
    "tests/end_to_end/test_containers_and_pythons.py",
    "tests/end_to_end/test_object_store_certified.py",
    "tests/end_to_end/test_random_kills.py",
    "tests/end_to_end/test_run_during_other_work.py",
    "tests/end_to_end/test_run_of_own_model.py",
    "tests/end_to_end/test_run_of_shared_file_system.py",
    "tests/end_to_end/test_run_on_gateways_of_ceph.py",
    "tests/end_to_end/test_run_on_other_clouds.py",
    "tests/end_to_end/test_run_over_hidden_hosts.py",
    "tests/end_to_end/test_run_with_dcp.py::test_timed_reads_are_of_the_library_s_files",
    "tests/end_to_end/test_run_without_page_counts.py::test_a_cache_that_keeps_the_judged_checkpoints_and_drops_the_others_",
    "tests/end_to_end/test_run_without_page_counts.py::test_without_any_cache_a_second_client_proves_it",
    "tests/end_to_end/test_run_without_renames.py::test_every_check_of_behaviour_has_the_verdict_that_the_target_deserves",
    "tests/fuzz/",
    "tests/launching/test_hosts_with_caches.py",
    "tests/launching/test_mpich_hosts.py",
    "tests/launching/test_network_of_hosts.py",
    "tests/launching/test_open_mpi_4_hosts.py",
    "tests/launching/test_pods.py",
    "tests/launching/test_same_on_every_host.py",
    "tests/launching/test_several_hosts.py",
    "tests/launching/test_slurm_hosts.py",
    "tests/launching/test_tiers_on_hosts.py",
    "tests/nfs/",
    "tests/report/test_pictures.py",
    "tests/test_new_entries.py::test_every_fast_test_passes_with_one_more_of_each",
)
# Short tests with a lab that run on each change: several hosts on MooseFS, and a third-party object store.
NOT_LABS = (
    "tests/conformance/test_other_servers.py::test_the_known_defects_are_found_and_nothing_else[s3rver]",
    "tests/launching/test_several_hosts.py::test_rank_0_may_be_on_another_host_than_the_controller",
)
# Matrices with a run or a mount for each case. .ci/labs runs all cases; each change runs the first case and then every
# N-th one. N has no common divisor with the length of the innermost axis, so the chosen cases cover each axis.
_END_TO_END, _TARGETS = "tests/end_to_end/test_", "tests/targets/test_"
_INTERRUPTED = f"{_END_TO_END}run_that_is_interrupted.py"
_ON_OBJECTS, _WITH_DELTAS = f"{_END_TO_END}run_with_dcp_on_objects.py", f"{_END_TO_END}run_with_deltas.py"
MATRICES = {
    "tests/conformance/test_checks_names_and_visibility.py::test_honest_storage_gives_no_alarm": 5,
    f"{_END_TO_END}object_store_faults.py::test_a_connection_that_is_cut_once_in_any_phase_fails_nothing": 4,
    f"{_END_TO_END}object_store_faults.py::test_a_store_that_cannot_be_used_is_refused": 4,
    f"{_END_TO_END}object_store_faults.py::test_a_store_that_fails_during_a_run_gives_a_clear_error_and_no_secret": 4,
    f"{_END_TO_END}packaging.py::test_a_vendor_s_suite_runs_beside_ours_however_they_are_installed": 3,
    f"{_END_TO_END}run_on_model_arrays.py::test_a_model_array_gets_the_verdict_that_its_truth_deserves": 11,
    f"{_END_TO_END}run_on_objects.py::test_a_store_that_cannot_be_used_is_refused_with_a_remedy": 4,
    f"{_END_TO_END}run_on_objects.py::test_a_run_that_does_not_fit_is_refused_before_anything_is_written": 4,
    f"{_INTERRUPTED}::test_a_signal_at_any_stage_leaves_a_report_that_can_be_judged_or_nothing": 7,
    f"{_END_TO_END}run_that_is_resumed.py::test_a_run_that_was_killed_at_any_moment_ends_as_one_that_was_not": 3,
    f"{_END_TO_END}run_with_faults.py::test_a_target_that_stops_answering_does_not_hold_the_run": 3,
    f"{_END_TO_END}run_with_dcp.py::test_a_damaged_file_is_a_fault_and_a_missing_one_an_error": 3,
    # Several tests examine one run of each engine; each change runs every second engine.
    **dict.fromkeys(
        (
            f"{_ON_OBJECTS}::test_a_byte_that_a_store_flips_fails_integrity",
            f"{_ON_OBJECTS}::test_a_run_meets_what_is_required_and_every_byte_of_every_load_is_compared",
            f"{_ON_OBJECTS}::test_a_store_that_is_silent_in_a_save_is_named_and_nothing_is_left",
            f"{_ON_OBJECTS}::test_an_object_that_was_acknowledged_and_is_gone_fails_the_save",
            f"{_ON_OBJECTS}::test_the_report_verifies_and_memory_use_is_as_declared",
            f"{_ON_OBJECTS}::test_the_library_alone_loads_in_another_process_what_was_saved",
            f"{_ON_OBJECTS}::test_the_library_commits_and_its_calls_are_reported_separately",
            f"{_WITH_DELTAS}::test_a_chain_outlives_those_that_were_deleted",
            f"{_WITH_DELTAS}::test_deltas_run_in_the_background_and_full_saves_stall",
            f"{_WITH_DELTAS}::test_deltas_write_little_and_restores_read_the_chain",
            f"{_WITH_DELTAS}::test_a_run_meets_all_requirements_and_leaves_nothing",
            f"{_WITH_DELTAS}::test_the_report_of_the_run_verifies",
        ),
        2,
    ),
    f"{_ON_OBJECTS}::test_nothing_is_left_and_the_server_received_the_traced_requests": 3,
    f"{_ON_OBJECTS}::test_error_messages_of_a_client_contain_no_keys": 3,
    f"{_END_TO_END}run_with_maintenance.py::test_a_clone_that_is_wrong_fails": 3,
    f"{_END_TO_END}run_with_maintenance.py::test_a_clone_that_is_not_a_snapshot_is_not_judged": 3,
    f"{_END_TO_END}run_with_replay.py::test_a_damaged_file_changes_the_verdict": 3,
    f"{_END_TO_END}run_with_more_clients.py::test_the_rate_of_the_array_decides_and_not_its_clients": 3,
    f"{_END_TO_END}run_with_safetensors.py::test_a_damaged_file_is_a_fault_and_a_missing_one_an_error": 4,
    f"{_END_TO_END}run_with_safetensors.py::test_an_error_of_the_storage_is_named_with_its_rank_and_file": 3,
    "tests/launching/test_memory_of_ranks.py::test_a_rank_with_little_to_save_takes_little_however_often_it_saves": 2,
    "tests/plugin/test_hooks_misuse.py::test_a_misused_hook_is_refused_and_its_plugin_named": 5,
    "tests/ranks/test_dcp_objects_engine.py::test_a_rank_saves_and_loads_within_the_declared_memory": 3,
    "tests/recording/test_shipped_patterns.py::test_a_library_makes_the_calls_of_its_shipped_pattern": 5,
    "tests/report/pdf/test_certificate_pdf.py::test_a_planted_address_is_neither_requested_nor_read": 5,
    "tests/report/test_pages_in_browser.py::test_it_draws_light_and_dark_without_a_word_or_a_request": 5,
    "tests/report/test_pages_in_browser.py::test_nothing_is_wider_than_the_page_and_no_label_lies_on_another": 5,
    f"{_TARGETS}doctor_on_hung_target.py::test_a_target_that_hangs_in_writes_is_named": 3,
    f"{_TARGETS}faults_of_bytes.py::test_an_honest_target_passes": 5,
    f"{_TARGETS}faults_of_names.py::test_a_fault_is_named": 5,
    f"{_TARGETS}faults_of_names.py::test_an_honest_target_gives_no_alarm": 5,
}
# Cases that repeat a run of the fast set with engine torch instead of stream, by the end of their names. The import of
# torch takes longer than the rest of a run, so only .ci/labs runs them; each change runs tests that use only torch.
REPEATED_WITH_TORCH = {
    f"{_END_TO_END}retention_and_data.py": "[by_torch]",
    f"{_END_TO_END}run_on_memory.py": "[torch]",
    f"{_END_TO_END}run_on_objects.py": "[torch]",
    f"{_END_TO_END}run_with_compression.py": "[--ckpt-engine=torch]",
    f"{_END_TO_END}run_with_failover.py": "[--ckpt-engine=torch]",
    f"{_END_TO_END}run_with_maintenance.py": "[--ckpt-engine=torch]",
    f"{_END_TO_END}run_with_strategies.py": "[torch,stream]",
    f"{_END_TO_END}run_with_tiers.py": "[--ckpt-engine=torch]",
}
_MAXIMUM_PROCESSES = 8
# The longest test takes five minutes on a busy machine. A test that takes three times as long will never end.
LIMIT_SECONDS = 900
_FAST_EXAMPLES = 20
# The slow imports (_SLOW_IMPORTS) that test modules caused during the collection.
IMPORTED = pytest.StashKey[set[str]]()
# The number of collected cases of each matrix.
_CASES = pytest.StashKey[Counter[str]]()
_SLOW_IMPORTS = ("torch", "mpi4py.MPI")
# The name of a value that is passed to the processes of pytest-xdist.
HAS_FAST_SET = "has_fast_set"
# Options that only print information about pytest; they work in any environment.
_INFORMATION_OPTIONS = ("help", "version", "markers")
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
    if _is_target_run(config):
        config.pluginmanager.unregister(sys.modules[__name__])
        return
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if importlib.util.find_spec("hypothesis") is None:
        if any(getattr(config.option, name, False) for name in _INFORMATION_OPTIONS):
            return
        raise pytest.UsageError(_NO_ENVIRONMENT)
    from hypothesis import HealthCheck, settings  # noqa: PLC0415

    # The time of an example depends on the machine, so it has no limit.
    usual = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("all", usual)
    settings.register_profile("fast", usual, max_examples=_FAST_EXAMPLES)
    settings.load_profile("all" if config.getoption("all_tests") else "fast")


class _ImmediateFailures:
    """Prints each failure immediately. A run of all tests takes an hour and may be stopped before its summary."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.write_line(f"\n{report.nodeid} failed:\n{report.longreprtext}", red=True)


@pytest.hookimpl(trylast=True)  # after pytest has created the terminal reporter in this hook
def pytest_sessionstart(session: pytest.Session) -> None:
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if session.config.getoption("all_tests") and terminal and "PYTEST_XDIST_WORKER" not in os.environ:
        session.config.pluginmanager.register(_ImmediateFailures(terminal))


def examples(count: int) -> int:
    """Return the number of examples for an expensive property test.

    The number is ``count`` with ``--all``, and a fifth of ``count`` in the fast set.
    """
    from hypothesis import settings  # noqa: PLC0415

    return count if settings.default.max_examples > _FAST_EXAMPLES else max(1, count // 5)


def first_few(cases: Iterable[Any], fast: int = 1) -> list[Any]:
    """Return the cases of a test. The first ``fast`` cases always run; the others run only with ``--all``."""
    found = []
    for number, case in enumerate(cases):
        values = case if isinstance(case, tuple) else (case,)
        found.append(case if number < fast else pytest.param(*values, marks=pytest.mark.thorough))
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Set the number of test processes, before pytest-xdist reads this number."""
    if _is_complete_test_run(config) and getattr(config.option, "numprocesses", 0) is None and not config.option.usepdb:
        more = 4 if config.option.all_tests else 2
        config.option.numprocesses = min(_MAXIMUM_PROCESSES, (os.cpu_count() or 1) + more)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Report to each process of pytest-xdist whether the test run collects exactly the fast set."""
    option = node.config.option
    is_cut = option.all_tests or option.keyword or option.markexpr or getattr(option, "lf", False)
    node.workerinput[HAS_FAST_SET] = _is_complete_test_run(node.config) and not is_cut


def _is_target_run(config: pytest.Config) -> bool:
    """Whether this is a run of pytest-ckpt on a target, instead of the project's own tests."""
    return any(config.getoption(name, None) for name in ("ckpt_target", "ckpt_config"))


def _is_complete_test_run(config: pytest.Config) -> bool:
    """Whether this run was started for all test files of the project.

    False for a run on a target, for named files, for ``--collect-only``, and in the processes of pytest-xdist.
    """
    return (
        config.args_source is pytest.Config.ArgsSource.TESTPATHS
        and not hasattr(config, "workerinput")
        and not config.option.collectonly
        and not _is_target_run(config)
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Assign one module at a time to each process, because the tests of a module share fixtures."""
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - only if pytest-xdist is installed

    class ByModule(LoadScopeScheduling):
        @functools.cached_property
        def _pieces(self) -> dict[str, str]:
            """Return {test: unit of work}. The unit of a test is its module.

            In a module of `SPREAD`, each test is a separate unit. If the tests of a module are not consecutive, each
            consecutive group is a unit.
            """
            follow = enumerate(itertools.groupby(self.collection or (), lambda nodeid: nodeid.partition("::")[0]))
            return {
                nodeid: nodeid if module in SPREAD else f"{module}, {number}"
                for number, (module, nodeids) in follow
                for nodeid in nodeids
            }

        def _split_scope(self, nodeid: str) -> str:
            return self._pieces[nodeid]

    config.option.loadscopereorder = False  # the tests are already sorted by start
    return ByModule(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Exclude the objects of the collected tests from Python's garbage collection.

    The objects exist until the end of the run, and examining them would slow each garbage collection.
    """
    if not _is_target_run(session.config):
        session.config.stash[IMPORTED] = {name for name in _SLOW_IMPORTS if name in sys.modules}
        gc.collect()
        gc.freeze()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Add the mark ``lab`` to tests that need a lab, before ``-m`` selects tests."""
    is_lab = item.nodeid.startswith(LABS) and not item.nodeid.startswith(NOT_LABS)
    matrix = item.nodeid.partition("[")[0]
    if matrix in MATRICES:
        cases = item.config.stash.setdefault(_CASES, Counter())
        is_lab = cases[matrix] % MATRICES[matrix] != 0
        cases[matrix] += 1
    is_lab = is_lab or item.nodeid.endswith(REPEATED_WITH_TORCH.get(_module(item), ()))
    if is_lab and item.get_closest_marker("thorough"):
        item.add_marker(pytest.mark.lab)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that are not in the requested set, and order the others.

    The longest modules run first; tests marked ``alone`` run last.
    """
    other_set = "in_short" if config.getoption("all_tests") else "thorough"
    if left_out := [item for item in items if item.get_closest_marker(other_set)]:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker(other_set)]
    for item in items:
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LIMIT_SECONDS))
    order = {module: place for place, module in enumerate((LONGEST, *SPREAD, *LONG, *LONG_WITHOUT_LAB))}
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


@pytest.hookimpl(wrapper=True, tryfirst=True)  # the wait to run alone is not part of the test and of its timeout
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    # Each process has a directory below the run's.
    directory = item.config._tmp_path_factory.getbasetemp().parent  # type: ignore[attr-defined]
    with shared_or_exclusive(directory, alone=_is_alone(item)):
        return (yield)


@contextlib.contextmanager
def shared_or_exclusive(directory: Path, *, alone: bool) -> Iterator[None]:
    """Run the ``with`` block concurrently with the blocks of other processes, or exclusively if ``alone`` is True.

    An exclusive block starts when no other block runs, and no other block starts until the exclusive block ends.
    ``directory`` contains the lock files.
    """
    with (directory / "entry.lock").open("w") as entry, (directory / "tests.lock").open("w") as tests:
        # A process that waits for exclusive access blocks new entries, so that the others finish.
        fcntl.flock(entry, fcntl.LOCK_EX)
        fcntl.flock(tests, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(entry, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(tests, fcntl.LOCK_UN)  # closing is not sufficient if a process was forked in the block

"""Adds the measured seconds to the results of pytest-benchmark, for its JSON files, storage and comparisons.

pytest-benchmark creates all its output from one list; pytest's controller process appends the seconds to this list. The
fixture of pytest-benchmark is unsuitable: it times a function itself and is disabled under pytest-xdist. Contract tests
check that the list still exists.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_ckpt.plugin.worker_results import SubjectTimes


def quieten_benchmark(config: pytest.Config) -> None:
    """Suppress the table of pytest-benchmark, because the run's summary contains the same values.

    If an option of pytest-benchmark was given, keep the table.
    """
    plugged = getattr(config, "_benchmarksession", None)
    listed = [*config.invocation_params.args, *config.getini("addopts")]
    if plugged is not None and not any(str(word).startswith("--benchmark") for word in listed):
        plugged.quiet = True


def defer_comparison_errors(config: pytest.Config) -> list[str]:
    """Return a list to which each failed comparison of pytest-benchmark will add one sentence.

    Without this function, a failed comparison would raise an error in pytest's summary. The traceback would then follow
    the verdict.
    """
    listed: list[str] = []
    plugged = getattr(config, "_benchmarksession", None)
    if plugged is None:
        return listed
    from pytest_benchmark.session import PerformanceRegression  # noqa: PLC0415 - only where it is in use

    compare = plugged.check_regressions

    def compare_quietly() -> None:
        try:
            compare()
        except (PerformanceRegression, pytest.UsageError) as error:
            listed.append(
                f"The comparison of pytest-benchmark failed: {error} No verdict on the storage depends on it."
            )

    plugged.check_regressions = compare_quietly
    return listed


def add_benchmark(config: pytest.Config, timed: SubjectTimes | None) -> None:
    """Add the operations' seconds of one test to pytest-benchmark's results.

    If ``timed`` is None or pytest-benchmark is not installed or not enabled, do nothing.
    """
    benchmarks = config.pluginmanager.get_plugin("pytest-benchmark")
    plugged = getattr(config, "_benchmarksession", None)
    if timed is None or not timed.seconds or plugged is None or benchmarks is None:
        return
    from pytest_benchmark.stats import Metadata  # noqa: PLC0415 - only where it is in use

    metadata: Any = Metadata  # it has no types

    subject, kind = timed.subject, timed.kind
    # Results are compared by their full name, because a node id depends on the directory in which pytest is started.
    name = f"{kind}[{subject}]"
    fixture = SimpleNamespace(
        name=name,
        fullname=name,
        group=kind,
        param=subject,
        params={"subject": subject},
        extra_info={"bytes": timed.bytes, "unit": "s"},
        cprofile_stats=None,
        has_error=False,
    )
    options = {
        "disable_gc": False,
        "timer": "monotonic",
        "min_rounds": 1,
        "max_time": 0,
        "min_time": 0,
        "warmup": False,
    }
    stats = metadata(fixture, iterations=1, options=options)
    for seconds in timed.seconds:
        stats.update(seconds)
    plugged.benchmarks.append(stats)

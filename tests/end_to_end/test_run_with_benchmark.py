"""pytest-benchmark reports the measured seconds, with and without workers of pytest-xdist."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.end_to_end import MEASURED, SUBJECT, TINY, Run, Runner, temporary_runner


def _as_benchmarked(run: Run, file: Path, subject: str = MEASURED) -> None:
    """Check that the benchmarks in ``file`` are the saves and loads of the report, with the same times."""
    benchmarks = {b["name"]: b for b in json.loads(file.read_text())["benchmarks"]}
    assert set(benchmarks) == {f"save[{subject}]", f"load[{subject}]"}
    for kind in ("save", "load"):
        found = benchmarks[f"{kind}[{subject}]"]
        assert found["stats"]["data"] == [o["seconds"] for o in run.operations(kind)]
        assert found["stats"]["max"] == run.verdict(kind.upper())["measured"]
        assert found["group"] == kind
        assert found["fullname"] == found["name"]  # the name by which runs are compared; it contains no directory
        assert found["extra_info"]["bytes"] == run.measurement()["bytes"]


def _saved(storage: Path) -> list[Path]:
    return sorted(storage.rglob("*.json"))


def _edit(file: Path, factor: float) -> None:
    """Divide the minimum, maximum, mean and median of all benchmarks in a file by ``factor``."""
    saved: dict[str, Any] = json.loads(file.read_text())
    for benchmark in saved["benchmarks"]:
        for name in ("min", "max", "mean", "median"):
            benchmark["stats"][name] /= factor
    file.write_text(json.dumps(saved))


@pytest.fixture(scope="module")
def storage(create_home: Callable[[str], Path]) -> Path:
    """A directory with one saved run of pytest-benchmark. `_edit` has divided the times of this run by 1,000."""
    with temporary_runner(create_home("saved")) as runner:
        storage = runner.home / "benchmarks"
        run = runner.run(
            *TINY, "--benchmark-autosave", "--benchmark-save-data", f"--benchmark-storage=file://{storage}"
        )
        assert run.code == 0, run.text
        (file,) = _saved(storage)
        _as_benchmarked(run, file)
        _edit(file, 1000)
    return storage


def test_the_json_holds_the_measured_seconds(good: Run) -> None:
    _as_benchmarked(good, good.home / "benchmark.json", SUBJECT)


@pytest.mark.thorough
def test_the_json_holds_the_measured_seconds_over_workers_too(runner: Runner) -> None:
    run = runner.run(*TINY, "-n", "2", "--benchmark-json=benchmark.json")
    assert run.code == 0, run.text
    _as_benchmarked(run, runner.home / "benchmark.json")


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["plain", "workers"])
def test_a_run_is_compared_with_the_one_before(runner: Runner, storage: Path, workers: tuple[str, ...]) -> None:
    run = runner.run(*TINY, *workers, f"--benchmark-storage=file://{storage}", "--benchmark-compare")
    assert run.code == 0, run.text
    assert "Comparing against benchmarks from: " in run.text
    for kind in ("save", "load"):
        assert f"{kind}[{MEASURED}] (0001_" in run.text
        assert f"{kind}[{MEASURED}] (NOW)" in run.text


LAST = "storage acceptance for AI checkpoints"


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["plain", "workers"])
def test_a_regression_ends_with_a_failure_and_the_report_is_there(
    runner: Runner, storage: Path, workers: tuple[str, ...]
) -> None:
    run = runner.run(
        *TINY,
        *workers,
        f"--benchmark-storage=file://{storage}",
        "--benchmark-compare",
        "--benchmark-compare-fail=min:1%",
        "--benchmark-compare-fail=mean:1%",
    )
    assert run.code == 1, run.text
    assert "Traceback" not in run.text
    before, _, verdict = run.text.partition(LAST)
    assert "The comparison of pytest-benchmark failed: Performance has regressed. No verdict" in before
    assert "benchmark" not in verdict
    assert set(run.outcomes().values()) == {"met"}
    assert run.left_on_target == []


@pytest.mark.thorough
def test_a_limit_for_a_comparison_that_is_none_ends_with_a_sentence(runner: Runner) -> None:
    run = runner.run(*TINY, "--benchmark-compare-fail=min:1%")
    assert run.code == 1, run.text
    assert "Traceback" not in run.text
    before, _, _ = run.text.partition(LAST)
    assert "failed: --benchmark-compare-fail requires valid --benchmark-compare. No verdict" in before
    assert set(run.outcomes().values()) == {"met"}


@pytest.mark.thorough
def test_everything_works_without_pytest_benchmark(runner: Runner) -> None:
    run = runner.run(*TINY, "-p", "no:benchmark")
    assert run.code == 0, run.text
    assert set(run.outcomes().values()) == {"met"}

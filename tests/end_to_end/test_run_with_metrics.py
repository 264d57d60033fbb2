"""End-to-end runs that export live metrics.

The metrics equal the values in the report. If the metrics cannot be delivered, the run continues.
"""

from __future__ import annotations

import socket
import statistics

import pytest

from tests.support import CHECKOUT
from tests.support.collector import Values, collector, values_of
from tests.support.end_to_end import MEASURED, TINY, Run, Runner
from tests.support.machine import Mounts, patience

WARNING = "METRICS ARE INCOMPLETE: --ckpt-metrics "


def assert_metrics_of(found: Values, run: Run, total: str = "_total") -> None:
    """Check that the metrics in ``found`` have the values of the run's report.

    ``total`` is the suffix of the names of counters.
    """

    def value(name: str, **labels: str) -> float:
        return found[name, tuple(sorted({"run_id": run.run_id, **labels}.items()))]

    (checkpoint,) = run.document["checkpoints"]
    for kind in ("save", "load"):
        operations = run.operations(kind, MEASURED)
        labels = {"subject": MEASURED, "operation": kind}
        newest = operations[-1]
        assert (
            value(f"ckpt_operations{total}", **labels) == len(operations) == value("ckpt_operations_planned", **labels)
        )
        assert value(f"ckpt_moved_bytes{total}", **labels) == sum(o["bytes"] for o in operations)
        assert value("ckpt_operation_bytes", **labels) == newest["bytes"]
        assert value("ckpt_operation_seconds", **labels) == newest["seconds"]
        assert value("ckpt_operation_slowest_seconds", **labels) == max(o["seconds"] for o in operations)
        assert value("ckpt_operation_slowest_rank_seconds", **labels) == max(newest["rank_seconds"])
        assert value("ckpt_operation_median_rank_seconds", **labels) == statistics.median(newest["rank_seconds"])
        for phase, seconds in newest["phases"].items():
            assert value("ckpt_operation_phase_seconds", **labels, phase=phase) == seconds
        limit = checkpoint["demand"][f"{kind}_limit_seconds"]
        assert value("ckpt_operation_limit_seconds", **labels) == limit
    for verdict in run.document["requirements"]:
        names = {"requirement": verdict["id"], "subject": verdict["subject"]}
        assert value("ckpt_verdict_info", **names, severity=verdict["severity"], outcome=verdict["outcome"]) == 1
        if verdict["margin"] is not None:
            assert value("ckpt_verdict_margin_ratio", **names) == verdict["margin"]
    assert value("ckpt_run_exit_code") == run.document["exit_code"]
    assert value("ckpt_run_grade_info", grade=run.document["grade"]) == 1
    assert value("ckpt_run_running") == 0


@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "2"), marks=pytest.mark.thorough)], ids=["one", "xdist"])
def test_the_file_has_the_values_of_the_report(runner: Runner, workers: tuple[str, ...]) -> None:
    run = runner.run(*TINY, "--ckpt-metrics=ckpt.prom", *workers)
    assert run.code == 0, run.text
    assert WARNING not in run.text
    assert_metrics_of(values_of((runner.home / "ckpt.prom").read_text()), run)


def test_a_collector_receives_the_values_of_the_report(runner: Runner) -> None:
    with collector() as seen:
        run = runner.run(*TINY, f"--ckpt-metrics={seen.destination}")
        assert run.code == 0, run.text
        assert WARNING not in run.text
        assert_metrics_of(seen.values(), run, total="")


def test_an_endpoint_that_never_answers_is_one_warning(runner: Runner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        run = runner.run(*TINY, f"--ckpt-metrics=otlp://127.0.0.1:{silent.getsockname()[1]}")
    assert run.code == 0, run.text
    assert run.text.count(WARNING) == 1, run.text
    assert set(run.outcomes(MEASURED).values()) == {"met"}, run.text


def test_a_full_disk_is_one_warning(runner: Runner, mount: Mounts) -> None:
    place = mount("tmpfs", 1)
    (place / "full").write_bytes(bytes(1 << 20))
    run = runner.run(*TINY, f"--ckpt-metrics={place}/ckpt.prom")
    assert run.code == 0, run.text
    assert run.text.count(WARNING) == 1, run.text
    assert f"{WARNING}{place}/ckpt.prom: No space left on device (ENOSPC). The run does not depend" in run.text
    assert set(run.outcomes(MEASURED).values()) == {"met"}, run.text
    assert [path.name for path in place.iterdir()] == ["full"]


def test_a_process_that_cannot_work_is_one_warning(runner: Runner) -> None:
    broken = runner.home / "broken"
    broken.mkdir()
    (broken / "prometheus_client.py").write_text("raise RuntimeError('this library is broken')\n")
    run = runner.run(*TINY, "--ckpt-metrics=ckpt.prom", environment={"PYTHONPATH": f"{broken}:{CHECKOUT}"})
    assert run.code == 0, run.text
    assert run.text.count(WARNING) == 1, run.text
    assert "this library is broken. The run does not depend" in run.text


def test_a_file_in_a_directory_that_is_not_there_is_refused(runner: Runner) -> None:
    started = runner.start(*TINY, "--ckpt-metrics=nowhere/ckpt.prom")
    assert started.process.wait(patience(240)) == 4, started.text
    assert "--ckpt-metrics nowhere/ckpt.prom cannot be written" in started.text
    assert list(runner.target.iterdir()) == []

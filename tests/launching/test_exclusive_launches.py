"""A check that two workers need runs only once. If ranks of an earlier launch cannot be ended, no launch starts."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest

from pytest_ckpt.facts.checks import Check, checks_for
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.launching import launch_context, measurements, observations
from pytest_ckpt.launching.launch_context import LaunchContext
from pytest_ckpt.launching.recorder import LaunchHooks, Observer
from tests.support.synthetic_launch import synthetic_context

SAID = {"ckpt_cluster": "64", "ckpt_model": "llama3-8b", "ckpt_profile": "smoke", "ckpt_mode": "open",
        "ckpt_ranks": "2"}  # fmt: skip


@pytest.fixture
def context(tmp_path: Path) -> LaunchContext:
    made = synthetic_context(tmp_path, SAID)
    return dataclasses.replace(made, settings=dataclasses.replace(made.settings, suites=("performance", "conformance")))


def test_two_workers_that_want_one_check_make_it_once(context: LaunchContext, monkeypatch: pytest.MonkeyPatch) -> None:
    check = next(c for c in checks_for("posix") if c.name == "COMMIT.file")
    made: list[Check] = []
    both = threading.Barrier(2, timeout=2)

    def run_check(check: Check, **_: object) -> Observation:
        made.append(check)
        # No other worker arrives during this check, so the barrier breaks.
        with pytest.raises(threading.BrokenBarrierError):
            both.wait()
        return Observation(requirement=check.requirement, subject=check.subject, trials=1)

    monkeypatch.setattr(observations, "run_check", run_check)
    seen: list[Observation] = []
    workers = [
        threading.Thread(target=lambda: seen.append(observations.Observations(context).observation(check)))
        for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert made == [check]
    assert [o.trials for o in seen] == [1, 1]


def test_checks_with_a_limit_in_seconds_run_alone_also_those_with_a_second_client() -> None:
    timed = {c.requirement for c in (*checks_for("posix"), *checks_for("objects")) if c.is_timed}
    assert {"STALE", "PUBLISH", "LIVE", "OBJECT-CROWD"} <= timed


def test_other_checks_are_made_concurrently(context: LaunchContext, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = [c for c in checks_for("posix") if not c.needs and not c.is_timed][:2]
    both = threading.Barrier(2, timeout=30)

    def run_check(check: Check, **_: object) -> Observation:
        both.wait()
        return Observation(requirement=check.requirement, subject=check.subject, trials=1)

    monkeypatch.setattr(observations, "run_check", run_check)
    workers = [threading.Thread(target=observations.Observations(context).observation, args=(c,)) for c in pair]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not both.broken


def test_no_launch_is_made_beside_ranks_that_cannot_be_ended(
    context: LaunchContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    (context.directory / "launches" / "1").mkdir(parents=True)
    monkeypatch.setattr(launch_context, "end_marked", lambda _run_id: [4711])
    monkeypatch.setattr(measurements, "Launch", None)
    (planned,) = context.plan.runnable
    found = measurements.Measurements(context, Observer(), LaunchHooks()).measurement(planned.subject)
    assert found.failure
    assert found.failure.kind == "launch"
    assert "4711" in found.failure.message
    assert found.operations == ()

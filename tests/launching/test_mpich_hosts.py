"""MPICH ranks on hosts other than the controller's host. MPICH's process manager hydra starts them over ssh."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import CHECKOUT
from tests.support.end_to_end import TINY
from tests.support.hosts.delivery import (
    assert_final_messages_arrived,
    assert_large_job_arrived,
    assert_second_client_listed,
    final_message_steps,
)
from tests.support.hosts.lab import Step, StepResult, need_hosts, on_hosts
from tests.support.hosts.mpich import mpich_python

OPTIONS = (*TINY, "--ckpt-hosts=h2:1,h3:1", "--ckpt-engine=stream")
NAMES = ("--ckpt-gate-table=posix-shared", "--ckpt-suite=conformance", "-k", "second-client")


@pytest.fixture(scope="module")
def results(create_home: Callable[[str], Path]) -> dict[str, StepResult]:
    """Return {name of a step: its result} for all steps. They run on three simulated hosts."""
    need_hosts()
    home = create_home("hosts")
    how = {"python": str(mpich_python(home)), "environment": {"PYTHONPATH": f"{home}:{CHECKOUT}"}}
    large = (how["python"], "-m", "tests.support.hosts.large_job", "h2:2", "1000000")
    steps = {
        "run": Step(options=(*OPTIONS, "--ckpt-gate-table=speed-only"), **how),
        "names": Step(options=(*OPTIONS, *NAMES), **how),
        "large": Step(words=large, environment=how["environment"]),
        **final_message_steps(how["python"], environment=how["environment"]),
    }
    return dict(zip(steps, on_hosts(home, 3, *steps.values()), strict=True))


@pytest.mark.thorough
def test_ranks_of_mpich_run_on_other_hosts_than_the_controller(results: dict[str, StepResult]) -> None:
    run = results["run"].run
    assert run.code == 0, run.text
    assert run.measurement()["hosts"] == ["h2", "h3"]
    assert "hydra" in run.document["environment"]["launcher"].lower()
    assert results["run"].left == ()
    assert (results["run"].secrets > 0, results["run"].shown) == (True, ())


@pytest.mark.thorough
def test_a_job_of_a_megabyte_reaches_ranks_that_hydra_starts(results: dict[str, StepResult]) -> None:
    assert_large_job_arrived(results["large"])


@pytest.mark.thorough
def test_final_messages_of_ranks_of_hydra_arrive_or_the_launch_fails(
    results: dict[str, StepResult],
) -> None:
    assert_final_messages_arrived(results)


@pytest.mark.thorough
def test_hydra_starts_the_second_client_that_lists_a_thousand_names(results: dict[str, StepResult]) -> None:
    assert_second_client_listed(results["names"])

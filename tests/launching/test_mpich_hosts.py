"""MPICH's ranks on other hosts than the controller, started by hydra over ssh."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import CHECKOUT
from tests.support.front_door import TINY
from tests.support.hosts.lab import Done, Step, need_hosts, on_hosts
from tests.support.hosts.mpich import python_of_mpich
from tests.support.hosts.reached import (
    assert_that_a_large_job_came,
    assert_that_a_second_client_listed,
    assert_that_last_words_came,
    last_words_of,
)

OPTIONS = (*TINY, "--ckpt-hosts=h2:1,h3:1", "--ckpt-engine=stream")
NAMES = ("--ckpt-gate-table=posix-shared", "--ckpt-suite=conformance", "-k", "second-client")


@pytest.fixture(scope="module")
def done(make_home: Callable[[str], Path]) -> dict[str, Done]:
    """Return {name of a step: its result} for all steps. They run on three simulated hosts."""
    need_hosts()
    home = make_home("hosts")
    how = {"python": str(python_of_mpich(home)), "environment": {"PYTHONPATH": f"{home}:{CHECKOUT}"}}
    large = (how["python"], "-m", "tests.support.hosts.large_job", "h2:2", "1000000")
    steps = {
        "run": Step(options=(*OPTIONS, "--ckpt-gate-table=speed-only"), **how),
        "names": Step(options=(*OPTIONS, *NAMES), **how),
        "large": Step(words=large, environment=how["environment"]),
        **last_words_of(how["python"], environment=how["environment"]),
    }
    return dict(zip(steps, on_hosts(home, 3, *steps.values()), strict=True))


@pytest.mark.thorough
def test_ranks_of_mpich_run_on_other_hosts_than_the_controller(done: dict[str, Done]) -> None:
    run = done["run"].run
    assert run.code == 0, run.text
    assert run.measurement()["hosts"] == ["h2", "h3"]
    assert "hydra" in run.document["environment"]["launcher"].lower()
    assert done["run"].left == ()
    assert (done["run"].secrets > 0, done["run"].shown) == (True, ())


@pytest.mark.thorough
def test_a_job_of_a_megabyte_reaches_ranks_that_hydra_starts(done: dict[str, Done]) -> None:
    assert_that_a_large_job_came(done["large"])


@pytest.mark.thorough
def test_what_ranks_that_hydra_starts_tell_right_before_they_end_arrives_or_fails_the_launch(
    done: dict[str, Done],
) -> None:
    assert_that_last_words_came(done)


@pytest.mark.thorough
def test_hydra_starts_the_second_client_that_lists_a_thousand_names(done: dict[str, Done]) -> None:
    assert_that_a_second_client_listed(done["names"])

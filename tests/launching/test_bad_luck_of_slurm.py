"""Bad luck while ranks that Slurm started save: the run ends and says why, and nothing goes on anywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.front_door import SMALLEST
from tests.support.hosts.lab import Done, Step, need_hosts, on_hosts
from tests.support.hosts.mishaps import Mishap, What
from tests.support.hosts.slurm import need_slurm
from tests.support.hosts.storage import HONEST_FUSE

OPTIONS = (
    *SMALLEST,
    "--ckpt-hosts=h1:1,h2:1,h3:1",
    "--ckpt-processes=3",
    "--ckpt-deadline=10s",
    "--ckpt-scale=1/100000",
    "--cluster=1",
    "--ckpt-retain=2",
    "--ckpt-operations=1000",
    "--ckpt-launcher=srun --mpi=pmix --kill-on-bad-exit=1 --distribution=arbitrary --nodelist={ranks}",
)
# Last what ends a host: the others have none then.
WHATS: tuple[What, ...] = ("rank", "daemon", "launcher", "cancelled", "TERM", "host")


@pytest.fixture(scope="module")
def done(make_home: Callable[[str], Path]) -> dict[str, Done]:
    """What came of each run in one lab."""
    need_hosts(HONEST_FUSE)
    need_slurm()
    steps = [Step(options=OPTIONS, mishaps=(Mishap(what=what),)) for what in WHATS]
    return dict(zip(WHATS, on_hosts(make_home("hosts"), 3, *steps, slurm=True, storage=HONEST_FUSE), strict=True))


def failure_of(done: Done) -> Mapping[str, Any]:
    (measured,) = done.run.document["measurements"]
    failure: Mapping[str, Any] = measured["failure"]
    assert failure, done.text
    return failure


@pytest.mark.thorough
@pytest.mark.parametrize("what", ["rank", "daemon"])
def test_a_killed_rank_or_daemon_is_named_with_its_host(done: dict[str, Done], what: What) -> None:
    failure = failure_of(done[what])
    assert (failure["kind"], failure["host"]) == ("killed", "h2"), failure["message"]
    assert done[what].left == ()


@pytest.mark.thorough
@pytest.mark.parametrize("what", ["launcher", "cancelled"])
def test_a_job_that_is_ended_from_outside_accuses_no_storage(done: dict[str, Done], what: What) -> None:
    failure = failure_of(done[what])
    assert (failure["kind"], failure["operation"]) == ("killed", None), failure["message"]
    assert done[what].code == 8, done[what].text
    assert done[what].left == ()


@pytest.mark.thorough
def test_an_interrupted_run_leaves_nothing_on_any_host(done: dict[str, Done]) -> None:
    assert done["TERM"].code == 2, done["TERM"].text
    assert done["TERM"].left == ()


@pytest.mark.thorough
def test_a_host_that_is_gone_is_named_and_what_it_may_still_write_is_not_removed(done: dict[str, Done]) -> None:
    failure = failure_of(done["host"])
    assert failure["host"] == "h2", failure["message"]
    (left,) = done["host"].run.document["left_behind"]
    assert "h2 does not say that no process of the run is left there, so it may still write" in left
    assert [name for name in done["host"].left if name.isdigit()] == [], "no process"

"""Injects faults while ranks that Slurm started save. The run ends with a reason, and no process survives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.hosts.bad_luck import BadLuck, Luck, bad_luck, failure_of
from tests.support.hosts.lab import Done, need_hosts
from tests.support.hosts.slurm import need_slurm
from tests.support.hosts.storage import HONEST_FUSE

LAUNCHER = "--ckpt-launcher=srun --mpi=pmix --kill-on-bad-exit=1 --distribution=arbitrary --nodelist={ranks}"


@pytest.fixture(scope="module")
def done(make_home: Callable[[str], Path]) -> dict[Luck, Done]:
    """Run each fault on the same simulated hosts; return {fault: result of the run}."""
    need_hosts(HONEST_FUSE, "tc")
    need_slurm()
    return bad_luck(make_home("hosts"), "cancelled", *BadLuck.LUCKS, options=(LAUNCHER,), slurm=True)


class TestBadLuckOfSlurm(BadLuck):
    # Slurm kills the ranks on the other hosts, and gives the reason only in its own log and in sinfo.
    NAMES_A_FULL_HOST = False
    RANKS_WAIT = False
    OF_THE_LAUNCHER = ("/run/slurmd/", "/tmp/spmix_appdir_")

    @pytest.mark.parametrize("luck", ["launcher", "cancelled"])
    def test_a_job_that_is_ended_from_outside_accuses_no_storage(self, done: dict[Luck, Done], luck: Luck) -> None:
        failure = failure_of(done[luck])
        assert (failure["kind"], failure["operation"]) == ("killed", None), failure["message"]
        assert done[luck].code == 8, done[luck].text
        assert done[luck].left == ()

"""Faults during saves of ranks started by Slurm: fatal faults end the run with a reason, and no process survives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.hosts.fault_runs import FaultTests, RunFault, failure_of, run_with_faults
from tests.support.hosts.lab import StepResult, need_hosts
from tests.support.hosts.slurm import need_slurm
from tests.support.hosts.storage import HONEST_FUSE

LAUNCHER = "--ckpt-launcher=srun --mpi=pmix --kill-on-bad-exit=1 --distribution=arbitrary --nodelist={ranks}"


@pytest.fixture(scope="module")
def results(create_home: Callable[[str], Path]) -> dict[RunFault, StepResult]:
    """Run each fault on the same simulated hosts; return {fault: result of the run}."""
    need_hosts(HONEST_FUSE, "tc")
    need_slurm()
    return run_with_faults(create_home("hosts"), "cancelled", *FaultTests.RUN_FAULTS, options=(LAUNCHER,), slurm=True)


class TestFaultsWithSlurm(FaultTests):
    # Slurm kills the ranks on the other hosts, and gives the reason only in its own log and in sinfo.
    NAMES_A_FULL_HOST = False
    RANKS_WAIT = False
    OF_THE_LAUNCHER = ("/run/slurmd/", "/tmp/spmix_appdir_")

    @pytest.mark.parametrize("run_fault", ["launcher", "cancelled"])
    def test_a_job_that_is_ended_from_outside_accuses_no_storage(
        self, results: dict[RunFault, StepResult], run_fault: RunFault
    ) -> None:
        failure = failure_of(results[run_fault])
        assert (failure["kind"], failure["operation"]) == ("killed", None), failure["message"]
        assert results[run_fault].code == 8, results[run_fault].text
        assert results[run_fault].left == ()

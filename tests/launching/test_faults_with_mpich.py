"""Faults during saves of ranks started by MPICH: fatal faults end the run with a reason, and no process survives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.hosts.fault_runs import FaultTests, RunFault, run_with_faults
from tests.support.hosts.lab import StepResult, need_hosts
from tests.support.hosts.mpich import mpich_python
from tests.support.hosts.storage import HONEST_FUSE


@pytest.fixture(scope="module")
def results(create_home: Callable[[str], Path]) -> dict[RunFault, StepResult]:
    """Run each fault on the same simulated hosts; return {fault: result of the run}."""
    need_hosts(HONEST_FUSE, "tc")
    home = create_home("hosts")
    python = str(mpich_python(home))
    return run_with_faults(home, *FaultTests.RUN_FAULTS, python=python, environment={"PYTHONPATH": f"{home}"})


class TestFaultsWithMpich(FaultTests):
    # Its launcher reports a line of its own code that met an error, but no host.
    NAMES_A_FULL_HOST = False
    # MPICH creates these files as it starts. Only ranks that end normally remove them.
    OF_THE_LAUNCHER = ("/dev/shm/mpich_shm_", "/tmp/hydra_hwloc_xmlfile_")

    def test_the_launcher_is_mpich(self, results: dict[RunFault, StepResult]) -> None:
        assert "hydra" in results["rank"].run.document["environment"]["launcher"].lower()

"""Faults during saves of ranks started by Open MPI: fatal faults end the run with a reason, and no process survives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.hosts.fault_runs import FaultTests, RunFault, run_with_faults
from tests.support.hosts.lab import StepResult, need_hosts
from tests.support.hosts.storage import HONEST_FUSE


@pytest.fixture(scope="module")
def results(create_home: Callable[[str], Path]) -> dict[RunFault, StepResult]:
    """Run each fault on the same simulated hosts; return {fault: result of the run}."""
    need_hosts(HONEST_FUSE, "tc")
    return run_with_faults(create_home("hosts"), *FaultTests.RUN_FAULTS)


class TestFaultsWithOpenMpi(FaultTests):
    """The tests that `FaultTests` defines for each fault, applied to runs with Open MPI."""

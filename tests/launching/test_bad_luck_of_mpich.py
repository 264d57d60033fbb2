"""Injects faults while ranks that MPICH started save. The run ends with a reason, and no process survives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.hosts.bad_luck import BadLuck, Luck, bad_luck
from tests.support.hosts.lab import Done, need_hosts
from tests.support.hosts.mpich import python_of_mpich
from tests.support.hosts.storage import HONEST_FUSE


@pytest.fixture(scope="module")
def done(make_home: Callable[[str], Path]) -> dict[Luck, Done]:
    """Run each fault on the same simulated hosts; return {fault: result of the run}."""
    need_hosts(HONEST_FUSE, "tc")
    home = make_home("hosts")
    python = str(python_of_mpich(home))
    return bad_luck(home, *BadLuck.LUCKS, python=python, environment={"PYTHONPATH": f"{home}"})


class TestBadLuckOfMpich(BadLuck):
    # Its launcher reports a line of its own code that met an error, but no host.
    NAMES_A_FULL_HOST = False
    # MPICH creates these files as it starts. Only ranks that end normally remove them.
    OF_THE_LAUNCHER = ("/dev/shm/mpich_shm_", "/tmp/hydra_hwloc_xmlfile_")

    def test_it_was_mpich(self, done: dict[Luck, Done]) -> None:
        assert "hydra" in done["rank"].run.document["environment"]["launcher"].lower()

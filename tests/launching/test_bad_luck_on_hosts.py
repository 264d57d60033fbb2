"""Faults while ranks that Open MPI started save: the run ends with the reason, and no process survives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.hosts.bad_luck import BadLuck, Luck, bad_luck
from tests.support.hosts.lab import Done, need_hosts
from tests.support.hosts.storage import HONEST_FUSE


@pytest.fixture(scope="module")
def done(make_home: Callable[[str], Path]) -> dict[Luck, Done]:
    """Return {fault: result of its run}. The runs share one set of simulated hosts."""
    need_hosts(HONEST_FUSE, "tc")
    return bad_luck(make_home("hosts"), *BadLuck.LUCKS)


class TestBadLuckOfOpenMpi(BadLuck):
    """The inherited tests check the runs with each fault."""

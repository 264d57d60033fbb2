"""Injects faults while ranks that Open MPI started save. The run ends with a reason, and no process survives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.hosts.bad_luck import BadLuck, Luck, bad_luck
from tests.support.hosts.lab import Done, need_hosts
from tests.support.hosts.storage import HONEST_FUSE


@pytest.fixture(scope="module")
def done(make_home: Callable[[str], Path]) -> dict[Luck, Done]:
    """Run each fault on the same simulated hosts; return {fault: result of the run}."""
    need_hosts(HONEST_FUSE, "tc")
    return bad_luck(make_home("hosts"), *BadLuck.LUCKS)


class TestBadLuckOfOpenMpi(BadLuck):
    """The inherited tests check the run with each fault."""

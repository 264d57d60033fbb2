"""The group of ranks, over a real MPI: the result of each method, with more ranks than cores."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from pytest_ckpt.launching.launcher import find_launcher
from tests.support import CHECKOUT
from tests.support.group_program import LARGE, STARTS
from tests.support.machine import patience

RANKS = 5


@pytest.mark.parametrize("hosts", [1, 2])
def test_every_method_gives_the_right_result_on_more_ranks_than_cores(tmp_path: Path, hosts: int) -> None:
    launcher = find_launcher(None, ())
    more = {"PYTHONPATH": str(CHECKOUT), "GROUP_HOSTS": str(hosts)}
    done = subprocess.run(
        launcher.command(RANKS, "tests.support.group_program"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(60),
        env=launcher.environment("group", str(tmp_path)) | more,
        # At most two cores, however many the machine has.
        preexec_fn=lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2]),
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout.splitlines()[-1])
    assert document["is_together"] == [True] * STARTS
    for rank, found in enumerate(document["ranks"]):
        assert found["gathered"] == ([n * LARGE for n in range(RANKS)] if rank == 0 else [])
        of_host = range(rank % hosts, RANKS, hosts)
        assert (found["shared"], found["largest"], found["smallest"]) == (0, RANKS - 1, -1)
        assert found["sum"] == sum(other + 1 for other in of_host)
        assert (found["leader"], found["leads"], found["any"]) == (f"rank {of_host[0]}", rank < hosts, [True, False])
        assert found["turns"] == found["beside"] == list(range(100))

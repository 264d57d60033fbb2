"""Ranks on a host with two NUMA nodes. If the launcher has not bound a rank, the rank is bound to a node."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.end_to_end import TINY, Run, temporary_runner
from tests.support.machine import need

# The real kernel reports one node. This process and its children see another directory.
WITH_NODES = ("unshare", "--mount", "sh", "-euc", 'mount --bind "$0" /sys/devices/system/node; exec "$@"')


@pytest.fixture(scope="module")
def run_on_nodes(create_home: Callable[[str], Path]) -> Callable[..., Run]:
    """Return a function that makes a run of two ranks on a host with two simulated NUMA nodes.

    The first node is the first core; the second node is all other cores.
    """
    first, *others = sorted(os.sched_getaffinity(0))
    need(os.geteuid() == 0 and others, "needs root, to mount, and two cores")
    home = create_home("nodes")
    for number, cores in enumerate(([first], others)):
        node = home / "sys" / f"node{number}"
        node.mkdir(parents=True)
        (node / "cpulist").write_text(",".join(map(str, cores)) + "\n")

    def run(*options: str) -> Run:
        directory = home / f"run-{len(list(home.iterdir()))}"
        directory.mkdir()
        with temporary_runner(directory) as runner:
            return runner.run(*TINY, *options, around=(*WITH_NODES, str(home / "sys")))

    return run


@pytest.mark.parametrize(
    ("options", "binding", "nodes"),
    [
        ((), "one node a rank", "0 and 1"),
        (("--ckpt-launcher=mpiexec --bind-to core",), "as started", "0 and 1"),
        (("--ckpt-ranks=1",), "as started", "0,1"),
    ],
    ids=["two ranks", "bound by the launcher", "a rank alone"],
)
def test_ranks_are_placed_as_in_jobs_and_their_places_are_reported(
    run_on_nodes: Callable[..., Run], options: tuple[str, ...], binding: str, nodes: str
) -> None:
    run = run_on_nodes(*options)
    assert run.code == 0, run.text
    (host,) = run.document["environment"]["hosts"]
    assert (host["client"]["numa_binding"], host["client"]["cores_numa"]) == (binding, nodes)
    assert host["client"]["numa_nodes"] == "2"

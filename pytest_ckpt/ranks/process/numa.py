"""Binds the ranks of a host to its NUMA nodes, in blocks of consecutive ranks.

A training job binds each rank to the node of its accelerator. If a rank could move between nodes, it would access
memory of another node. Its saves and loads would be slower and vary more. If the launcher has already bound the ranks,
their binding is not changed.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ckpt.support.host_state import cores_of_this_process, numa_nodes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ckpt.ranks.process.group import Group

BINDING = "numa_binding"
ONE_NODE_A_RANK, AS_STARTED = "one node a rank", "as started"

Cores = frozenset[int]


def bind_to_numa_node(group: Group) -> dict[str, str]:
    """Bind this rank to a NUMA node. Return one client fact, which states whether pytest-ckpt has bound the rank.

    If the host has only one node, return an empty dictionary. All ranks call this together, before they allocate the
    memory from which they save.
    """
    nodes = numa_nodes()
    if not group.any_of(len(nodes) > 1):
        return {}
    of_all: list[Cores] = group.share(group.gather(frozenset(cores_of_this_process())))
    if len(nodes) < 2:
        return {}
    ranks = group.ranks_of_host
    cores = cores_of_rank(ranks.index(group.rank), [of_all[rank] for rank in ranks], nodes)
    return {BINDING: ONE_NODE_A_RANK if cores and _bind_threads(cores) else AS_STARTED}


def cores_of_rank(place: int, of_ranks: Sequence[Cores], nodes: Mapping[int, Cores]) -> Cores | None:
    """Return the cores of the NUMA node to which a rank must be bound. Return None if the rank must not be bound.

    ``of_ranks`` contains, for each rank of the host, the cores that the rank may use. ``place`` is the index of this
    rank in ``of_ranks``. ``nodes`` is {name of node: cores}. A rank is not bound if it is the only rank of its host.
    Ranks are also not bound if they may use different cores, or the cores of only one node. In these two cases, the
    launcher has bound them.
    """
    mine = of_ranks[place]
    usable = [cores & mine for _, cores in sorted(nodes.items()) if cores & mine]
    if len(of_ranks) < 2 or len(usable) < 2 or set(of_ranks) != {mine}:
        return None
    return usable[place * len(usable) // len(of_ranks)]


def _bind_threads(cores: Cores) -> bool:
    """Bind all threads of this process to these cores. Return whether this succeeded."""
    with contextlib.suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():
            # A thread that has just ended does not need to be bound.
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)
        return True
    return False

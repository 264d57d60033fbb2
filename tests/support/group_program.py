"""The program that tests of the MPI group start as ranks, with ``python -m`` under mpiexec.

Rank 0 prints a line of JSON. The environment variable ``GROUP_HOSTS`` can state a number of simulated hosts, to which
the ranks are then assigned in turn.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time

from pytest_ckpt.ranks.process.activity import Activity

STARTS = 5
LARGE = 3_000_000


def main() -> None:
    """Call every method of the class MpiGroup. Some calls run concurrently, in a duplicate of the group."""
    if hosts := os.environ.get("GROUP_HOSTS"):
        name = f"h{int(os.environ['OMPI_COMM_WORLD_RANK']) % int(hosts)}"
        socket.gethostname = lambda: name
    # Importing it starts MPI, and tests import this module.
    from pytest_ckpt.ranks.process.mpi_group import MpiGroup  # noqa: PLC0415

    activity = Activity()
    group = MpiGroup(activity)
    found: dict[str, object] = {
        "gathered": [len(of) for of in group.gather("x" * (group.rank * LARGE))],
        "shared": group.share({"from": group.rank, "large": "y" * LARGE})["from"],
        "sum": group.host_sum(group.rank + 1),
        "largest": group.largest(group.rank),
        "smallest": group.largest(-1 - group.rank),
        "leader": group.from_host_leader(f"rank {group.rank}"),
        "leads": group.leads_host,
        "any": [group.any_of(group.rank == group.size - 1), group.any_of(False)],
    }
    beside = group.duplicate(activity.lane("beside"))
    thread = threading.Thread(target=lambda: found.update(beside=[beside.largest(turn) for turn in range(100)]))
    thread.start()
    found["turns"] = [group.share(turn) for turn in range(100)]
    thread.join()
    times = []
    for _ in range(STARTS):
        entered = time.monotonic()
        group.start_together()
        times.append((entered, time.monotonic()))
    together = group.gather(times)
    all_found = group.gather(found)
    if group.rank == 0:
        # No rank may start before the last one has arrived.
        is_together = [
            min(of_rank[turn][1] for of_rank in together) >= max(of_rank[turn][0] for of_rank in together)
            for turn in range(STARTS)
        ]
        print(json.dumps({"ranks": all_found, "is_together": is_together}), flush=True)
    group.leave()


if __name__ == "__main__":
    main()

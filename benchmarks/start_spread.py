"""How simultaneously ranks begin a save: ``python benchmarks/start_spread.py [--ranks 8 64] [--hosts 4]``.

MPI launches the ranks on this host. The ranks synchronize many times, as before each save. After each synchronization
every rank reads the kernel's monotonic clock. The spread of a synchronization is the time from the first rank that
continues to the last rank that continues. The output is the median, the 95th percentile and the maximum of the spreads.

With ``--hosts`` the ranks simulate this number of hosts. The ranks of one host continue at a common time on the clock
of this host. Clocks of different hosts cannot be compared, so each simulated host chooses its own time.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

_TOLD = "spreads: "
_WARM_UP = 3


def be_a_rank(starts: int, ranks: int, hosts: int) -> None:
    """Act as one rank: synchronize with the other ranks ``starts`` times. Rank 0 prints the spreads in seconds."""
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    name = socket.gethostname()
    socket.gethostname = lambda: f"{name}-{rank * hosts // ranks}"
    from pytest_ckpt.ranks.process.activity import Activity  # noqa: PLC0415 - only in ranks
    from pytest_ckpt.ranks.process.mpi_group import MpiGroup  # noqa: PLC0415 - it starts MPI

    group = MpiGroup(Activity())
    moments = []
    for _ in range(starts + _WARM_UP):
        group.start_together()
        moments.append(time.monotonic())
    found = group.gather(moments)
    if rank == 0:
        spreads = [max(of) - min(of) for of in zip(*found, strict=True)]
        print(_TOLD + json.dumps(spreads[_WARM_UP:]), flush=True)
    group.wait()


def measured(ranks: int, hosts: int, starts: int) -> list[float]:
    """Launch the ranks; return the sorted spreads of their synchronizations in seconds."""
    words = [str(Path(sys.executable).parent / "mpiexec"), "-n", str(ranks)]
    words += ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", sys.executable, __file__]
    words += ["--be", f"--ranks={ranks}", f"--hosts={hosts}", f"--starts={starts}"]
    more = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=os.environ | more)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith(_TOLD))
    return sorted(json.loads(line.removeprefix(_TOLD)))


def main() -> None:
    """Measure with each number of ranks; print the median, the 95th percentile and the maximum of the spreads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 8, 64])
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--be", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.be:
        be_a_rank(asked.starts, asked.ranks[0], asked.hosts)
        return
    for ranks in asked.ranks:
        found = measured(ranks, asked.hosts, asked.starts)
        middle, most = statistics.median(found), found[len(found) * 95 // 100]
        print(
            f"{ranks:>4} ranks on {len(os.sched_getaffinity(0))} cores, {asked.hosts} host(s): "
            f"{middle * 1e3:.2f} ms in the median, {most * 1e3:.2f} ms in 95 of 100, {found[-1] * 1e3:.2f} ms at most"
        )


if __name__ == "__main__":
    main()

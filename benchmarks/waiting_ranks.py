"""Influence of waiting ranks on a rank that saves: ``python benchmarks/waiting_ranks.py DIRECTORY [--pairs 15]``.

MPI starts eight ranks. Rank 0 writes and syncs a file repeatedly. The other seven ranks wait for rank 0, as they wait
for the slowest rank of a save. During every second write a signal stops the seven ranks, so that they use no processor
time. All ranks use one core in a first series, and all cores of the machine in a second series.

The output is the median ratio of the two times in each pair (with waiting ranks ÷ with stopped ranks) and its 95 %
interval. The output also contains the number of cores that the seven ranks used. The exit code is 1 if the lower end of
an interval is above 1.05.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

RANKS, MAXIMUM_RATIO = 8, 1.05
_PIECE = bytes(4 << 20)
_TOLD = "pairs: "


def saved(path: Path, size: int) -> float:
    """Overwrite a file with ``size`` bytes and fsync it; return the elapsed seconds."""
    start = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for _ in range(size // len(_PIECE)):
            # Like an engine: the bytes are prepared in memory and then written.
            file.write(bytes(bytearray(_PIECE)))
        os.fsync(file.fileno())
    return time.perf_counter() - start


def taken(pids: list[int]) -> float:
    """Return the CPU seconds that these processes have used so far."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def be_a_rank(directory: Path, pairs: int, size: int, cores: set[int]) -> None:
    """Act as one rank on ``cores``. Rank 0 writes, and prints the values of each pair; the other ranks wait."""
    os.sched_setaffinity(0, cores)
    from pytest_ckpt.ranks.process.activity import Activity  # noqa: PLC0415 - only in ranks
    from pytest_ckpt.ranks.process.mpi_group import MpiGroup  # noqa: PLC0415 - it starts MPI

    group = MpiGroup(Activity())
    pids = group.gather(os.getpid())
    found = []
    if group.rank == 0:
        others = pids[1:]
        for number in range(pairs + 1):
            seconds = {}
            for is_waiting in (number % 2 == 0, number % 2 == 1):
                for pid in others:
                    os.kill(pid, signal.SIGCONT if is_waiting else signal.SIGSTOP)
                time.sleep(0.05)
                before = taken(others)
                seconds[is_waiting] = saved(directory / "saved", size)
                if is_waiting:
                    cores_taken = (taken(others) - before) / seconds[is_waiting]
            if number:  # the first pair warms up
                found.append((seconds[True], seconds[False], cores_taken))
        for pid in others:
            os.kill(pid, signal.SIGCONT)
        print(_TOLD + json.dumps(found), flush=True)
    group.wait()


def measured(directory: Path, pairs: int, size: int, cores: set[int]) -> list[tuple[float, float, float]]:
    """Start the ranks; return the results of all pairs of writes.

    Each result is (seconds with waiting ranks, seconds with stopped ranks, cores used by waiting ranks).
    """
    words = [str(Path(sys.executable).parent / "mpiexec"), "-n", str(RANKS)]
    words += ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", sys.executable, __file__, str(directory)]
    words += [f"--pairs={pairs}", f"--size={size}", "--rank-on", ",".join(map(str, sorted(cores)))]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=os.environ | root)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith(_TOLD))
    return [tuple(pair) for pair in json.loads(line.removeprefix(_TOLD))]


def interval(values: list[float]) -> tuple[float, float, float]:
    """Return (median of ``values``, lower end, upper end) with the ends of its 95 % interval (sign test)."""
    ordered = sorted(values)
    count = len(ordered)
    outer = max(0, int(count / 2 - 0.98 * count**0.5))
    return statistics.median(ordered), ordered[outer], ordered[count - 1 - outer]


def main() -> int:
    """Measure with one core and with all cores, and print the ratios; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--size", type=int, default=1 << 30)
    parser.add_argument("--rank-on", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.rank_on:
        be_a_rank(asked.directory, asked.pairs, asked.size, {int(core) for core in asked.rank_on.split(",")})
        return 0
    is_slow = False
    every = os.sched_getaffinity(0)
    for cores in ({min(every)}, every):
        pairs = measured(asked.directory, asked.pairs, asked.size, cores)
        middle, low, high = interval([waiting / stopped for waiting, stopped, _ in pairs])
        took = statistics.median(cores_taken for _, _, cores_taken in pairs)
        print(
            f"{RANKS} ranks on {len(cores)} core(s): beside seven that wait {middle:.3f} × [{low:.3f}, {high:.3f}] "
            f"the time alone; they took {took:.3f} cores"
        )
        is_slow |= low > MAXIMUM_RATIO
    (asked.directory / "saved").unlink(missing_ok=True)
    return int(is_slow)


if __name__ == "__main__":
    sys.exit(main())

"""Time of complete runs with the profile smoke, and memory of a rank: ``python benchmarks/smoke.py DIRECTORY [runs]``.

The output is the median wall time of the runs, the median seconds of each stage, and a memory value. For each rank, the
bytes that it saves are subtracted from its peak memory. The memory value is the largest result.
"""

from __future__ import annotations

import statistics
import sys

from whole_run import run_pytest


def main() -> None:
    target, runs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    found = [run_pytest(target, profile="smoke") for _ in range(runs)]
    assert all(run.document["exit_code"] == 0 for run in found)
    stages = [run.document["stages"] for run in found]
    memory = [
        rank["peak_memory_bytes"] - state
        for run in found
        for measurement in run.document["measurements"]
        for rank, state in zip(measurement["ranks"], measurement["rank_bytes"], strict=True)
    ]
    print(f"smoke profile, all models, 8 ranks, {runs} runs: median {statistics.median(r.wall for r in found):.1f} s")
    for stage in stages[0]:
        print(f"{stage:>12} {statistics.median(s.get(stage, 0.0) for s in stages):7.2f} s")
    print(f"memory of a rank beside its state: at most {max(memory) / 1e6:.0f} MB")


if __name__ == "__main__":
    main()

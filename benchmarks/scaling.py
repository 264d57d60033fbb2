"""Cost of a run outside its storage, by ranks and by bytes per rank: ``python benchmarks/scaling.py DIRECTORY``.

Every run is a complete pytest command with ranks and a certificate, on layouts of llama3-8b in mode open. The cost
outside the storage is the wall time of the command minus its saves and loads. ``report.json`` divides this cost into
stages. The additional stage ``pytest`` is the time before and after the run.

At each size per rank, a run with N ranks may cost at most N times as much outside the storage as a run with one rank.
``--raw FILE`` records every run as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
from pathlib import Path
from typing import Any

from whole_run import only_measurement, run_pytest

from pytest_ckpt.sizing.models import layout

_MODEL = "llama3-8b"
_RANKS = (1, 2, 4, 8)
_SIZES_MIB = (16, 64, 256, 1024)
_STORAGE = ("saves", "loads")
# The stages in each column of the table; all other stages are added to the column "rest".
_COLUMNS = {
    "start": ("pytest", "preflight", "launch", "import", "prepare"),
    "content": ("content",),
    "verify": ("verify",),
    "wait": ("wait",),
    "drop": ("drop caches", "residency"),
    "remove": ("remove", "clean-up"),
}


def run(asked: argparse.Namespace, ranks: int, size_mib: int) -> dict[str, Any]:
    """Run pytest once; return its wall time, cost outside the storage, seconds of each stage, and memory of a rank."""
    scale = ranks * size_mib * 2**20 / layout(_MODEL, mode="open", processes=ranks).bytes
    done = run_pytest(
        asked.directory,
        model=_MODEL,
        mode="open",
        ranks=ranks,
        scale=f"{scale:.9f}",
        operations=asked.operations,
        gate_table="speed-only",
        engine=asked.engine,
    )
    measurement = only_measurement(done.document)
    stages = dict(done.document["stages"])
    stages["pytest"] = done.wall - done.document["run"]["seconds"]
    return {
        "ranks": ranks,
        "size_mib": size_mib,
        "wall": done.wall,
        "outside": done.wall - sum(stages.get(s, 0.0) for s in _STORAGE),
        "stages": stages,
        "bytes": measurement["bytes"],
        "memory": max(r["peak_memory_bytes"] for r in measurement["ranks"]),
        "load_average": os.getloadavg()[0],
    }


def columns_of(found: dict[str, Any]) -> dict[str, float]:
    """Return {column of the table: seconds} for the result ``found`` of one run."""
    stages = dict(found["stages"])
    for stage in _STORAGE:
        stages.pop(stage, None)
    columns = {name: sum(stages.pop(s, 0.0) for s in of) for name, of in _COLUMNS.items()}
    columns["rest"] = sum(stages.values())
    return columns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", help="on the storage to run on")
    parser.add_argument("--engine", default="stream", choices=("stream", "torch"))
    parser.add_argument("--operations", type=int, default=2, help="saves and loads of each run")
    parser.add_argument("--runs", type=int, default=3, help="the median of as many runs is shown")
    parser.add_argument("--large", action="store_true", help="4 GiB a rank, too")
    parser.add_argument("--raw", metavar="FILE")
    asked = parser.parse_args()
    sizes = (*_SIZES_MIB, 4096) if asked.large else _SIZES_MIB
    raw: list[dict[str, Any]] = []
    print(f"engine {asked.engine}, {asked.operations} saves and loads, median of {asked.runs} runs; seconds of a run")
    names = [*_COLUMNS, "rest"]
    print(f"{'MiB a rank':>10} {'ranks':>5} {'wall':>7} {'outside':>8}" + "".join(f"{n:>9}" for n in names)
          + f"{'x 1 rank':>10} {'MB a rank':>10}")  # fmt: skip
    worst = 0.0
    for size_mib in sizes:
        alone = 0.0
        for ranks in _RANKS:
            needed = ranks * (size_mib << 20) * (asked.operations + 1)
            if needed > shutil.disk_usage(asked.directory).free:
                print(f"{size_mib:10} {ranks:5} left out: it needs {needed / 2**30:.0f} GiB of free space")
                continue
            found = [run(asked, ranks, size_mib) for _ in range(asked.runs)]
            raw += found
            outside = statistics.median(f["outside"] for f in found)
            alone = alone or outside
            if ranks > 1:
                worst = max(worst, outside / alone / ranks)
            of_runs = [columns_of(f) for f in found]
            columns = [statistics.median(c[n] for c in of_runs) for n in names]
            print(f"{size_mib:10} {ranks:5} {statistics.median(f['wall'] for f in found):7.2f} {outside:8.2f}"
                  + "".join(f"{c:9.2f}" for c in columns)
                  + f"{outside / alone:10.2f} {max(f['memory'] for f in found) / 1e6:10.0f}", flush=True)  # fmt: skip
    print(f"largest 'x 1 rank' / ranks, for 2 and more ranks: {worst:.2f} (bound: 1)")
    if asked.raw:
        Path(asked.raw).write_text(json.dumps(raw, indent=1) + "\n")


if __name__ == "__main__":
    main()

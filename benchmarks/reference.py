"""Our engines compared with the reference tool, DLIO: ``python benchmarks/reference.py DIRECTORY``.

Each run has 10 saves and 10 loads of 1.016 GiB. docs/reference_figures.md has the reference tool's values for this
size. The runs use llama3-8b with its 8 ranks, and in mode open with 2 and with 4 ranks. Two values are compared: the
time of a run outside its saves and loads (wall time of the command minus their time), and the memory of a rank. ``--raw
FILE`` records every run as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from pathlib import Path
from typing import Any

from whole_run import only_measurement, run_pytest

from pytest_ckpt.sizing.models import layout

_MODEL = "llama3-8b"
_BYTES = 1.016 * 2**30
_ENGINES = ("stream", "torch")
# Ranks, mode, and values of the reference tool if known: seconds outside saves and loads, bytes of memory of a rank.
_CASES: tuple[tuple[int, str, float | None, float | None], ...] = (
    (2, "open", None, None),
    (4, "open", 23.0, 1280e6),
    (8, "full", 35.0, 1030e6),
)
# The permitted shares of the reference tool's values: of the time outside saves and loads, and of a rank's memory.
_MAXIMUM_OUTSIDE = {"stream": 1 / 6, "torch": 1 / 3}
_MAXIMUM_MEMORY = {"stream": 1 / 10}


def run(asked: argparse.Namespace, engine: str, ranks: int, mode: str) -> dict[str, Any]:
    """Run pytest once; return its times, its CPU seconds per rank, and the peak memory of its largest rank."""
    scale = _BYTES / layout(_MODEL, mode=mode, processes=ranks).bytes
    done = run_pytest(
        asked.directory,
        model=_MODEL,
        mode=mode,
        ranks=ranks,
        scale=f"{scale:.9f}",
        operations=asked.operations,
        gate_table="speed-only",
        engine=engine,
    )
    measurement = only_measurement(done.document)
    seconds = {k: [o["seconds"] for o in measurement["operations"] if o["kind"] == k] for k in ("save", "load")}
    assert all(len(found) == asked.operations for found in seconds.values())
    return {
        "engine": engine,
        "ranks": ranks,
        "bytes": measurement["bytes"],
        "wall": done.wall,
        "outside": done.wall - sum(map(sum, seconds.values())),
        "cpu_a_rank": done.cpu / ranks,
        "memory": max(r["peak_memory_bytes"] for r in measurement["ranks"]),
        "stages": done.document["stages"],
        "seconds": seconds,
        "load_average": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", help="on the storage to run on")
    parser.add_argument("--operations", type=int, default=10)
    parser.add_argument("--runs", type=int, default=3, help="the median of as many runs is shown")
    parser.add_argument("--raw", metavar="FILE")
    asked = parser.parse_args()
    raw: list[dict[str, Any]] = []
    print(f"1.016 GiB a checkpoint, {asked.operations} saves and loads, median of {asked.runs} runs")
    print(f"{'engine':>8} {'ranks':>5} {'wall s':>7} {'outside s':>9} {'bound s':>8} {'save GB/s':>9} {'load GB/s':>9} "
          f"{'MB a rank':>9} {'bound MB':>8} {'CPU s a rank':>12}")  # fmt: skip
    stages = {}
    for engine in _ENGINES:
        for ranks, mode, outside, memory in _CASES:
            found = [run(asked, engine, ranks, mode) for _ in range(asked.runs)]
            raw += found
            middle = {k: statistics.median(f[k] for f in found) for k in ("wall", "outside", "cpu_a_rank")}
            rates = [
                statistics.median(f["bytes"] / s for f in found for s in f["seconds"][kind]) / 1e9
                for kind in ("save", "load")
            ]
            bounds = (bound(outside, _MAXIMUM_OUTSIDE.get(engine)), bound(memory, _MAXIMUM_MEMORY.get(engine), 1e6))
            maximum_memory = max(f["memory"] for f in found) / 1e6
            print(f"{engine:>8} {ranks:5} {middle['wall']:7.1f} {middle['outside']:9.1f} {bounds[0]:>8} "
                  f"{rates[0]:9.2f} {rates[1]:9.2f} {maximum_memory:9.0f} {bounds[1]:>8} "
                  f"{middle['cpu_a_rank']:12.1f}", flush=True)  # fmt: skip
            names = dict.fromkeys(name for f in found for name in f["stages"])
            stages[engine, ranks] = {n: statistics.median(f["stages"].get(n, 0.0) for f in found) for n in names}
    print("\nwhere the time went, s")
    for (engine, ranks), of_run in stages.items():
        spent = ", ".join(f"{name} {seconds:.1f}" for name, seconds in of_run.items() if seconds >= 0.05)
        print(f"{engine:>8} {ranks:5}  {spent}")
    if asked.raw:
        Path(asked.raw).write_text(json.dumps(raw, indent=1) + "\n")


def bound(theirs: float | None, share: float | None, unit: float = 1.0) -> str:
    if theirs is None or share is None:
        return "-"
    return f"{theirs * share / unit:.1f}"


if __name__ == "__main__":
    main()

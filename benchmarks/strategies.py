"""Cost of background saves in our code: ``python benchmarks/strategies.py DIRECTORY [--runs 5] [--scale 1/100]``.

Each run saves with the engine stream, synchronously and asynchronously, with as many ranks as cores. The output is
three medians over all runs:

- steps: twenty training steps are timed after each save, and their median is computed; the value is the spread of
  these medians (at most 2 %)
- copy: the rate of the engine's copy of the state, divided by the rate of numpy.copyto in the same processes (at least
  0.7)
- background: the rate of background writes, divided by the rate of synchronous saves of the same engine (at least 0.9)

Run it on an idle machine. The exit code is 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

MAXIMUM_STEP_SPREAD, MINIMUM_COPY, MINIMUM_BACKGROUND = 0.02, 0.7, 0.9
_COPIES = 15


def copied(scale: str, ranks: int, rank: int) -> float:
    """Copy a rank's state with the engine and with numpy.copyto, in pairs; return the median ratio of the rates.

    If the ratio is above 1, the engine is faster.
    """
    import numpy as np  # noqa: PLC0415 - only in the processes that copy

    from pytest_ckpt.ranks.content import Content  # noqa: PLC0415
    from pytest_ckpt.ranks.engines.factory import engine_maker  # noqa: PLC0415
    from pytest_ckpt.ranks.process.activity import Activity  # noqa: PLC0415
    from pytest_ckpt.ranks.process.job import EngineOptions  # noqa: PLC0415
    from pytest_ckpt.sizing.models import layout  # noqa: PLC0415

    shard = layout("llama3-8b", mode="open", processes=ranks, scale=float(Fraction(scale))).rank(rank)
    make = engine_maker("pytest_ckpt.ranks.engines.stream.engine:make")
    engine: Any = make(
        shard=shard, content=Content(1), group=None, activity=Activity(), options=EngineOptions(stages=True)
    )  # fmt: skip
    engine.fill(1)
    size = engine.stage()
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    pairs = []
    for _ in range(_COPIES):
        start = time.perf_counter()
        engine.stage()
        middle = time.perf_counter()
        np.copyto(target, source)
        pairs.append((time.perf_counter() - middle) / (middle - start))
    return statistics.median(pairs)


def measured(directory: Path, scale: str, ranks: int) -> dict[str, dict[str, Any]]:
    """Perform one run; return {strategy: its measurement}."""
    with tempfile.TemporaryDirectory(dir=directory) as place:
        target = Path(place) / "target"
        target.mkdir()
        command = [
            sys.executable, "-m", "pytest", "-q", "--pyargs", "pytest_ckpt.suites", f"--ckpt-target={target}",
            "--cluster=64", "--ckpt-model=llama3-8b", "--ckpt-mode=open", f"--ckpt-ranks={ranks}",
            f"--ckpt-scale={scale}", "--ckpt-operations=3", "--ckpt-engine=stream", "--ckpt-strategy=sync,async",
            "--ckpt-gate-table=speed-only", "--ckpt-suite=performance,strategies", f"--ckpt-report={place}/report",
        ]  # fmt: skip
        subprocess.run(command, cwd=place, check=True, stdout=subprocess.DEVNULL)
        found = [json.loads(file.read_text()) for file in (Path(place) / "report" / "measurements").iterdir()]
    return {m["subject"].split("/")[2] if m["subject"].count("/") == 2 else "sync": m for m in found}


def figures(by_strategy: dict[str, dict[str, Any]], scale: str, ranks: int) -> dict[str, float]:
    """Measure the copies of the state; return {name: value} of the three values that are printed, for one run."""
    saves = {name: [o for o in m["operations"] if o["kind"] == "save"] for name, m in by_strategy.items()}
    training = by_strategy["async"]["patterns"]["training"]["saves"]
    alone = [statistics.median(s["after_seconds"]) for s in training]
    with ProcessPoolExecutor(ranks) as pool:
        copies = list(pool.map(copied, [scale] * ranks, [ranks] * ranks, range(ranks)))
    background = statistics.median(save["stored_seconds"] - save["staged_seconds"] for save in saves["async"])
    blocking = statistics.median(save["stored_seconds"] for save in saves["sync"])
    return {
        "steps": (max(alone) - min(alone)) / statistics.median(alone),
        "copy": statistics.median(copies),
        "background": blocking / background,
    }


def main() -> int:
    """Perform the runs and print the medians; return the exit code (1: a limit is missed)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--scale", default="1/100")
    arguments = parser.parse_args()
    ranks = os.cpu_count() or 2
    runs = [
        figures(measured(arguments.directory, arguments.scale, ranks), arguments.scale, ranks)
        for _ in range(arguments.runs)
    ]
    middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    is_met = {
        "steps": middle["steps"] <= MAXIMUM_STEP_SPREAD,
        "copy": middle["copy"] >= MINIMUM_COPY,
        "background": middle["background"] >= MINIMUM_BACKGROUND,
    }
    for name, value in middle.items():
        each = ", ".join(f"{run[name]:.3f}" for run in runs)
        print(f"{name}: {value:.3f} ({each}) {'met' if is_met[name] else 'missed'}")
    return 0 if all(is_met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

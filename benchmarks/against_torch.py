"""What the torch engine costs over bare torch.save and fsync: ``python benchmarks/against_torch.py FOLDER``.

The same tensors, by the same number of processes, in pairs that take turns; the slowest process counts. Prints the
ratio engine / bare pair by pair, and keeps the raw seconds in a JSON file with ``--raw FILE``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import time
from pathlib import Path
from typing import Any


def process(rank: int, asked: argparse.Namespace, barrier: Any, results: Any) -> None:
    import torch  # noqa: PLC0415 - in the processes only

    from pytest_ckpt.ranks.activity import Activity  # noqa: PLC0415
    from pytest_ckpt.ranks.content import Content  # noqa: PLC0415
    from pytest_ckpt.ranks.engines import Clock  # noqa: PLC0415
    from pytest_ckpt.ranks.engines.torch_save import TorchEngine  # noqa: PLC0415
    from pytest_ckpt.sizing.models import layout  # noqa: PLC0415

    shards = layout("llama3-8b", mode="open", processes=asked.processes, scale=asked.scale)
    activity = Activity()
    activity.report_every(30.0)
    engine = TorchEngine(shards.rank(rank), Content(1), activity)
    engine.fill(1)

    def bare(folder: Path) -> None:
        for name, state in engine._state.items():
            with (folder / name).open("xb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())

    ways = {"bare": bare, "engine": lambda folder: engine.save(folder, Clock(activity=activity))}
    for pair in range(asked.pairs + 1):
        # Who goes first takes turns, so that a drift of the machine favours neither.
        for way in sorted(ways, reverse=bool(pair % 2)):
            folder = Path(asked.folder) / f"{way}-{rank}"
            folder.mkdir()
            barrier.wait()
            start = time.perf_counter()
            ways[way](folder)
            seconds = time.perf_counter() - start
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
            results.put((pair, way, rank, seconds))
            barrier.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--scale", type=float, default=0.01, help="share of llama3-8b; 0.01 is 1.05 GiB over all")
    parser.add_argument("--raw")
    asked = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(asked.processes), context.Queue()
    workers = [context.Process(target=process, args=(r, asked, barrier, results)) for r in range(asked.processes)]
    for worker in workers:
        worker.start()
    rows = [results.get() for _ in range((asked.pairs + 1) * 2 * asked.processes)]
    for worker in workers:
        worker.join()
    slowest: dict[tuple[int, str], float] = {}
    for pair, way, _, seconds in rows:
        slowest[pair, way] = max(seconds, slowest.get((pair, way), 0.0))
    # The first pair warms up allocator and file system.
    ratios = [slowest[p, "engine"] / slowest[p, "bare"] for p in range(1, asked.pairs + 1)]
    print(f"{asked.processes} processes, {asked.pairs} pairs, slowest process, engine / bare torch.save + fsync")
    for way in ("bare", "engine"):
        found = [slowest[p, way] for p in range(1, asked.pairs + 1)]
        print(f"{way:>8} median {statistics.median(found):.3f} s ({min(found):.3f} to {max(found):.3f})")
    print(f"   ratio median {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    if asked.raw:
        Path(asked.raw).write_text(json.dumps(rows))


if __name__ == "__main__":
    main()

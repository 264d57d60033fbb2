"""Two engines compared with plain torch.save and torch.load: ``python benchmarks/against_torch.py DIRECTORY``.

Plain torch, the engine ``torch`` and the engine ``stream`` save the same tensors with the same number of processes. In
each round all three save or load, one after another. The time of the slowest process counts. Saves end with fsync; the
page cache is dropped before loads. The engine ``stream`` loads in steps and compares after each step. Its time is the
sum over all steps of the time of the slowest process. Comparisons are not timed.

The output for each round is the ratio of seconds, engine / plain torch. If the ratio is below 1, the engine is faster.
``--raw FILE`` records every time as JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from caches import drop_caches

from pytest_ckpt.sizing.models import Layout, layout

_WAYS = ("bare", "torch", "stream")
_KINDS = ("save", "load")


def layout_of(asked: argparse.Namespace) -> Layout:
    return layout("llama3-8b", mode="open", processes=asked.processes, scale=asked.scale)


def process(rank: int, asked: argparse.Namespace, barrier: Any, results: Any) -> None:  # noqa: PLR0915
    import torch  # noqa: PLC0415 - in the processes only

    from pytest_ckpt.ranks.content import Content  # noqa: PLC0415
    from pytest_ckpt.ranks.engines.protocol import Clock  # noqa: PLC0415
    from pytest_ckpt.ranks.engines.stream.engine import StreamEngine  # noqa: PLC0415
    from pytest_ckpt.ranks.engines.torch import TorchEngine  # noqa: PLC0415
    from pytest_ckpt.ranks.process.activity import Activity  # noqa: PLC0415
    from pytest_ckpt.ranks.process.job import EngineOptions  # noqa: PLC0415
    from pytest_ckpt.targets.posix.checkpoint import PosixCommitted, PosixDraft  # noqa: PLC0415
    from pytest_ckpt.targets.posix.direct_io import DirectSupport  # noqa: PLC0415

    shard, activity, content = layout_of(asked).rank(rank), Activity(), Content(1)
    options = EngineOptions()
    classes = {"torch": TorchEngine, "stream": StreamEngine}
    engines: dict[str, Any] = {n: made(shard, content, activity, options) for n, made in classes.items()}
    state: dict[str, dict[str, torch.Tensor]] = {}
    committed: dict[str, PosixCommitted] = {}

    def make_ready(way: str) -> None:
        """Create the state that ``way`` saves; the creation is not timed.

        Plain torch saves the state of the engine ``torch``.
        """
        engines["stream" if way == "stream" else "torch"].fill(1)
        state.update(engines["torch"]._state)

    def bare_save(directory: Path) -> None:
        for name, tensors in state.items():
            with (directory / name).open("xb") as file:
                torch.save(tensors, file)
                file.flush()
                os.fsync(file.fileno())

    def bare_load(directory: Path, _step: int) -> None:
        loaded = {f.name: torch.load(directory / f.name, map_location="cpu", weights_only=True) for f in shard.files}
        assert len(loaded) == len(shard.files)

    def save(way: str, directory: Path) -> None:
        if way == "bare":
            bare_save(directory)
        else:
            clock = Clock(activity=activity)
            engines[way].save(PosixDraft(directory, DirectSupport(), clock, nobody_commits), clock)

    def load(way: str, directory: Path, step: int) -> None:
        if way == "bare":
            bare_load(directory, step)
        else:
            clock = Clock(activity=activity)
            if step == 0:
                committed[way] = PosixCommitted(directory, DirectSupport(), clock)
            engines[way].load(committed[way], step, clock)

    steps = {way: engines[way].load_steps() if way in engines else 1 for way in _WAYS}
    for round_number in range(asked.rounds + 1):
        for way in turns(round_number):
            directory = Path(asked.directory) / f"{way}-{rank}"
            directory.mkdir()
            make_ready(way)
            barrier.wait()
            start = time.perf_counter()
            save(way, directory)
            results.put((round_number, way, "save", 0, rank, time.perf_counter() - start))
            barrier.wait()
            if round_number < asked.rounds:
                shutil.rmtree(directory)
    # Every round loads the last saved checkpoint.
    state.clear()
    for round_number in range(asked.rounds + 1):
        for way in turns(round_number):
            directory = Path(asked.directory) / f"{way}-{rank}"
            engines["torch"].release()
            drop_caches(directory.iterdir())
            if way == "stream":
                engines[way].expect(1)
            for step in range(steps[way]):
                barrier.wait()
                start = time.perf_counter()
                load(way, directory, step)
                results.put((round_number, way, "load", step, rank, time.perf_counter() - start))
                barrier.wait()
                if way in engines:
                    assert not engines[way].verify(1).fault_count
    results.put(None)


def nobody_commits(_entries: object) -> Any:
    raise AssertionError("a benchmark commits nothing")


def turns(round_number: int) -> tuple[str, ...]:
    """Return plain torch and the two engines in their order in this round.

    Each of the three is first in every third round, so that a drift of the machine favors none of them.
    """
    first = round_number % len(_WAYS)
    return _WAYS[first:] + _WAYS[:first]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", help="on the storage to run on")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--scale", type=float, default=0.01, help="share of llama3-8b; 0.01 is 1.05 GiB over all")
    parser.add_argument("--raw", metavar="FILE")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.directory) as directory:
        asked.directory = directory
        rows = measure(asked)
    size = layout_of(asked).bytes
    seconds: dict[tuple[int, str, str], float] = {}
    steps: dict[tuple[int, str, str, int], float] = {}
    for round_number, way, kind, step, _, spent in rows:
        key = (round_number, way, kind, step)
        steps[key] = max(spent, steps.get(key, 0.0))
    for (round_number, way, kind, _), spent in steps.items():
        seconds[round_number, way, kind] = seconds.get((round_number, way, kind), 0.0) + spent
    # The first round warms up allocator and file system.
    counted = range(1, asked.rounds + 1)
    print(f"{asked.processes} processes, {size / 2**30:.2f} GiB, {asked.rounds} rounds, slowest process")
    heads = ("median s", "lowest", "highest", "GB/s", "/ bare", "lowest", "highest")
    print("      {:>6} {:>8} {:>8} {:>8} {:>6} {:>7} {:>7} {:>8}".format("way", *heads))
    for kind in _KINDS:
        for way in _WAYS:
            found = [seconds[n, way, kind] for n in counted]
            ratios = [seconds[n, way, kind] / seconds[n, "bare", kind] for n in counted]
            middle = statistics.median(found)
            print(f"{kind:>5} {way:>6} {middle:8.3f} {min(found):8.3f} {max(found):8.3f} {size / middle / 1e9:6.2f} "
                  f"{statistics.median(ratios):7.3f} {min(ratios):7.3f} {max(ratios):8.3f}")  # fmt: skip
    if asked.raw:
        Path(asked.raw).write_text(json.dumps(rows) + "\n")


def measure(asked: argparse.Namespace) -> list[tuple[int, str, str, int, int, float]]:
    """Return (round, way, kind, step, rank, seconds) of each timed save and load.

    A way is bare (plain torch), torch or stream. A kind is save or load.
    """
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(asked.processes), context.Queue()
    workers = [context.Process(target=process, args=(r, asked, barrier, results)) for r in range(asked.processes)]
    for worker in workers:
        worker.start()
    rows = []
    ended = 0
    while ended < asked.processes:
        row = results.get()
        ended += row is None
        rows += [row] if row else []
    for worker in workers:
        worker.join()
    return rows


if __name__ == "__main__":
    main()

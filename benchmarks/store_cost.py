"""Cost of the code between engine and file, in two versions: ``python benchmarks/store_cost.py BEFORE NOW``.

BEFORE and NOW are two checkouts of pytest-ckpt; append ``:PYTHON`` to run a checkout with another Python. In each pair,
one process of each checkout saves and loads the files of one rank several times. The two checkouts alternate in running
first. If the engine permits, the time to generate and compare content is excluded. The output for each engine is the
ratio now ÷ before over all pairs:

- user and system CPU seconds of all threads; the median must not exceed 1.02
- wall time; the lower end of the 95 % interval of its geometric mean must not exceed 1.02

The exit code is 1 if a ratio exceeds its limit. ``--directory`` should be on tmpfs, where no device hides the cost of
the code.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MAXIMUM = 1.02
# The 97.5 % quantiles of Student's distribution for 1 to 15 degrees of freedom. For more, the last one is used, which
# makes the interval slightly wider.
_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)


def child(engine_name: str, directory: Path, rounds: int) -> None:
    """Save and load in each round; print the bytes, CPU seconds and wall seconds of each save and load as JSON.

    An additional first round is a warm-up and is not printed.
    """
    from pytest_ckpt.sizing.models import layout  # noqa: PLC0415 - from the measured checkout

    shard = layout("llama3-8b", mode="open", processes=2, scale=1 / 300).rank(0)
    engine, save, load = engine_of(engine_name, shard)
    found: dict[str, list[tuple[float, float]]] = {"save": [], "load": []}
    for number in range(1, rounds + 2):
        place = directory / f"round-{number}"
        place.mkdir()
        engine.fill(number)
        spent = measured(lambda place=place: save(place))
        read = [0.0, 0.0]
        if hasattr(engine, "expect"):
            engine.expect(number)
        for step in range(engine.load_steps()):
            took = measured(lambda place=place, step=step: load(place, step))
            read = [a + b for a, b in zip(read, took, strict=True)]
            assert not engine.verify(number).fault_count
        engine.release()
        shutil.rmtree(place)
        if number > 1:
            found["save"].append(spent)
            found["load"].append((read[0], read[1]))
    print(json.dumps({"bytes": shard.bytes, **found}))


def measured(act: Any) -> tuple[float, float]:
    """Call ``act``; return its CPU seconds (all threads) and its wall seconds."""
    cpu, start = time.process_time(), time.perf_counter()
    act()
    return time.process_time() - cpu, time.perf_counter() - start


def engine_of(engine_name: str, shard: Any) -> tuple[Any, Any, Any]:
    """Return (engine, function that saves to a directory, function that performs one load step)."""
    from pytest_ckpt.facts.proofs import CommitProof  # noqa: PLC0415
    from pytest_ckpt.ranks.content import Content  # noqa: PLC0415
    from pytest_ckpt.ranks.engines.protocol import Clock  # noqa: PLC0415
    from pytest_ckpt.ranks.process.activity import Activity  # noqa: PLC0415
    from pytest_ckpt.ranks.process.job import EngineOptions  # noqa: PLC0415
    from pytest_ckpt.targets.posix.checkpoint import PosixCommitted, PosixDraft  # noqa: PLC0415
    from pytest_ckpt.targets.posix.direct_io import DirectSupport  # noqa: PLC0415

    if engine_name == "torch":
        from pytest_ckpt.ranks.engines.torch import TorchEngine as Engine  # noqa: PLC0415
    else:
        from pytest_ckpt.ranks.engines.stream.engine import StreamEngine as Engine  # noqa: PLC0415
    activity, way = Activity(), DirectSupport()
    engine = Engine(shard, Content(1), activity, EngineOptions())
    committed: dict[Path, PosixCommitted] = {}

    def save(directory: Path) -> None:
        clock = Clock(activity=activity)
        draft = PosixDraft(directory, way, clock, lambda _: CommitProof(method="rename"))
        engine.save(draft, clock)
        draft.seal()

    def load(directory: Path, step: int) -> None:
        clock = Clock(activity=activity)
        engine.load(committed.setdefault(directory, PosixCommitted(directory, way, clock)), step, clock)

    return engine, save, load


def run(checkout: str, engine: str, directory: Path, rounds: int) -> dict[str, Any]:
    place, _, python = checkout.partition(":")
    home = str(Path(place).resolve())
    with tempfile.TemporaryDirectory(dir=directory) as target:
        code = f"import sys; sys.path.insert(0, {home!r}); sys.argv[0] = {__file__!r}; " \
               f"exec(compile(open({__file__!r}).read(), {__file__!r}, 'exec'))"  # fmt: skip
        words = [python or sys.executable, "-c", code, "--child", engine, target, str(rounds)]
        environment = {**os.environ, "PYTHONPATH": home, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{checkout}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Return (geometric mean of ratios, lower end, upper end) with the ends of its 95 % interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    quantile = _QUANTILES[min(len(logs) - 1, len(_QUANTILES)) - 1]
    half = quantile * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("now")
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--engine", default="torch,stream")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    fails = False
    for engine in asked.engine.split(","):
        ratios: dict[tuple[str, str], list[float]] = {}
        spent: dict[str, list[float]] = {"before": [], "now": []}
        for pair in range(asked.pairs):
            sides = [("before", asked.before), ("now", asked.now)]
            found = {n: run(c, engine, asked.directory, asked.rounds) for n, c in (sides if pair % 2 else sides[::-1])}
            for kind in ("save", "load"):
                for at, what in enumerate(("cpu", "wall")):
                    of = {name: statistics.median(r[at] for r in found[name][kind]) for name, _ in sides}
                    ratios.setdefault((kind, what), []).append(of["now"] / of["before"])
            for name, _ in sides:
                cpu = sum(statistics.median(r[0] for r in found[name][kind]) for kind in ("save", "load"))
                spent[name].append(cpu / (2 * found[name]["bytes"] / (1 << 30)))
        together = [b / a for a, b in zip(spent["before"], spent["now"], strict=True)]
        median = statistics.median(together)
        fails |= median > MAXIMUM
        print(f"{engine}: CPU now ÷ before, {asked.pairs} pairs: median {median:.4f} ({min(together):.3f} to "
              f"{max(together):.3f}); {statistics.median(spent['now']):.3f} s a GiB now", flush=True)  # fmt: skip
        for (kind, what), of in ratios.items():
            mean, low, high = interval(of)
            print(f"  {kind} {what}: median {statistics.median(of):.4f}, mean {mean:.4f} ({low:.4f} to {high:.4f})")
            fails |= what == "wall" and low > MAXIMUM
    sys.exit(fails)


if __name__ == "__main__":
    main()

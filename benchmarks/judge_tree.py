"""Time to evaluate a tree of published results: ``python benchmarks/judge_tree.py [DIRECTORY] [--raw FILE]``.

The results are invented, but have the format of published results. The tree contains ``--runs`` runs of ``--ranks``
ranks, with one file per rank for 10 saves and 10 loads. A separate process, ``pytest-ckpt judge``, reads the files from
the page cache and evaluates them.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path

_OPERATIONS = 10
_PAUSE = 5.0
_BYTES = {8: 112_425_623_552, 64: 978_406_572_032, 512: 5_682_508_791_808, 1024: 16_564_174_094_592}
_MAXIMUM_SECONDS = 60.0


def write_run(directory: Path, ranks: int, began: datetime, chance: random.Random) -> None:
    """Write the result files of one invented run, in which the times of the ranks differ.

    Each operation begins after a pause. The pause begins when the slowest rank has finished the previous operation.
    """
    directory.mkdir(parents=True)
    epochs: list[dict[str, object]] = [{"start": began.isoformat(timespec="microseconds")} for _ in range(ranks)]
    at = 0.0
    for kind in ("save", "load"):
        for number in range(1, _OPERATIONS + 1):
            at += _PAUSE
            slowest = 0.0
            for epoch in epochs:
                start, took = at + chance.random() / 2000, round(chance.uniform(15, 20), 6)
                slowest = max(slowest, start + took)
                moment = began + timedelta(seconds=round(start, 6))
                epoch[f"{kind}_ckpt{number}"] = {
                    "start": moment.isoformat(timespec="microseconds"),
                    "end": (moment + timedelta(seconds=took)).isoformat(timespec="microseconds"),
                    "duration": took,
                    "throughput": _BYTES[ranks] / 2**30 / took,
                }
            at = slowest
    for rank, epoch in enumerate(epochs):
        (directory / f"{rank}_per_epoch_stats.json").write_text(json.dumps({"1": epoch}, indent=4))
    summary = {
        "num_accelerators": ranks,
        "num_hosts": ranks // 8,
        "metric": {"checkpoint_size_GB": _BYTES[ranks] / 2**30},
    }
    (directory / "summary.json").write_text(json.dumps(summary))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "directory", nargs="?", help="where the tree is made, and removed again; a temporary one by default"
    )
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=1024, choices=sorted(_BYTES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--raw", metavar="FILE", help="keep every figure as JSON")
    asked = parser.parse_args()
    chance = random.Random(1)
    model = {8: "llama3-8b", 64: "llama3-70b", 512: "llama3-405b", 1024: "llama3-1t"}[asked.ranks]
    seconds = []
    with tempfile.TemporaryDirectory(prefix="judge-tree-", dir=asked.directory) as home:
        for number in range(asked.runs):
            place = Path(
                home, "closed", f"vendor-{number:03}", "results", "array", "checkpointing", model, "20260301_120000"
            )
            write_run(place, asked.ranks, datetime(2026, 3, 1) + timedelta(hours=number), chance)
        command = [sys.executable, "-m", "pytest_ckpt.cli.main", "judge", home, "--cluster=16000", "--json"]
        for _ in range(asked.rounds):
            began = time.monotonic()
            done = subprocess.run(command, capture_output=True, check=False)
            seconds.append(time.monotonic() - began)
            rows = json.loads(done.stdout)["results"] if asked.runs > 1 else [None]
            assert len(rows) == asked.runs, done.stderr.decode()
    files = asked.runs * asked.ranks
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak, busy = used.ru_maxrss / 1024, (used.ru_utime + used.ru_stime) / asked.rounds
    middle = statistics.median(seconds)
    print(f"{asked.runs} runs of {asked.ranks:,} ranks, {files:,} files, {asked.rounds} rounds")
    print(f"{'median':>10} {middle:8.1f} s (bound: {_MAXIMUM_SECONDS:.0f} s for 100 runs of 1,024)")
    print(f"{'lowest':>10} {min(seconds):8.1f} s")
    print(f"{'highest':>10} {max(seconds):8.1f} s")
    print(f"{'busy':>10} {busy:8.1f} s of one core (mean), the time without other load")
    print(f"{'a file':>10} {busy / files * 1e3:8.3f} ms of one core")
    print(f"{'memory':>10} {peak:8.0f} MiB at most")
    if asked.raw:
        raw = {
            "runs": asked.runs,
            "ranks": asked.ranks,
            "seconds": seconds,
            "busy_seconds": busy,
            "peak_mebibytes": peak,
        }
        Path(asked.raw).write_text(json.dumps(raw) + "\n")


if __name__ == "__main__":
    main()

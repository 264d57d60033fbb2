"""CPU time of commands that use no storage: ``python benchmarks/questions.py [--rounds N]``.

The commands are ``size`` for four models and five clusters, and ``simulate`` for 1,000 runs of 30 days on five
clusters. ``simulate`` uses the report of a simulated run. The output is the median of the CPU seconds (user and system)
of complete processes, including the start of Python.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.synthetic_run import write_run

CLUSTERS = "1000,4000,16000,64000,100000"


def cpu_seconds(*words: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    """Run the commands, and print one line with the CPU seconds of each command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as home:
        directory = Path(home, "run")
        write_run(directory, save=20.0, load=60.0)
        ours = ("-m", "pytest_ckpt.cli.main")
        questions = {
            "python alone": ("-c", "pass"),
            "size, 4 models x 5 clusters": (*ours, "size", "--model=all", f"--cluster={CLUSTERS}"),
            "simulate, 1,000 runs of 30 days x 5 clusters": (
                *ours,
                "simulate",
                str(directory),
                f"--cluster={CLUSTERS}",
            ),
        }
        for name, words in questions.items():
            took = [cpu_seconds(*words) for _ in range(rounds)]
            print(f"{name}: median {statistics.median(took):.2f} s of CPU, {min(took):.2f} to {max(took):.2f}")


if __name__ == "__main__":
    main()

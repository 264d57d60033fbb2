"""Cost of reporting a save in a real run: ``python benchmarks/report_cost.py DIRECTORY [--ranks 16] [--saves 20]``.

A pytest run saves to a directory with real ranks. During each save the controller and rank 0 record CPU time:

- controller: all CPU time from the start of the save until its times are recorded
- rank 0: only CPU time of its main thread, in two steps. In the first step, all ranks start together. In the second
  step, after the save, rank 0 gathers, combines and reports the results of all ranks.

The output for each of the two processes is its median CPU time over all saves, in milliseconds and as a share of a
save's time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parent.parent
_FILE = "CKPT_TELLING"
# The content of sitecustomize.py, which Python runs first in every process of the run.
_NOTING = f"""
import json, os, sys, time

def note(who, began, seconds, save):
    with open(os.environ[{_FILE!r}], "a") as file:
        file.write(json.dumps([who, time.process_time() - began if who == "controller" else seconds, save]) + "\\n")

if "pytest_ckpt.ranks" in sys.orig_argv:
    from pytest_ckpt.ranks.operations import Operations
    spent = [0.0]
    def timed(name):
        method = getattr(Operations, name)
        def of_rank(self, *words, **named):
            began = time.thread_time()
            found = method(self, *words, **named)
            spent[0] += time.thread_time() - began
            if name == "_finish":
                if found and found.kind == "save" and named.get("counted"):
                    note("rank 0", 0.0, spent[0], found.seconds)
                spent[0] = 0.0
            return found
        setattr(Operations, name, of_rank)
    timed("_start")
    timed("_finish")
elif "pytest" in sys.orig_argv:
    from pytest_ckpt.launching.recorder import Recorder
    take, began = Recorder.take, [0.0]
    def noted(self, event):
        if type(event).__name__ == "OperationStarted":
            began[0] = time.process_time()
        take(self, event)
        if type(event).__name__ == "OperationDone" and event.operation.kind == "save":
            note("controller", began[0], 0.0, event.operation.seconds)
    Recorder.take = noted
"""


def main() -> None:
    """Run pytest, and print the CPU time of the controller and of rank 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--saves", type=int, default=20)
    parser.add_argument("--scale", default="1/1000")
    asked = parser.parse_args()
    asked.directory.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "sitecustomize.py").write_text(_NOTING)
        noted = home / "noted"
        words = (
            f"--ckpt-target={asked.directory.resolve()}", "--cluster=8", "--ckpt-model=llama3-8b", "--ckpt-mode=open",
            "--ckpt-profile=smoke", "--ckpt-engine=stream", "--ckpt-gate-table=speed-only", "--ckpt-keep-last=1",
            f"--ckpt-ranks={asked.ranks}", f"--ckpt-operations={asked.saves}", f"--ckpt-scale={asked.scale}",
        )  # fmt: skip
        environment = os.environ | {"PYTHONPATH": f"{home}:{_CHECKOUT}", _FILE: str(noted)}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words],
            cwd=home,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if not noted.exists():
            sys.exit(done.stdout + done.stderr)
        found = [json.loads(line) for line in noted.read_text().splitlines()]
    saves = [save for who, _, save in found if who == "rank 0"]
    print(f"{asked.ranks} ranks, {len(saves)} saves of {statistics.median(saves):.2f} s in the median")
    for who in ("controller", "rank 0"):
        seconds = [spent for by, spent, _ in found if by == who]
        shares = [spent / save for by, spent, save in found if by == who]
        print(
            f"{who:>12}: {statistics.median(seconds) * 1e3:.1f} ms of CPU a save (at most {max(seconds) * 1e3:.1f}), "
            f"{statistics.median(shares):.2%} of its time (at most {max(shares):.2%})"
        )


if __name__ == "__main__":
    main()

"""From command to certificate: ``python benchmarks/smoke.py FOLDER [runs]``; where the time went, memory of a rank."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    target, runs = Path(sys.argv[1]).absolute(), int(sys.argv[2]) if len(sys.argv) > 2 else 3
    whole, stages, memory = [], [], []
    for _ in range(runs):
        folder = Path(tempfile.mkdtemp())
        report = folder / "report"
        words = [f"--ckpt-target={target}", "--cluster=64", "--ckpt-profile=smoke", f"--ckpt-report={report}"]
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "pytest", *words], cwd=folder, check=True, capture_output=True)
        whole.append(time.perf_counter() - start)
        document = json.loads((report / "report.json").read_text())
        stages.append(document["stages"])
        for measurement in document["measurements"]:
            pairs = zip(measurement["ranks"], measurement["rank_bytes"], strict=True)
            memory += [rank["peak_memory_bytes"] - state for rank, state in pairs]
        shutil.rmtree(folder)
    print(f"smoke profile, all models, 8 ranks, {runs} runs: median {statistics.median(whole):.1f} s")
    for stage in stages[0]:
        print(f"{stage:>12} {statistics.median(s.get(stage, 0.0) for s in stages):7.2f} s")
    print(f"memory of a rank beside its state: at most {max(memory) / 1e6:.0f} MB")


if __name__ == "__main__":
    main()

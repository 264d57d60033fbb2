"""What the plugin costs a pytest run that has nothing to do with it: ``python benchmarks/plugin_cost.py [pairs]``."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 25
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
        base = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        ways = {"with": base, "without": [*base, "-p", "no:pytest_ckpt.plugin.session_hooks"]}
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for pair in range(pairs + 1):
            for way in sorted(ways, reverse=bool(pair % 2)):
                start = time.perf_counter()
                subprocess.run(ways[way], cwd=folder, check=True, capture_output=True)
                if pair:
                    seconds[way].append(time.perf_counter() - start)
    differences = [a - b for a, b in zip(seconds["with"], seconds["without"], strict=True)]
    for way, found in seconds.items():
        print(f"{way:>8} the plugin: median {statistics.median(found) * 1000:.0f} ms")
    print(f"difference, pair by pair: median {statistics.median(differences) * 1000:.1f} ms")


if __name__ == "__main__":
    main()

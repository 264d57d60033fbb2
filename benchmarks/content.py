"""Rates at which one core generates and compares content: ``python benchmarks/content.py [MiB] [rounds]``."""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np

from pytest_ckpt.ranks.content import Content, TensorKey


def main() -> None:
    size = int(sys.argv[1] if len(sys.argv) > 1 else 512) << 20
    rounds = int(sys.argv[2] if len(sys.argv) > 2 else 9)
    content = Content(1)
    data = np.zeros(size, dtype=np.uint8)
    rates: dict[str, list[float]] = {"make": [], "verify": []}
    for checkpoint in range(1, rounds + 1):
        place = TensorKey(checkpoint=checkpoint, rank=0, tensor=0)
        start = time.perf_counter()
        content.fill(data, place)
        made = time.perf_counter()
        assert not content.differing_pages(data, place)
        rates["make"].append(size / (made - start) / 1e9)
        rates["verify"].append(size / (time.perf_counter() - made) / 1e9)
    print(f"{size >> 20} MiB, {rounds} rounds, GB/s on one core: median (lowest to highest)")
    for name, found in rates.items():
        print(f"{name:>8} {statistics.median(found):6.2f} ({min(found):.2f} to {max(found):.2f})")


if __name__ == "__main__":
    main()

"""Processor time of engine ``stream`` for a GB saved and loaded: ``python benchmarks/processor_time.py DIRECTORY``.

Each round runs the command at two sizes in turn. The difference of their processor time, all processes together, is
divided by the difference of their bytes, so starts, checks and reports are left out. Beside it: the time to make and to
compare the content alone, on one core, which any test that verifies every byte pays.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
from whole_run import only_measurement, run_pytest

from pytest_ckpt.ranks.content import Content, TensorKey

_SCALES = (0.004, 0.024)
# The depth is set: a ramp would write more bytes at the larger size.
_OPTIONS = {"engine": "stream:depth=2", "model": "llama3-8b", "suite": "performance", "profile": "smoke"}


def _gigabytes(document: dict[str, Any]) -> float:
    """GB that a run saved; it loads as many."""
    operations = only_measurement(document)["operations"]
    return float(sum(operation["bytes"] for operation in operations if operation["kind"] == "save")) / 1e9


def _content_seconds(megabytes: int = 64, times: int = 8) -> float:
    """Return the seconds in which one core makes and compares a GB, in requests as large as those of the engine."""
    content, data = Content(1), np.zeros(megabytes << 20, dtype=np.uint8)
    start = time.process_time()
    for checkpoint in range(1, times + 1):
        place = TensorKey(checkpoint=checkpoint, rank=0, tensor=0)
        for offset in range(0, len(data), 1 << 20):
            content.fill(data[offset : offset + (1 << 20)], place, offset)
        for offset in range(0, len(data), 1 << 20):
            assert not content.differing_pages(data[offset : offset + (1 << 20)], place, offset)
    return (time.process_time() - start) / (len(data) * times / 1e9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    found, content = [], []
    for number in range(arguments.rounds):
        runs = [run_pytest(arguments.directory, scale=scale, **_OPTIONS) for scale in _SCALES]
        small, large = (_gigabytes(run.document) for run in runs)
        found.append((runs[1].cpu - runs[0].cpu) / (large - small))
        content.append(_content_seconds())
        print(f"round {number + 1}: {found[-1]:.3f} core-seconds a GB, content alone {content[-1]:.3f}", flush=True)
    print(f"median {statistics.median(found):.3f}, content alone {statistics.median(content):.3f}")


if __name__ == "__main__":
    main()

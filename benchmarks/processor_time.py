"""Processor time of engine ``stream`` per GB saved and loaded: ``python benchmarks/processor_time.py DIRECTORY``.

Each round saves and loads a checkpoint of one rank. It then generates and compares the same kind of content on one
core, without storage: any test that verifies every byte has this cost. The processor time is the sum over all threads,
user and kernel, from the generation of content to the result of the comparison. It excludes the start of processes and
the drop of the page cache.

With ``--whole`` each round also runs the complete command with checkpoints of two sizes. The difference of the two
processor times, over all processes, is divided by the difference of the bytes. On a busy machine, the processor time
for the start of a run varies from run to run. This variation is as large as the measured difference. Only the median of
many such rounds is therefore meaningful.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from store_cost import engine_of
from whole_run import only_measurement, run_pytest

from pytest_ckpt.ranks.content import Content, TensorKey
from pytest_ckpt.ranks.engines.stream.buffers import Buffers
from pytest_ckpt.ranks.process.job import EngineOptions
from pytest_ckpt.sizing.models import layout
from pytest_ckpt.sizing.stream_buffers import USUAL_BUFFERS_BYTES

_SCALE = 0.02
_SCALES = (0.004, 0.024)
# A fixed depth prevents the ramp, which would write more bytes at the larger size.
_OPTIONS = {"engine": "stream:depth=2", "model": "llama3-8b", "suite": "performance", "profile": "smoke"}


class Rank:
    """Saves and loads the files of one of the eight ranks of ``llama3-8b``, in this process."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        shard = layout("llama3-8b", mode="open", processes=8, scale=_SCALE).rank(1)
        self.gigabytes = shard.bytes / 1e9
        self._engine, self._save, self._load = engine_of("stream", shard)

    def round(self, checkpoint: int) -> tuple[float, float]:
        """Save and load a checkpoint; return the core-seconds per GB of the save and of the load."""
        engine, place = self._engine, Path(tempfile.mkdtemp(dir=self._directory))
        start = time.process_time()
        engine.fill(checkpoint)
        self._save(place)
        saved = time.process_time()
        engine.expect(checkpoint)
        for step in range(engine.load_steps()):
            self._load(place, step)
        assert not engine.verify(checkpoint).fault_count
        loaded = time.process_time()
        shutil.rmtree(place)
        return (saved - start) / self.gigabytes, (loaded - saved) / self.gigabytes


class ContentAlone:
    """Generates and compares content with the engine's request size and buffers, without storage."""

    def __init__(self) -> None:
        self._request_bytes = EngineOptions().request_bytes
        self._buffers = Buffers(USUAL_BUFFERS_BYTES // self._request_bytes, self._request_bytes).slots
        self._content = Content(1)

    def round(self, checkpoint: int, requests: int = 64) -> float:
        """Generate and compare content; return the total core-seconds per GB."""
        place, size = TensorKey(checkpoint=checkpoint, rank=0, tensor=0), self._request_bytes
        start = time.process_time()
        for first in range(0, requests, len(self._buffers)):
            for number, data in enumerate(self._buffers, first):
                self._content.fill(data, place, number * size)
            for number, data in enumerate(self._buffers, first):
                assert not self._content.differing_pages(data, place, number * size)
        return (time.process_time() - start) / (requests * size / 1e9)


def _whole_run(directory: str) -> float:
    runs = [run_pytest(directory, scale=scale, **_OPTIONS) for scale in _SCALES]
    small, large = (_gigabytes(run.document) for run in runs)
    return (runs[1].cpu - runs[0].cpu) / (large - small)


def _gigabytes(document: dict[str, Any]) -> float:
    """Return the GB that a run saved. The run loaded the same number of GB."""
    operations = only_measurement(document)["operations"]
    return float(sum(operation["bytes"] for operation in operations if operation["kind"] == "save")) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--whole", action="store_true")
    arguments = parser.parse_args()
    rank, content = Rank(arguments.directory), ContentAlone()
    found: dict[str, list[float]] = {}
    # The first round warms up.
    for checkpoint in range(1, arguments.rounds + 2):
        save, load = rank.round(checkpoint)
        values = {"save": save, "load": load, "save and load": save + load, "content alone": content.round(checkpoint)}
        if checkpoint > 1:
            if arguments.whole:
                values["whole run"] = _whole_run(arguments.directory)
            for name, value in values.items():
                found.setdefault(name, []).append(value)
    print(f"core-seconds per GB, {arguments.rounds} rounds of {rank.gigabytes:.2f} GB: median (lowest to highest)")
    for name, of in found.items():
        print(f"{name:>14} {statistics.median(of):.3f} ({min(of):.3f} to {max(of):.3f})")


if __name__ == "__main__":
    main()

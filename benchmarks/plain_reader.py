"""Loads of the engine ``stream`` compared with a plain reader: ``python benchmarks/plain_reader.py``.

The target is simulated: a read waits for a log-normal time, 40 ms in the median, and then copies bytes from memory. The
wait depends only on rank and offset, so both readers wait equally long for each part of a file. No file system and no
network add to this time.

Each process is a rank with one file. The engine compares all bytes that it reads. The plain reader keeps the same
number of reads in flight, one thread for each, and discards the bytes. The two readers run in alternating pairs. All
ranks start at the same time; the time of the slowest rank counts.

The output is the time of the engine divided by the time of the plain reader. The goal is at most 1.03.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import random
import statistics
import threading
import time
from typing import Any

import numpy as np
from against_fio import shard_of

from pytest_ckpt.ranks.content import Content
from pytest_ckpt.ranks.engines.protocol import Clock
from pytest_ckpt.ranks.engines.stream.engine import StreamEngine
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.process.job import EngineOptions

_READERS = ("plain", "stream")
_BLOCK_BYTES = 4096


class ModelFile:
    """A rank's file in memory. The same object is used as draft, sink, committed checkpoint and source."""

    io_mode = "a model"
    part_bytes = 0
    alignment = _BLOCK_BYTES

    def __init__(self, rank: int, median_seconds: float, sigma: float) -> None:
        self._rank, self._median_seconds, self._sigma = rank, median_seconds, sigma
        self._content = np.empty(0, np.uint8)
        self.size = 0

    def create(self, name: str, size: int) -> ModelFile:
        del name
        self.size = size
        self._content = np.zeros(-(-size // _BLOCK_BYTES) * _BLOCK_BYTES, np.uint8)
        return self

    def write_at(self, offset: int, data: Any) -> None:
        self._content[offset : offset + len(data)] = data

    def source(self, name: str) -> ModelFile:
        del name
        return self

    def read_into(self, offset: int, buffer: Any) -> int:
        factor = random.Random(f"{self._rank}:{offset}").lognormvariate(0, self._sigma)
        time.sleep(self._median_seconds * factor)
        count = min(len(buffer), self.size - offset)
        buffer[:count] = self._content[offset : offset + count]
        return count

    def finish(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass


def as_rank(rank: int, arguments: argparse.Namespace, barrier: Any, times: Any) -> None:
    """Act as one rank: save once, then load with both readers in turn.

    Put (pair, reader, seconds) of each load into the queue ``times``.
    """
    request_bytes = arguments.request_kib << 10
    shard = shard_of(rank, 1, (arguments.file_mib << 20) // 4)
    activity = Activity()
    engine = StreamEngine(
        shard, Content(1), activity, EngineOptions(request_bytes=request_bytes, depth=arguments.depth)
    )
    file = ModelFile(rank, arguments.seconds, arguments.sigma)
    engine.fill(1)
    engine.save(file, Clock(activity=activity))
    # Pair 0 is a warm-up. Each reader is first in every second pair, so that a drift favors neither.
    for pair in range(arguments.pairs + 1):
        for reader in sorted(_READERS, reverse=bool(pair % 2)):
            engine.expect(1)
            clock = Clock(activity=activity)
            barrier.wait()
            begin = time.perf_counter()
            if reader == "stream":
                engine.load(file, 0, clock)
            else:
                read_plainly(file, request_bytes, arguments.depth)
            seconds = time.perf_counter() - begin - clock.left_out_seconds
            if reader == "stream":
                found = engine.verify(1)
                assert not found.fault_count, found
            times.put((pair, reader, seconds))


def read_plainly(file: ModelFile, request_bytes: int, depth: int) -> None:
    """Read a file in order, with ``depth`` threads."""
    offsets = itertools.count(0, request_bytes)

    def read() -> None:
        buffer = np.empty(request_bytes, np.uint8)
        while (offset := next(offsets)) < file.size:
            file.read_into(offset, buffer)

    threads = [threading.Thread(target=read) for _ in range(depth)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--file-mib", type=int, default=192, help="MiB of the file of each rank")
    parser.add_argument("--request-kib", type=int, default=4096, help="KiB of each request")
    parser.add_argument("--depth", type=int, default=2, help="requests in flight of each rank")
    parser.add_argument("--seconds", type=float, default=0.04, help="median of the time of a read")
    parser.add_argument("--sigma", type=float, default=0.5, help="standard deviation of the logarithm of that time")
    parser.add_argument("--pairs", type=int, default=7)
    arguments = parser.parse_args()
    barrier, times = multiprocessing.Barrier(arguments.ranks), multiprocessing.Queue()
    ranks = [
        multiprocessing.Process(target=as_rank, args=(rank, arguments, barrier, times), daemon=True)
        for rank in range(arguments.ranks)
    ]
    for process in ranks:
        process.start()
    slowest: dict[tuple[int, str], float] = {}
    for _ in range(len(ranks) * len(_READERS) * (arguments.pairs + 1)):
        pair, reader, seconds = times.get()
        slowest[pair, reader] = max(seconds, slowest.get((pair, reader), 0.0))
    print("pair  plain s  stream s  stream / plain")
    ratios = []
    for pair in range(1, arguments.pairs + 1):
        plain, stream = (slowest[pair, reader] for reader in _READERS)
        ratios.append(stream / plain)
        print(f"{pair:4}  {plain:7.3f}  {stream:8.3f}  {ratios[-1]:14.3f}")
    print(f"median{statistics.median(ratios):>33.3f}")


if __name__ == "__main__":
    main()

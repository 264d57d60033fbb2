"""Loads of the engine ``stream`` compared with a plain reader: ``python benchmarks/plain_reader.py DIRECTORY``.

A FUSE file system below DIRECTORY delays each read by a log-normal time, 40 ms in the median. The time depends only on
the file and the offset, so the engine and the plain reader wait equally long for each part of a file.

The engine compares all received bytes. The plain reader has a process for each rank. The threads of a process take the
parts of the rank's file in order, with direct I/O into one buffer each, and discard the bytes. Both use the same files,
request size and depth, and run in alternating pairs. The time of the slowest process counts.

The output is the time of the engine divided by that of the plain reader. The goal is at most 1.03.
"""

from __future__ import annotations

import argparse
import itertools
import mmap
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from against_fio import Stream, subject
from caches import drop_caches

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.targets.misbehaving import misbehaving

_READERS = ("plain", "stream")


def read_plainly(files: list[Path], request_bytes: int, depth: int) -> float:
    """Read each file in a process of its own, with ``depth`` threads; return the seconds of the slowest process."""
    barrier = multiprocessing.Barrier(len(files))
    times: multiprocessing.Queue[float] = multiprocessing.Queue()
    processes = [
        multiprocessing.Process(target=_read_file, args=(file, request_bytes, depth, barrier, times)) for file in files
    ]
    for process in processes:
        process.start()
    seconds = [times.get() for _ in processes]
    for process in processes:
        process.join()
    return max(seconds)


def _read_file(
    file: Path,
    request_bytes: int,
    depth: int,
    barrier: multiprocessing.synchronize.Barrier,
    times: multiprocessing.Queue[float],
) -> None:
    offsets = itertools.count(0, request_bytes)
    size = file.stat().st_size
    # Pages of the buffers exist before the clock starts.
    buffers = [
        mmap.mmap(-1, request_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE) for _ in range(depth)
    ]

    def read(fd: int, buffer: mmap.mmap) -> None:
        while (offset := next(offsets)) < size:
            count = os.preadv(fd, [buffer], offset)
            if count != min(request_bytes, size - offset):
                raise OSError(f"{file} was shortened: {count} bytes at {offset}")

    barrier.wait()
    begin = time.perf_counter()
    fd = os.open(file, os.O_RDONLY | os.O_DIRECT)
    threads = [threading.Thread(target=read, args=(fd, buffer)) for buffer in buffers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.close(fd)
    times.put(time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where the file system is mounted")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--file-mib", type=int, default=192, help="MiB of the file of each process")
    parser.add_argument("--request-kib", type=int, default=1024, help="KiB of each request")
    parser.add_argument("--depth", type=int, default=2, help="requests in flight of each process")
    parser.add_argument("--seconds", type=float, default=0.04, help="median of the time of a read")
    parser.add_argument("--sigma", type=float, default=0.5, help="standard deviation of the logarithm of that time")
    parser.add_argument("--pairs", type=int, default=7)
    parser.set_defaults(files=1)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir=arguments.directory) as home,
        tempfile.TemporaryDirectory() as scratch,
        misbehaving(Path(home)) as target,
    ):
        directory = target.path / subject().slug
        directory.mkdir()
        stream = Stream(arguments, directory, Path(scratch))
        stream.run("save", 1)
        files = [directory / names[0] for names in stream.files(1)]
        target.fault("slow file", seconds=arguments.seconds, sigma=arguments.sigma, is_fixed=True)
        ratios = []
        print("pair  plain s  stream s  stream / plain")
        # Pair 0 is a warm-up. Each reader is first in every second pair, so that a drift favors neither.
        for pair in range(arguments.pairs + 1):
            seconds = {}
            for reader in sorted(_READERS, reverse=bool(pair % 2)):
                drop_caches(files)
                if reader == "plain":
                    seconds[reader] = read_plainly(files, arguments.request_kib << 10, arguments.depth)
                else:
                    seconds[reader], _ = stream.run("load", 1)
            if pair:
                ratios.append(seconds["stream"] / seconds["plain"])
                print(f"{pair:4}  {seconds['plain']:7.3f}  {seconds['stream']:8.3f}  {ratios[-1]:14.3f}", flush=True)
        print(f"median{statistics.median(ratios):>33.3f}")
        print(f"stream: {stream.facts['direct']}; {stream.facts['buffers']}")


if __name__ == "__main__":
    main()

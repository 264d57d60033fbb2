"""Reads samples at random offsets, as data loaders do, in a separate process (``python -m`` this module).

In a rank's process, Python's global lock would delay the reads. Therefore the process is separate.

Line 1 of standard input describes the reads as JSON. Line 2 starts the reads. Line 3, or the end of the input, ends the
reads. Then the process prints every read, and every wait of training for a sample (`SampleReads`).
"""

from __future__ import annotations

import errno
import json
import math
import mmap
import random
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.failure import Phase
from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.ranks.process.host_cache import Files
from pytest_ckpt.sizing.pacing import PREFETCH_SECONDS, READERS, sample_bytes
from pytest_ckpt.support.die_with_parent import die_with_parent
from pytest_ckpt.support.host_state import ProcessorWait
from pytest_ckpt.support.references import load
from pytest_ckpt.targets.protocol import Source, Store

_BLOCK_BYTES = 4096


@dataclass(kw_only=True, slots=True)
class SampleReads:
    """The reads of a host's data loader. Times are on the monotonic clock of the host.

    ``reads`` contains (begin, seconds) of each read. ``waits`` contains (begin, seconds) of each wait of training for a
    sample because the queue was empty. ``busy`` is the share of the time in which the process used a CPU, or a thread
    waited for a CPU. ``io_mode`` describes how reads used the page cache.
    """

    reads: list[tuple[float, float]] = field(default_factory=list)
    waits: list[tuple[float, float]] = field(default_factory=list)
    busy: float = 0.0
    io_mode: str = ""

    def within(self, spans: Sequence[tuple[float, float]]) -> SampleReads:
        """Return the reads and waits that began within one of the spans."""

        def inside(began: float) -> bool:
            return any(start <= began <= end for start, end in spans)

        return replace(
            self,
            reads=[read for read in self.reads if inside(read[0])],
            waits=[wait for wait in self.waits if inside(wait[0])],
        )


@dataclass(slots=True)
class _Loader:
    """A data loader: readers fill a queue of samples, and training takes one sample every ``sample_seconds``.

    The queue has space for the samples of `PREFETCH_SECONDS`. Training begins `PREFETCH_SECONDS` after the start of the
    readers.
    """

    files: list[Source]
    sample_bytes: int
    sample_seconds: float
    found: SampleReads = field(default_factory=SampleReads)
    error: OSError | None = None
    over: threading.Event = field(default_factory=threading.Event)
    free_slots: threading.Semaphore = field(init=False)
    ready: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __post_init__(self) -> None:
        self.free_slots = threading.Semaphore(max(1, math.ceil(PREFETCH_SECONDS / self.sample_seconds)))

    def read(self, seed: int) -> None:
        """Read at random offsets whenever the queue has space, until `stop` is called."""
        chance = random.Random(seed)
        buffer = mmap.mmap(-1, self.sample_bytes)
        # Queried once, because a size query immediately before a timed read would warm the client's caches.
        sizes = [source.size for source in self.files]
        while True:
            self.free_slots.acquire()
            if self.over.is_set():
                return
            ((source, size),) = chance.choices(list(zip(self.files, sizes, strict=True)), sizes)
            offset = chance.randrange(max(1, (size - self.sample_bytes) // _BLOCK_BYTES)) * _BLOCK_BYTES
            began = time.perf_counter()
            try:
                got = source.read_into(offset, buffer)
                took = time.perf_counter() - began
                if got < min(self.sample_bytes, size - offset):
                    raise OSError(errno.EIO, f"a read of {self.sample_bytes} bytes brought {got}")
            except OSError as error:
                self.error = error
                return
            self.found.reads.append((began, took))
            self.ready.release()

    def train(self) -> None:
        """Take a sample from the queue every ``sample_seconds``, until `stop` is called.

        A late sample delays all later samples.
        """
        due = time.perf_counter() + PREFETCH_SECONDS
        while not self.over.wait(max(0.0, due - time.perf_counter())):
            if not self.ready.acquire(blocking=False):
                began = time.perf_counter()
                self.ready.acquire()
                due = time.perf_counter()
                self.found.waits.append((began, due - began))
            self.free_slots.release()
            due += self.sample_seconds

    def stop(self, readers: int) -> None:
        """End all threads, including threads that are waiting. ``readers`` is the number of reader threads."""
        self.over.set()
        self.ready.release()
        self.free_slots.release(readers)


class _Untimed:
    """A clock that records nothing, because this process does not report phases."""

    def phase(self, name: Phase, file: str = "") -> AbstractContextManager[None]:
        """Ignore the phase."""
        return nullcontext()

    def moved(self, count: int) -> None:
        """Ignore the bytes."""


def _open(area: AreaRef, files: list[Files], bytes_per_second: float) -> _Loader:
    """Open the files so that every read comes from the storage. Return the data loader.

    One block is read as a test.
    """
    store: Store = load(area.opener)(area)
    opened = [store.open(of.ref, _Untimed()).source(name, fresh=True) for of in files for name in of.names]
    opened[0].read_into(0, mmap.mmap(-1, _BLOCK_BYTES))
    size = sample_bytes(bytes_per_second)
    return _Loader(files=opened, sample_bytes=size, sample_seconds=size / bytes_per_second)


def main() -> None:
    """Read samples as standard input requests, and print the reads. The module's docstring describes the input."""
    # The process must not continue to read after its rank has ended.
    die_with_parent()
    request = json.loads(sys.stdin.readline())
    try:
        loader = _open(
            from_plain(AreaRef, request["area"]),
            [from_plain(Files, of) for of in request["files"]],
            request["bytes_per_second"],
        )
    except OSError as error:
        print(json.dumps({"errno": error.errno, "message": f"{error}"}), flush=True)
        return
    print("{}", flush=True)
    sys.stdin.readline()
    wait = ProcessorWait()
    wait.begin()
    start, used = time.perf_counter(), time.process_time()
    threads = [threading.Thread(target=loader.read, args=(request["seed"] + n,)) for n in range(READERS)]
    threads.append(threading.Thread(target=loader.train))
    for thread in threads:
        thread.start()
    sys.stdin.readline()
    wait.end()
    busy = time.process_time() - used + (wait.seconds(beyond=0.0) or 0.0)
    loader.found.busy = busy / (time.perf_counter() - start)
    loader.found.io_mode = loader.files[0].io_mode
    loader.stop(READERS)
    for thread in threads:
        thread.join()
    failed = {"errno": loader.error.errno, "message": f"{loader.error}"} if loader.error else {}
    print(json.dumps(to_plain(loader.found) | failed), flush=True)


if __name__ == "__main__":
    main()

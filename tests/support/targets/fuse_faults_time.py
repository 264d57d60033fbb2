"""Faults of time and counters: slow and hanging calls, wrong clocks and counters."""

from __future__ import annotations

import os
import random
import re
import threading
import time

from tests.support.targets.fuse_faults import Fault
from tests.support.targets.fuse_nodes import Attributes

_GRAIN = 1 << 16


class SlowFile(Fault, name="slow file"):
    """Each read and write of files whose path matches a pattern takes 50 ms longer. The time is a parameter."""

    seconds = 0.05
    # The standard deviation of the logarithm of the time; its median is ``seconds``.
    sigma = 0.0
    writes_only = False

    def begin(self):
        self.random = random.Random(1)

    def read(self, proceed, call, handle, offset, size):
        if self.writes_only:
            return proceed(call, handle, offset, size)
        return self._later(proceed, call, handle, offset, size)

    def write(self, proceed, call, handle, offset, data):
        return self._later(proceed, call, handle, offset, data)

    def _later(self, proceed, *arguments):
        self.hit()
        with self.lock:
            factor = self.random.lognormvariate(0, self.sigma)
        self.pause(self.seconds * factor)
        return proceed(*arguments)


class SlowMetadata(Fault, name="slow metadata"):
    """Each operation on a name takes ``seconds`` longer, 5 ms by default. Reads and writes are not slower."""

    seconds = 0.005

    def _later(self, proceed, *arguments, **named):
        self.hit()
        self.pause(self.seconds)
        return proceed(*arguments, **named)

    lookup = open = create = mkdir = unlink = rmdir = rename = _later


class Trickle(Fault, name="writes trickle"):
    """Each write accepts at most 4 KiB, at 4 KiB/s. Both are parameters."""

    maximum_bytes = 4096
    bytes_per_second = 4096.0
    # An additional time of the first write, so that a save is late even if few of its bytes remain.
    first_seconds = 0.0

    def write(self, proceed, call, handle, offset, data):
        is_first = not self.hits
        self.hit()
        taken = data[: self.maximum_bytes]
        self.pause(len(taken) / self.bytes_per_second + (self.first_seconds if is_first else 0.0))
        return proceed(call, handle, offset, taken)


class _Rated(Fault):
    """Base class: each simulated device transfers ``bytes_per_second``, one request after another."""

    bytes_per_second = 50e6
    # Bytes that are accepted immediately after an idle time, as by a token bucket or a write-back cache.
    burst_bytes = 0

    def begin(self):
        self.free_at: dict[int, float] = {}

    def carry(self, count, device=0):
        """Wait until the device has transferred the bytes of all earlier calls and ``count`` more bytes.

        Each device has the number ``device`` and a separate queue.
        """
        with self.lock:
            now = time.monotonic()
            full = now - self.burst_bytes / self.bytes_per_second
            self.free_at[device] = max(self.free_at.get(device, full), full) + count / self.bytes_per_second
            self.hits += count > 0
            wait = self.free_at[device] - now
        self.pause(wait)

    def _place_of(self, handle):
        """Return (directory of a file, rank number in the name of the file).

        If the name contains no rank, the number is larger than any rank.
        """
        directory, _, name = os.readlink(f"/proc/self/fd/{handle.fd}").rpartition("/")
        rank = re.search(r"rank_(\d+)", name)
        return directory, int(rank[1]) if rank else 1 << 30


class Slow(_Rated, name="slow"):
    """The total rate of reads and writes is limited to 50 MB/s by default.

    Parameters limit each file or rank instead.
    """

    is_by_file = False
    # The rate applies to each rank separately, like a limit of each client.
    is_by_rank = False
    reads_are_slow = True

    def read(self, proceed, call, handle, offset, size):
        data = proceed(call, handle, offset, size)
        if self.reads_are_slow:
            self.carry(len(data), self._device_of(handle))
        return data

    def write(self, proceed, call, handle, offset, data):
        self.carry(len(data), self._device_of(handle))
        return proceed(call, handle, offset, data)

    def _device_of(self, handle):
        if self.is_by_rank:
            return self._place_of(handle)[1]
        return handle.node.id if self.is_by_file else 0


class Starving(_Rated, name="starves a job"):
    """While rank 0 writes a checkpoint, each write of other ranks to another checkpoint takes 1 s longer."""

    # The number of ranks that are served first.
    first_ranks = 1
    starved_seconds = 1.0

    def begin(self):
        super().begin()
        self.served: dict[int, str] = {}

    def write(self, proceed, call, handle, offset, data):
        directory, rank = self._place_of(handle)
        with self.lock:
            if rank < self.first_ranks:
                self.served[rank] = directory
            is_starved = rank >= self.first_ranks and any(one != directory for one in self.served.values())
        if is_starved:
            self.hit()
            self.pause(self.starved_seconds)
        self.carry(len(data))
        return proceed(call, handle, offset, data)

    def fsync(self, proceed, *arguments, **named):
        _, rank = self._place_of(arguments[1])
        with self.lock:
            self.served.pop(rank, None)
        return proceed(*arguments, **named)


class FastForDuplicates(_Rated, name="fast for duplicate data"):
    """Writes of data that were written before are immediate. Other writes are limited to 50 MB/s by default."""

    def begin(self):
        super().begin()
        self.seen: set[int] = set()

    def write(self, proceed, call, handle, offset, data):
        prints = {hash(bytes(data[low : low + 4096])) for low in range(0, len(data), 4096)}
        fresh = prints - self.seen
        self.seen |= fresh
        self.carry(min(len(fresh) * 4096, len(data)))
        return proceed(call, handle, offset, data)


class FastWhenCached(_Rated, name="fast when cached"):
    """A cache of 256 MiB contains recently written or read data. Reads outside the cache are limited to 50 MB/s."""

    cache_bytes = 256 << 20
    takes_reads = True

    def begin(self):
        super().begin()
        self.cached: dict[tuple[int, int], None] = {}

    def read(self, proceed, call, handle, offset, size):
        data = proceed(call, handle, offset, size)
        self.carry(self._remember(handle, offset, len(data), takes=self.takes_reads))
        return data

    def write(self, proceed, call, handle, offset, data):
        self._remember(handle, offset, len(data))
        return proceed(call, handle, offset, data)

    def _remember(self, handle, offset, count, *, takes=True):
        """Return how many bytes of a range are not in the cache. If ``takes`` is True, add the range to the cache."""
        missed = 0
        # Ranges are stored by inode, because the kernel drops nodes together with its caches.
        file = os.fstat(handle.fd).st_ino
        with self.lock:
            for grain in range(offset // _GRAIN, (offset + count + _GRAIN - 1) // _GRAIN):
                key = (file, grain)
                missed += key not in self.cached
                if takes:
                    self.cached.pop(key, None)
                    self.cached[key] = None
            while len(self.cached) > self.cache_bytes // _GRAIN:
                del self.cached[next(iter(self.cached))]
        return min(missed * _GRAIN, count)


class ClientCache(_Rated, name="client cache survives the drop"):
    """Each client has a cache that a drop does not empty. Reads outside the cache are limited to 50 MB/s.

    If ``survives`` is False, a drop empties the cache except for checkpoints below the number ``drops_from``.
    """

    survives = True
    drops_from = 0

    def begin(self):
        super().begin()
        self.cached: set[tuple[int, int, int]] = set()
        self.is_spared: dict[int, bool] = {}

    def drop_caches(self):
        if not self.survives:
            with self.lock:
                self.cached = {key for key in self.cached if self.is_spared[key[1]]}

    def read(self, proceed, call, handle, offset, size):
        data = proceed(call, handle, offset, size)
        self.carry(self._take(call, handle, offset, len(data)))
        return data

    def write(self, proceed, call, handle, offset, data):
        self._take(call, handle, offset, len(data))
        return proceed(call, handle, offset, data)

    def _take(self, call, handle, offset, count):
        """Return how many bytes of a range are not in the client's cache, and add the range to the cache."""
        file = os.fstat(handle.fd).st_ino
        grains = range(offset // _GRAIN, (offset + count + _GRAIN - 1) // _GRAIN)
        number = re.search(r"/checkpoint-(\d+)", os.readlink(f"/proc/self/fd/{handle.fd}"))
        with self.lock:
            self.is_spared[file] = bool(number and int(number[1]) < self.drops_from)
            missed = {(call.client, file, grain) for grain in grains} - self.cached
            self.cached |= missed
        return min(len(missed) * _GRAIN, count)


class _BlockingFault(Fault):
    """Base class: operations block until `release` is called, but at most for ``maximum_seconds``."""

    maximum_seconds = 120.0

    def begin(self):
        self.gate = threading.Event()
        for session in self.sessions:
            session.refuse_interrupts()

    def hold(self):
        self.hit()
        self.gate.wait(self.maximum_seconds)

    def release(self):
        with self.lock:
            gate, self.gate = self.gate, self.gate if self.over.is_set() else threading.Event()
        gate.set()


class Hang(
    _BlockingFault,
    name="hang",
    fails="LIVE.calls",
    expected_text="did not return",
    path="LIVE.*",
    operation="fsync",
    seconds=8.0,
):
    """An operation, by default write, blocks until the test releases it. The calling task is in state D."""

    operation = "write"

    def begin(self):
        super().begin()
        if self.operation not in self.operations:
            raise ValueError(f"{self.operation!r} cannot hang, only one of {', '.join(self.operations)}")
        self.operations = (self.operation,)

    def _held(self, proceed, *arguments, **named):
        self.hold()
        return proceed(*arguments, **named)

    lookup = attributes = open = create = read = write = flush = fsync = fsyncdir = _held
    list = mkdir = unlink = rename = truncate = statfs = flock = _held


class TruncateHangs(
    _BlockingFault, name="concurrent O_TRUNC hangs", fails="TRUNCATE.concurrent", expected_text="a call hangs"
):
    """If two processes open a file with O_TRUNC concurrently, the second open blocks until the test releases it."""

    seconds = 0.005

    def begin(self):
        super().begin()
        self.busy: set[int] = set()

    def open(self, proceed, call, node, flags):
        if not flags & os.O_TRUNC:
            return proceed(call, node, flags)
        with self.lock:
            first = node.id not in self.busy
            self.busy.add(node.id)
        if not first:
            self.hold()
            return proceed(call, node, flags)
        try:
            self.pause(self.seconds)
            return proceed(call, node, flags)
        finally:
            self.busy.discard(node.id)


class StatfsIsStale(
    Fault,
    name="statfs never changes",
    fails="CAPABILITIES.statfs",
    expected_text="free",
    may="FULL.mid-save ERRORS.full",
):
    """The reported free space stays as it was at the first request."""

    def begin(self):
        self.seen = None

    def statfs(self, proceed, call, node):
        self.hit()
        self.seen = self.seen or proceed(call, node)
        return self.seen


class MtimeGoesBackwards(
    Fault, name="mtime goes back", fails="CAPABILITIES.mtime", expected_text="time", may="STALE.attributes"
):
    """A file that is changed later gets an earlier mtime."""

    def begin(self):
        self.middle = time.time_ns()

    def attributes(self, proceed, call, node):
        known: Attributes = proceed(call, node)
        self.hit()
        return known._replace(mtime_ns=2 * self.middle - known.mtime_ns)


class CoarseTimes(Fault, name="mtime is coarse", fails="CAPABILITIES.mtime", expected_text="time"):
    """mtime has a resolution of two seconds by default."""

    seconds = 2.0

    def attributes(self, proceed, call, node):
        known: Attributes = proceed(call, node)
        self.hit()
        return known._replace(mtime_ns=known.mtime_ns - known.mtime_ns % int(self.seconds * 1e9))

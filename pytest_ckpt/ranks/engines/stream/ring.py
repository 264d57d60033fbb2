"""A ring of buffers: some threads fill buffers, other threads process the filled buffers and free them."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_ckpt.ranks.content import Bytes
    from pytest_ckpt.ranks.engines.stream.thread_pool import ThreadPool

_Request = TypeVar("_Request")


@dataclass(frozen=True, slots=True)
class Arrival(Generic[_Request]):
    """A filled buffer. The first ``count`` bytes of ``buffer`` are the data of ``request``."""

    request: _Request
    buffer: Bytes
    count: int


class Ring(Generic[_Request]):
    """The buffers of one pass over requests.

    ``readers`` threads fill the buffers; other threads process and free them. Several threads may call the methods
    concurrently. ``read_at`` is the time when the last reader was done, on the clock of `time.perf_counter`.
    """

    def __init__(self, buffers: Sequence[Bytes], readers: int) -> None:
        self._free = list(buffers)
        self._arrived: deque[Arrival[_Request]] = deque()
        self._readers, self._all_readers = readers, readers
        self._has_failed = False
        lock = threading.Lock()
        self._is_free, self._has_arrived = threading.Condition(lock), threading.Condition(lock)
        self._waited_seconds = 0.0
        self.read_at = 0.0

    @property
    def stalled_seconds(self) -> float:
        """An estimate of the seconds that the pass has lost because no buffer was free: the mean wait of a reader."""
        return self._waited_seconds / self._all_readers

    def buffer(self) -> Bytes | None:
        """Wait until a buffer is free, and return it. Return None if another thread has failed."""
        with self._is_free:
            if not self._free:
                start = time.perf_counter()
                while not self._free and not self._has_failed:
                    self._is_free.wait()
                self._waited_seconds += time.perf_counter() - start
            # The buffer that was used last is still in the processor's cache.
            return None if self._has_failed else self._free.pop()

    def arrived(self, arrival: Arrival[_Request]) -> None:
        """Add a filled buffer, so that a thread can process it."""
        with self._has_arrived:
            self._arrived.append(arrival)
            self._has_arrived.notify()

    def next(self) -> Arrival[_Request] | None:
        """Wait for the next filled buffer, and return it.

        Return None if all readers are done or a thread has failed.
        """
        with self._has_arrived:
            while not self._arrived and self._readers and not self._has_failed:
                self._has_arrived.wait()
            return self._arrived.popleft() if self._arrived and not self._has_failed else None

    def free(self, arrival: Arrival[_Request]) -> None:
        """Mark the buffer of a processed arrival as free."""
        with self._is_free:
            self._free.append(arrival.buffer)
            self._is_free.notify()

    def leave(self) -> None:
        """Record that a reader is done."""
        with self._has_arrived:
            self._readers -= 1
            self.read_at = time.perf_counter()
            self._has_arrived.notify_all()

    def fail(self) -> None:
        """End all threads of the pass, because one of the threads has failed."""
        with self._is_free:
            self._has_failed = True
            self._is_free.notify_all()
            self._has_arrived.notify_all()


def one_pass(
    pool: ThreadPool,
    buffers: Sequence[Bytes],
    requests: Iterable[_Request],
    *,
    readers: int,
    takers: int,
    read: Callable[[_Request, Bytes], int],
    take: Callable[[Arrival[_Request]], None],
) -> Ring[_Request]:
    """Read all requests in one pass, while other threads process the data.

    Return the ring after all threads have ended. ``readers`` threads call ``read``, which fills a buffer from its start
    and returns the number of bytes. ``takers`` threads call ``take``, which processes a filled buffer. If threads fail,
    the error of one thread is raised.
    """
    waiting, lock = iter(requests), threading.Lock()
    ring: Ring[_Request] = Ring(buffers, readers)

    def read_all() -> None:
        while True:
            with lock:
                request = next(waiting, None)
            if request is None or (buffer := ring.buffer()) is None:
                return
            ring.arrived(Arrival(request, buffer, read(request, buffer)))

    def work(thread: int) -> None:
        try:
            if thread < readers:
                read_all()
                ring.leave()
                return
            while arrival := ring.next():
                take(arrival)
                ring.free(arrival)
        except BaseException:
            ring.fail()
            raise

    pool.work(work, readers + takers)
    return ring

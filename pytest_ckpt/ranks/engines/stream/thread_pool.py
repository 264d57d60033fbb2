"""A pool of threads that are reused for many requests.

Starting a thread takes as long as a small request.
"""

from __future__ import annotations

from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Work = Callable[[int], None]


class ThreadPool:
    """A pool of threads. Threads are started when they are first needed, and end in `dismiss`."""

    def __init__(self) -> None:
        self._threads: list[Thread] = []
        self._begin: list[SimpleQueue[Work | None]] = []
        self._ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def work(self, act: Work, count: int) -> None:
        """Call ``act`` concurrently with each number from 0 to ``count`` - 1. Return when all calls have ended.

        The caller's thread makes the call with 0. If calls fail, the error of one call is raised after all calls have
        ended.
        """
        while len(self._begin) < count - 1:
            self._begin.append(SimpleQueue())
            # A thread that is blocked in a call must not keep the process alive.
            self._threads.append(Thread(target=self._serve, args=(len(self._begin), self._begin[-1]), daemon=True))
            self._threads[-1].start()
        for begin in self._begin[: count - 1]:
            begin.put(act)
        try:
            act(0)
        finally:
            errors = [self._ended.get() for _ in range(count - 1)]
        for error in filter(None, errors):
            raise error

    def dismiss(self) -> None:
        """End the threads. No call of `work` may be running."""
        for begin in self._begin:
            begin.put(None)
        for thread in self._threads:
            thread.join()
        self._begin, self._threads = [], []

    def _serve(self, number: int, begin: SimpleQueue[Work | None]) -> None:
        while act := begin.get():
            try:
                act(number)
            except BaseException as error:  # raised in the thread that waits
                self._ended.put(error)
            else:
                self._ended.put(None)

"""How long this rank shows no sign of life within an operation: no byte moved, no call ended."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from pytest_ckpt.ranks.process.activity import Activity

_POLL_SECONDS = 0.02


class QuietTime:
    """Watches this rank's activity while it is entered; ``longest`` is the longest quiet time, in seconds.

    A rank that waits for the others is not quiet: one of them is. It may be entered again, once for each step of a
    load; what lies between two steps does not count.
    """

    def __init__(self, activity: Activity) -> None:
        self._activity = activity
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.longest = 0.0

    def __enter__(self) -> QuietTime:
        """Begin to watch."""
        self._over.clear()
        self._thread = threading.Thread(target=self._watch, name="quiet time", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self._over.set()
        assert self._thread
        self._thread.join()

    def _watch(self) -> None:
        seen, since = self._signs(), time.perf_counter()
        is_over = False
        while not is_over:
            is_over = self._over.wait(_POLL_SECONDS)
            signs, now = self._signs(), time.perf_counter()
            if self._activity.waiting:
                since = now
            # What ends a quiet time came at most a poll ago: it counts up to here.
            self.longest = max(self.longest, now - since)
            if signs != seen:
                seen, since = signs, now

    def _signs(self) -> tuple[object, ...]:
        return self._activity.phase, self._activity.file, self._activity.bytes_done

"""How long the threads of this process were ready to run and had no CPU, by the kernel's own count."""

from __future__ import annotations

from pytest_ckpt.support.host_state import run_queue_waits

_NANOSECONDS = 1e-9


class ProcessorWait:
    """Seconds for which a thread of this process waited for a CPU, between ``begin`` and ``end``, added up.

    Time in a call to the storage does not count, nor time in which the process was stopped. Threads wait concurrently,
    so the longest wait of one thread counts, and the waits of several are not added up. A thread that ended is missed.
    """

    def __init__(self) -> None:
        self._before: dict[str, int] | None = None
        self._waits: dict[str, int] = {}
        self._is_known = True

    def begin(self) -> None:
        """Remember how long each thread has waited so far."""
        self._before = run_queue_waits()

    def end(self) -> None:
        """Add the time that each thread has waited since ``begin``."""
        after = run_queue_waits()
        if self._before is None or after is None:
            self._is_known = False
            return
        for thread, waited in after.items():
            self._waits[thread] = self._waits.get(thread, 0) + waited - self._before.get(thread, 0)

    def seconds(self, *, beyond: float) -> float | None:
        """Return the longest wait of one thread; None if the kernel does not count waits.

        For the seconds ``beyond``, the timed work did not run. All of these seconds are assumed to be waits, and
        subtracted.
        """
        if not self._is_known:
            return None
        return max(0.0, max(self._waits.values(), default=0) * _NANOSECONDS - max(0.0, beyond))

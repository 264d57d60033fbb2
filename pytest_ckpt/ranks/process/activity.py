"""What a rank is doing, told to the controller while it does it.

Every rank says so on its standard error, a line at a time, from a thread of its own: so the controller hears of a
rank that is blocked in a system call, and knows in which. Rank 0 alone speaks on standard output, where results go.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pytest_ckpt.facts.events import Beat, Event, Failed, Hello, to_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ckpt.facts.failure import Phase
    from pytest_ckpt.facts.subject import OperationRef

_MOST_SECONDS = 30.0


def beat_seconds(deadline_seconds: float) -> float:
    """Return how often a rank reports, so that silence is told from a late report."""
    return max(0.1, min(_MOST_SECONDS, deadline_seconds / 6))


class Activity:
    """The present operation, phase and file of this rank, and how many bytes of it are done."""

    def __init__(self) -> None:
        self.rank: int | None = None
        self.operation: OperationRef | None = None
        self.phase: Phase = "start"
        self.file = ""
        self.bytes_done = 0
        self.waiting = False
        self._failed_in: tuple[Phase, str] | None = None
        self._stop = threading.Event()

    def introduce(self, rank: int) -> None:
        """Tell the controller which process is which rank."""
        self.rank = rank
        self._tell(Hello(rank=rank, host=socket.gethostname(), pid=os.getpid()))

    def report_every(self, seconds: float) -> None:
        """Start the thread that reports what this rank is doing."""
        thread = threading.Thread(target=self._beat, args=(seconds,), name="activity", daemon=True)
        thread.start()

    def stop(self) -> None:
        """End the reports."""
        self._stop.set()

    def begin(self, operation: OperationRef | None, phase: Phase = "") -> None:
        """Enter an operation and tell so: a rank that is killed no longer can. None: a phase outside of all."""
        self.operation, self.phase, self.file, self.waiting = operation, phase, "", False
        self._tell_doing()

    @contextmanager
    def in_phase(self, phase: Phase, file: str = "") -> Iterator[None]:
        """Enter a phase of the operation. The first one that an error leaves is named in the failure."""
        self.phase, self.file = phase, file
        try:
            yield
        except BaseException:
            self._failed_in = self._failed_in or (phase, file)
            raise
        self.phase, self.file = "", ""

    @contextmanager
    def wait(self) -> Iterator[None]:
        """Mark that this rank waits for others and is not the one to blame."""
        self.waiting = True
        yield
        self.waiting = False

    def failed(self, error: BaseException) -> None:
        """Tell the controller why this rank cannot go on."""
        number = getattr(error, "errno", None)
        phase, file = self._failed_in or (self.phase, self.file)
        self._tell(
            Failed(
                rank=self.rank,
                host=socket.gethostname(),
                operation=self.operation,
                phase=phase,
                file=file,
                errno=_errno_name(number),
                message=_message(error),
            )
        )

    def _beat(self, seconds: float) -> None:
        while not self._stop.wait(seconds):
            self._tell_doing()

    def _tell_doing(self) -> None:
        # While modules are imported, their number is the progress.
        self._tell(
            Beat(
                rank=self.rank,
                operation=self.operation,
                phase=self.phase,
                file=self.file,
                waiting=self.waiting,
                progress=(self.bytes_done, len(sys.modules)),
            )
        )

    def _tell(self, event: Event) -> None:
        write_event(2, event)


def write_event(descriptor: int, event: Event) -> None:
    """Write one event as one line, in one system call where the pipe takes it."""
    line = memoryview(to_line(event).encode())
    while line:
        line = line[os.write(descriptor, line) :]


def _errno_name(number: int | None) -> str:
    import errno  # noqa: PLC0415 - only when something went wrong

    return errno.errorcode.get(number, str(number)) if number else ""


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__

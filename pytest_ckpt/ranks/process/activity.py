"""The current activity of a rank, which the rank reports to the controller.

In every rank, a separate thread sends reports at intervals, on the rank's own connection. So the controller still
receives reports if the rank is blocked in a system call. The reports contain the phase and the file of the blocked
call.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_ckpt.facts.events import Beat, Event, Failed, Hello, to_line
from pytest_ckpt.support.errors import KilledError, ReplacedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_ckpt.facts.failure import FailureKind, Phase
    from pytest_ckpt.facts.subject import OperationRef

_MAXIMUM_SECONDS = 30.0


def beat_seconds(deadline_seconds: float) -> float:
    """Return the seconds between a rank's reports: a sixth of ``deadline_seconds``, but at least 0.1 and at most 30.

    ``deadline_seconds`` is the time without progress after which a rank counts as blocked. Several reports are due
    within this time, so one late report does not make a rank count as blocked.
    """
    return max(0.1, min(_MAXIMUM_SECONDS, deadline_seconds / 6))


class Activity:
    """The activity of one lane of a rank: the operation, phase, file, and number of bytes transferred.

    A lane is a sequence of work. Every rank has a main lane. Concurrent work, such as a background save, has a separate
    lane, and each lane is reported.
    """

    def __init__(self, name: str = "", rank: _Rank | None = None) -> None:
        self.name = name
        self.operation: OperationRef | None = None
        self.phase: Phase = "" if rank else "start"
        self.file = ""
        self.bytes_done = 0
        self.waiting = False
        self._rank = rank or _Rank()
        self._rank.lanes.append(self)

    def report_through(self, report: Callable[[Event], None]) -> None:
        """Report events through ``report`` from now on. Before this call, events are written to standard error."""
        self._rank.report = report

    def report(self, event: Event) -> None:
        """Report an event to the controller."""
        self._rank.report(event)

    def introduce(self, rank: int) -> None:
        """Report the rank's number, host and process id to the controller."""
        self._rank.number = rank
        self.report(Hello(rank=rank, host=socket.gethostname(), pid=os.getpid()))

    def report_every(self, seconds: float) -> None:
        """Start the thread that reports the activity of all lanes of this rank every ``seconds`` seconds."""
        self._rank.stop = threading.Event()
        words = (seconds, self._rank.stop)
        threading.Thread(target=self._beat, args=words, name="activity", daemon=True).start()

    def stop(self) -> None:
        """End the thread that reports this rank's activity."""
        self._rank.stop.set()

    def lane(self, name: str) -> Activity:
        """Return a new lane for concurrent work. The lane is idle until the work calls `begin`."""
        lane = Activity(name, self._rank)
        lane.waiting = True
        return lane

    def begin(self, operation: OperationRef | None, phase: Phase = "") -> None:
        """Enter an operation, and report it immediately, because a rank that is killed later cannot report it.

        ``operation`` is None if the rank is between operations. ``phase`` is the first phase of the operation.
        """
        self.operation, self.phase, self.file, self.waiting = operation, phase, "", False
        self.report_activity()

    def report_idle(self) -> None:
        """Report that this lane is idle until the next `begin`."""
        self.phase, self.file, self.waiting = "", "", True
        self.report_activity()

    @contextmanager
    def in_phase(self, phase: Phase, file: str = "") -> Iterator[None]:
        """Enter a phase of the operation during the ``with`` block.

        If an error ends nested phases, the report of the failure names the innermost phase.
        """
        self.phase, self.file = phase, file
        try:
            yield
        except BaseException:
            self._rank.failed_in = self._rank.failed_in or (self.name, self.operation, phase, file)
            raise
        self.phase, self.file = "", ""

    def fails_at(self, file: str, phase: Phase | None = None) -> None:
        """Record the file of a failed call, if the current phase covers several files.

        Only the first failed call is recorded. ``phase`` is the phase of the failed call, by default the current phase.
        """
        self._rank.failed_in = self._rank.failed_in or (self.name, self.operation, phase or self.phase, file)

    @contextmanager
    def wait(self) -> Iterator[None]:
        """Mark that this rank waits for other ranks during the ``with`` block.

        Delays are then not attributed to this rank.
        """
        with self._marked(waiting=True):
            yield

    @contextmanager
    def work(self) -> Iterator[None]:
        """Mark that this rank works during the ``with`` block, which is inside a block of `wait`.

        A call of an engine's library may contain both work and waits for other ranks. The engine then encloses the call
        in a block of `wait`, and each known piece of work in a block of `work`.
        """
        with self._marked(waiting=False):
            yield

    @contextmanager
    def _marked(self, *, waiting: bool) -> Iterator[None]:
        before, self.waiting = self.waiting, waiting
        try:
            yield
        finally:
            self.waiting = before

    def forgive(self) -> tuple[Phase, str]:
        """Discard the record of an expected error, so that the rank can continue.

        Return the phase and file of the error.
        """
        _, _, phase, file = self._rank.failed_in or ("", None, self.phase, self.file)
        self._rank.failed_in = None
        self.phase, self.file = "", ""
        return phase, file

    def failed(self, error: BaseException) -> None:
        """Report ``error``, which ends this rank, to the controller."""
        number = getattr(error, "errno", None)
        lane, operation, phase, file = self._rank.failed_in or (self.name, self.operation, self.phase, self.file)
        self.report(
            Failed(
                rank=self._rank.number,
                host=socket.gethostname(),
                operation=operation,
                phase=phase,
                file=file,
                errno=_errno_name(number),
                message=_message(error),
                lane=lane,
                kind=_kind(error),
            )
        )

    def report_activity(self) -> None:
        """Report the current activity to the controller."""
        # While modules are imported, their count is the progress.
        beat = Beat(
            rank=self._rank.number,
            operation=self.operation,
            phase=self.phase,
            file=self.file,
            waiting=self.waiting,
            progress=(self.bytes_done, len(sys.modules)),
            lane=self.name,
        )
        self.report(beat)

    def _beat(self, seconds: float, stop: threading.Event) -> None:
        while not stop.wait(seconds):
            for lane in tuple(self._rank.lanes):
                lane.report_activity()


def print_event(event: Event) -> None:
    """Write an event as one line to standard error, in one system call if the pipe accepts the complete line."""
    line = memoryview(to_line(event).encode())
    while line:
        line = line[os.write(2, line) :]


@dataclass(slots=True)
class _Rank:
    """The data that all lanes of a rank share."""

    number: int | None = None
    lanes: list[Activity] = field(default_factory=list)
    failed_in: tuple[str, OperationRef | None, Phase, str] | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    report: Callable[[Event], None] = print_event


def _kind(error: BaseException) -> FailureKind:
    if isinstance(error, ReplacedError):
        return "replaced"
    return "killed" if isinstance(error, KilledError) else "error"


def _errno_name(number: int | None) -> str:
    import errno  # noqa: PLC0415 - only when something went wrong

    return errno.errorcode.get(number, str(number)) if number else ""


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, ReplacedError | KilledError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__

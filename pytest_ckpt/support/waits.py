"""Prints the cause of a long wait, so that a user sees that the storage hangs.

A waiting function declares its wait with ``waiting`` and calls ``print_if_due`` at least once a second. Waits are
printed only during a ``telling`` block, and only in the thread that entered the block. In other processes and threads,
these functions print nothing.
"""

from __future__ import annotations

import contextlib
import contextvars
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import AnyStr

from pytest_ckpt.support.units import format_seconds

TELL_SECONDS = 30.0
"""The time without output, in seconds, after which the current wait is printed."""

LOOK_SECONDS = 1.0
"""The maximum time between two calls of ``print_if_due``, in seconds."""

Waited = str | Callable[[], str]
"""The cause of a wait.

It is a name, printed with the seconds since the start of the wait; or a function that returns a sentence, empty for no
message.
"""


class Waits:
    """The nested waits of one thread, and the time of its last output. The function ``say`` prints a sentence."""

    def __init__(self, say: Callable[[str], None] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.say = say
        self._clock = clock
        self._waits: list[tuple[float, Waited]] = []
        self._spoke = clock()
        # Called before a sentence is printed.
        self.before: Callable[[], None] = lambda: None

    @contextlib.contextmanager
    def waiting(self, what: Waited) -> Iterator[None]:
        """Declare the cause (``what``) of a wait during a block. Waits can be nested."""
        self._waits.append((self._clock(), what))
        try:
            yield
        finally:
            self._waits.pop()

    def spoke(self) -> None:
        """Record that a line was printed."""
        self._spoke = self._clock()

    def print_if_due(self) -> None:
        """Print the current wait if nothing was printed for `TELL_SECONDS`."""
        now = self._clock()
        if not self.say or now - self._spoke < TELL_SECONDS:
            return
        sentences = [
            f"{what}: {format_seconds(round(now - began))}" if isinstance(what, str) else what()
            for began, what in self._waits
        ]
        if text := "; ".join(filter(None, sentences)):
            self._spoke = now
            self.before()
            self.say(text)


_current: contextvars.ContextVar[Waits] = contextvars.ContextVar("waits")


def _waits() -> Waits:
    # A new thread has no waits, and threads do not share waits.
    return _current.get(None) or Waits()


@contextlib.contextmanager
def telling(say: Callable[[str], None]) -> Iterator[Waits]:
    """Print long waits of this thread through ``say`` during a block."""
    waits = Waits(say)
    token = _current.set(waits)
    try:
        yield waits
    finally:
        _current.reset(token)


@contextlib.contextmanager
def waiting(what: Waited) -> Iterator[None]:
    """Declare the cause of this thread's wait during a block."""
    with _waits().waiting(what):
        yield


def before_output(call: Callable[[], None]) -> None:
    """Register a function that is called before each output of this thread's waits."""
    _waits().before = call


def spoke() -> None:
    """Record that a line was printed."""
    _waits().spoke()


def print_if_due() -> None:
    """Print the current wait of this thread if nothing was printed for `TELL_SECONDS`."""
    _waits().print_if_due()


def communicate(
    process: subprocess.Popen[AnyStr], given: AnyStr | None = None, *, seconds: float
) -> tuple[AnyStr, AnyStr]:
    """Send ``given`` to a process and return its output when it has ended, like ``Popen.communicate``.

    While the process runs, long waits are printed. Raises subprocess.TimeoutExpired after ``seconds``.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            return process.communicate(given, timeout=max(0.0, min(LOOK_SECONDS, until - time.monotonic())))
        except subprocess.TimeoutExpired:
            if time.monotonic() >= until:
                raise
            given = None  # the remaining input is still being written
            print_if_due()


def completed(
    process: subprocess.Popen[AnyStr], given: AnyStr | None = None, *, seconds: float
) -> subprocess.CompletedProcess[AnyStr]:
    """Wait until a process has ended, and return its result; ``given`` is its standard input.

    Raises subprocess.TimeoutExpired after ``seconds``. If any exception ends the wait, the process is killed.
    """
    with process:
        try:
            output, errors = communicate(process, given, seconds=seconds)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

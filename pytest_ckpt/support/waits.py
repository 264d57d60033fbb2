"""What this process waits for: printed whenever nothing else was for a while, so that no hanging storage looks silent.

Who waits says so with ``waiting`` and calls ``look`` several times a minute at least. Only the process that a person
sits before prints (``telling``); in any other, and in threads, nothing happens.
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
"""After so long without a line, what is waited for is printed."""

LOOK_SECONDS = 1.0
"""No wait goes on for longer without a look at the clock."""

Waited = str | Callable[[], str]
"""A name, printed with the seconds since it began; or what returns a whole sentence, empty: nothing to tell now."""


class Waits:
    """The waits of a process, one in the other, and when something was last printed. ``say`` prints a sentence."""

    def __init__(self, say: Callable[[str], None] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.say = say
        self._clock = clock
        self._waits: list[tuple[float, Waited]] = []
        self._spoke = clock()
        #: Called before a sentence is printed.
        self.before: Callable[[], None] = lambda: None

    @contextlib.contextmanager
    def waiting(self, what: Waited) -> Iterator[None]:
        """Name what is waited for meanwhile, within what is waited for already."""
        self._waits.append((self._clock(), what))
        try:
            yield
        finally:
            self._waits.pop()

    def spoke(self) -> None:
        """Note that a line was printed."""
        self._spoke = self._clock()

    def look(self) -> None:
        """Print what is waited for, if nothing was printed for long enough."""
        now = self._clock()
        if not self.say or now - self._spoke < TELL_SECONDS:
            return
        sentences = [
            f"{what}: {format_seconds(round(now - began))}" if isinstance(what, str) else what()
            for began, what in self._waits
        ]
        if told := "; ".join(filter(None, sentences)):
            self._spoke = now
            self.before()
            self.say(told)


_current: contextvars.ContextVar[Waits] = contextvars.ContextVar("waits")


def _waits() -> Waits:
    # A thread has none, and shares none with another.
    return _current.get(None) or Waits()


@contextlib.contextmanager
def telling(say: Callable[[str], None]) -> Iterator[Waits]:
    """Have this thread's waits printed meanwhile."""
    waits = Waits(say)
    token = _current.set(waits)
    try:
        yield waits
    finally:
        _current.reset(token)


@contextlib.contextmanager
def waiting(what: Waited) -> Iterator[None]:
    """Name what this thread waits for meanwhile."""
    with _waits().waiting(what):
        yield


def before_telling(call: Callable[[], None]) -> None:
    """Have something called before a sentence is printed."""
    _waits().before = call


def spoke() -> None:
    """Note that a line was printed."""
    _waits().spoke()


def look() -> None:
    """Print what this thread waits for, if nothing was printed for long enough."""
    _waits().look()


def communicate(
    process: subprocess.Popen[AnyStr], given: AnyStr | None = None, *, seconds: float
) -> tuple[AnyStr, AnyStr]:
    """Return what a process wrote until it ended, as ``Popen.communicate`` does. Raises subprocess.TimeoutExpired."""
    until = time.monotonic() + seconds
    while True:
        try:
            return process.communicate(given, timeout=max(0.0, min(LOOK_SECONDS, until - time.monotonic())))
        except subprocess.TimeoutExpired:
            if time.monotonic() >= until:
                raise
            given = None  # it goes on to be written
            look()


def completed(
    process: subprocess.Popen[AnyStr], given: AnyStr | None = None, *, seconds: float
) -> subprocess.CompletedProcess[AnyStr]:
    """Return what came of a process; whatever ends this early kills it. Raises subprocess.TimeoutExpired."""
    with process:
        try:
            output, errors = communicate(process, given, seconds=seconds)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

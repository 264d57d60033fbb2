"""A watch over the library's calls of the storage: timed in phases, bytes are progress, errors are kept."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pytest_ckpt.facts.failure import Phase
    from pytest_ckpt.ranks.engines.protocol import Clock


class Watch:
    """One save or load of one rank. Between its calls the rank waits for the others, as the library has it.

    ``error`` is the first OSError that a call met: torch turns what its file raises into errors of its own. ``sizes``
    are those of the files that were opened, in bytes. ``checksum`` is the CRC-32 of what was written to or read from
    the file with a name of ``summed``, None where none was opened.
    """

    def __init__(self, clock: Clock, summed: Collection[str]) -> None:
        super().__init__()
        self._clock, self._summed = clock, summed
        # Of several threads that write side by side, the clock times them as one piece of work.
        self._lock, self._inside, self._piece = threading.Lock(), 0, ExitStack()
        self.error: OSError | None = None
        self.sizes: dict[str, int] = {}
        self.checksum: int | None = None

    def moved(self, count: int) -> None:
        """Take in that so many bytes went through."""
        self._clock.moved(count)

    @contextmanager
    def keeping_errors(self) -> Iterator[None]:
        """Keep the first error that a call of the storage meets; it goes on its way."""
        try:
            yield
        except OSError as error:
            self.error = self.error or error
            raise

    @contextmanager
    def call(self, phase: Phase, name: str) -> Iterator[None]:
        """Time a short call by itself, or as part of what another thread does meanwhile."""
        with self._lock, ExitStack() as piece, self.keeping_errors():
            if not self._inside:
                piece.enter_context(self._clock.activity.work())
                piece.enter_context(self._clock.phase(phase, name))
            yield

    @contextmanager
    def work(self, phase: Phase, name: str) -> Iterator[None]:
        """Time the work of a thread from when the first begins until none goes on."""
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._piece.enter_context(self._clock.activity.work())
                self._piece.enter_context(self._clock.phase(phase, name))
        try:
            yield
        except BaseException:
            # Its own file is named, and not that of the thread that began first.
            with self._clock.activity.in_phase(phase, name):
                raise
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._piece.close()

"""How rank 0 has the controller run commands of the user's: it asks by an event and hears what came of it."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.commands import CommandRun
from pytest_ckpt.facts.events import CommandAsked

if TYPE_CHECKING:
    from pytest_ckpt.facts.commands import Command
    from pytest_ckpt.facts.subject import Subject
    from pytest_ckpt.ranks.process.controller import Controller


class RequestedCommand:
    """A command that the controller was asked to run; times are of this rank's monotonic clock."""

    def __init__(self, controller: Controller, subject: Subject, command: Command) -> None:
        self._controller = controller
        self.at = time.perf_counter()
        self.heard_at: float | None = None
        self._run: CommandRun | None = None
        self._thread = threading.Thread(target=self._hear, name="commands", daemon=True)
        controller.tell(CommandAsked(subject=subject, command=command))
        self._thread.start()

    def wait(self) -> CommandRun:
        """Wait until the command has ended and return what came of it. Raises RuntimeError where nobody says so."""
        self._thread.join()
        if self._run is None:
            raise RuntimeError("the controller did not say what came of the command that it was asked to run")
        return self._run

    def _hear(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._run = from_plain(CommandRun, self._controller.hear())
            self.heard_at = time.perf_counter()


class DelayedRequest(threading.Thread):
    """Asks for a command ``seconds`` from now, unless the operation is over before.

    The clock runs from when it is started. ``asked`` is None where it was not asked for; ``seconds_into`` says when it
    was.
    """

    def __init__(self, controller: Controller, subject: Subject, command: Command, seconds: float) -> None:
        super().__init__(name="ask", daemon=True)
        self._controller = controller
        self._subject, self._command = subject, command
        self._seconds = seconds
        self._over = threading.Event()
        self.asked: RequestedCommand | None = None
        self.seconds_into = 0.0

    def run(self) -> None:
        """Wait, then ask."""
        began = time.perf_counter()
        if not self._over.wait(self._seconds):
            self.asked = RequestedCommand(self._controller, self._subject, self._command)
            self.seconds_into = self.asked.at - began

    def finish(self) -> RequestedCommand | None:
        """Say that the operation is over; return what was asked in it."""
        self._over.set()
        if self.ident is not None:
            self.join()
        return self.asked

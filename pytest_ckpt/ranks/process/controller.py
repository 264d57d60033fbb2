"""Connection of this rank to the controller: events and requests for commands go there, jobs and results come back."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.commands import CommandRun
from pytest_ckpt.facts.events import CommandAsked, event_to_plain
from pytest_ckpt.ranks.process.activity import tell_on_standard_error
from pytest_ckpt.wire.caller import call

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ckpt.facts.commands import Command
    from pytest_ckpt.facts.events import Event
    from pytest_ckpt.facts.subject import Subject


END = "end"
"""What a rank says last, and hears when all that it said has arrived."""
WAITING, NEXT, LEAVE = "waiting", "next", "leave"
"""What a rank says when its job is done and another may follow, and the two answers."""

_END_SECONDS = 60.0


class Controller:
    """The controller, as a rank reaches it. Raises NoConnection where it does not.

    ``lost`` is called, in a thread, when the connection ends before all is done.
    """

    def __init__(self, lost: Callable[[], None]) -> None:
        self._caller = call()
        self._lost = lost
        self._process = os.getpid()
        self._heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._is_over = threading.Event()
        threading.Thread(target=self._listen, name="controller", daemon=True).start()

    def tell(self, event: Event) -> None:
        """Tell of an event. A process that this rank forked has no connection of its own."""
        if os.getpid() == self._process:
            self._caller.send(event_to_plain(event))
        else:
            tell_on_standard_error(event)

    def hear(self) -> Any:
        """Wait for what the controller says next. Raises RuntimeError when it says nothing any more."""
        word = self._heard.get()
        if word is None:
            raise RuntimeError("the connection to the controller has ended")
        return word

    def is_followed(self) -> bool:
        """Say that the job is done, and wait, without a core, for whether another one follows."""
        self._caller.send(WAITING)
        return bool(self.hear() == NEXT)

    def lose_after(self, seconds: float) -> None:
        """Take the connection for lost when nothing that is sent has arrived for so long."""
        self._caller.give_up_after(seconds)

    def finish(self) -> None:
        """Return when the controller has all that was told: what a process leaves behind at its end may be lost."""
        self._caller.send(END)
        if not self._is_over.wait(_END_SECONDS):
            raise RuntimeError(f"the controller has not confirmed within {_END_SECONDS:g} s what this rank told it")

    def _listen(self) -> None:
        try:
            while (word := self._caller.receive()) != END:
                self._heard.put(word)
            self._is_over.set()
        except (EOFError, OSError):
            self._heard.put(None)
            self._lost()


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

"""The connection of a rank to the controller. The rank sends events and requests; it receives jobs and results."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.commands import CommandRun
from pytest_ckpt.facts.events import CommandRequested, event_to_plain
from pytest_ckpt.ranks.process.activity import print_event
from pytest_ckpt.wire.caller import call

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ckpt.facts.commands import Command
    from pytest_ckpt.facts.events import Event
    from pytest_ckpt.facts.subject import Subject


END = "end"
"""The last message of a rank. The controller returns the same word once it has received all messages of the rank."""
WAITING, NEXT, LEAVE = "waiting", "next", "leave"
"""WAITING is the message of a rank whose job is done. The controller answers NEXT if another job follows, or LEAVE."""

_END_SECONDS = 60.0


class Controller:
    """A rank's connection to the controller. Raises NoConnection if the rank cannot connect.

    ``lost`` is called in a separate thread if the connection ends too early.
    """

    def __init__(self, lost: Callable[[], None]) -> None:
        self._caller = call()
        self._lost = lost
        self._process = os.getpid()
        self._received: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._is_over = threading.Event()
        threading.Thread(target=self._listen, name="controller", daemon=True).start()

    def report(self, event: Event) -> None:
        """Send an event to the controller.

        In a process that this rank has forked, write the event to standard error instead.
        """
        if os.getpid() == self._process:
            self._caller.send(event_to_plain(event))
        else:
            print_event(event)

    def receive(self) -> Any:
        """Wait for the controller's next message and return it. Raises RuntimeError if the connection has ended."""
        word = self._received.get()
        if word is None:
            raise RuntimeError("the connection to the controller has ended")
        return word

    def is_followed(self) -> bool:
        """Report that the job is done, and wait for the controller's answer. Return whether another job follows."""
        self._caller.send(WAITING)
        return bool(self.receive() == NEXT)

    def lose_after(self, seconds: float) -> None:
        """Treat the connection as lost if sent data are not acknowledged within this number of seconds."""
        self._caller.set_timeout(seconds)

    def finish(self) -> None:
        """Wait until the controller has received all messages.

        Without this wait, messages that are still being sent when the process ends may be lost. Raises RuntimeError if
        the controller does not confirm the messages within 60 s.
        """
        self._caller.send(END)
        if not self._is_over.wait(_END_SECONDS):
            raise RuntimeError(f"the controller has not confirmed within {_END_SECONDS:g} s the messages of this rank")

    def _listen(self) -> None:
        try:
            while (word := self._caller.receive()) != END:
                self._received.put(word)
            self._is_over.set()
        except (EOFError, OSError):
            self._received.put(None)
            self._lost()


class RequestedCommand:
    """A command that the controller runs. The command is requested when this object is created.

    ``at`` is the time of the request. ``received_at`` is the time when the result arrived; it is None before the
    arrival. Both times are on the clock of `time.perf_counter`.
    """

    def __init__(self, controller: Controller, subject: Subject, command: Command) -> None:
        self._controller = controller
        self.at = time.perf_counter()
        self.received_at: float | None = None
        self._run: CommandRun | None = None
        self._thread = threading.Thread(target=self._receive, name="commands", daemon=True)
        controller.report(CommandRequested(subject=subject, command=command))
        self._thread.start()

    def wait(self) -> CommandRun:
        """Wait until the command has ended, and return its result. Raises RuntimeError if no result arrives."""
        self._thread.join()
        if self._run is None:
            raise RuntimeError("the controller did not report the result of the requested command")
        return self._run

    def _receive(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._run = from_plain(CommandRun, self._controller.receive())
            self.received_at = time.perf_counter()


class DelayedRequest(threading.Thread):
    """A thread that requests a command ``seconds`` after the thread's start. An earlier call of `finish` prevents this.

    ``request`` is the requested command; None if no command was requested. ``seconds_into`` is the time from the
    thread's start to the request.
    """

    def __init__(self, controller: Controller, subject: Subject, command: Command, seconds: float) -> None:
        super().__init__(name="request", daemon=True)
        self._controller = controller
        self._subject, self._command = subject, command
        self._seconds = seconds
        self._over = threading.Event()
        self.request: RequestedCommand | None = None
        self.seconds_into = 0.0

    def run(self) -> None:
        """Wait. If `finish` was not called during the wait, request the command."""
        began = time.perf_counter()
        if not self._over.wait(self._seconds):
            self.request = RequestedCommand(self._controller, self._subject, self._command)
            self.seconds_into = self.request.at - began

    def finish(self) -> RequestedCommand | None:
        """Signal that the operation has ended. Return the command that was requested during the operation, or None."""
        self._over.set()
        if self.ident is not None:
            self.join()
        return self.request

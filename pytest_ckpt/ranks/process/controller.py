"""This rank's connection to the controller: events go there, the job and what came of commands come from there."""

from __future__ import annotations

import os
import queue
import threading
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.events import event_to_plain
from pytest_ckpt.ranks.process.activity import tell_on_standard_error
from pytest_ckpt.wire.caller import call

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ckpt.facts.events import Event

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

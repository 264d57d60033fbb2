"""A process that a rank forks, warm and without MPI, to be killed: it tells by single letters how far it has come.

The processes of all ranks are a group (`forked_group`), for engines whose ranks save together.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from typing import TYPE_CHECKING, Any

from pytest_ckpt.ranks.process.forked_group import ForkedGroup
from pytest_ckpt.support.die_with_parent import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ckpt.ranks.process.group import Group


class Forked:
    """Runs ``work(tell, hear, group)`` in a child; ``sent`` is what the child has told so far.

    ``tell(letter)`` reaches the parent, ``hear()`` waits for a letter of it. ``group`` is the child's among those of
    all ``ranks``. The child ends with its parent, and never returns into the code that made it.
    """

    def __init__(self, ranks: Group, work: Callable[[Callable[[str], None], Callable[[], str], Group], None]) -> None:
        self._heard, self._has_ended = "", False
        self._asked: list[Any] = []
        self._connection, of_child = multiprocessing.Pipe()
        self._from_child, to_parent = os.pipe()
        from_parent, self._to_child = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            code = 1
            try:
                die_with_parent()
                os.close(self._from_child)
                os.close(self._to_child)
                self._connection.close()
                group = ForkedGroup(ranks, of_child)
                work(lambda letter: _write(to_parent, letter), lambda: os.read(from_parent, 1).decode(), group)
                code = 0
            except BaseException as error:
                with contextlib.suppress(OSError):
                    _write(to_parent, f"!{type(error).__name__}: {error}\n")
            finally:
                os._exit(code)
        os.close(to_parent)
        os.close(from_parent)
        of_child.close()
        os.set_blocking(self._from_child, False)

    def poll(self) -> str:
        """Return what the child has told so far."""
        with contextlib.suppress(BlockingIOError):
            self._heard += os.read(self._from_child, 1 << 12).decode(errors="replace")
        return self.sent

    @property
    def sent(self) -> str:
        """The letters that the child has told, of which what it met is none."""
        return self._heard.partition("!")[0]

    @property
    def error(self) -> str:
        """What the child met; empty where nothing."""
        return self._heard.partition("!")[2].strip()

    def say(self, letter: str) -> None:
        """Send the child a letter."""
        with contextlib.suppress(BrokenPipeError):
            _write(self._to_child, letter)

    def asks(self) -> bool:
        """Return whether the child waits for what those of other ranks hand on; one that has ended does not."""
        if not self._asked and not self._has_ended and self._connection.poll():
            try:
                self._asked.append(self._connection.recv())
            except (EOFError, OSError):
                self._has_ended = True
        return bool(self._asked)

    def take(self) -> Any:
        """Return what the child hands on, which asks."""
        return self._asked.pop()

    def answer(self, found: list[Any]) -> None:
        """Hand the child what all of them have handed on."""
        with contextlib.suppress(OSError):
            self._connection.send(found)

    def kill(self) -> None:
        """Kill the child, hear what it still told, and let go of it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self.poll()
        os.close(self._from_child)
        os.close(self._to_child)
        self._connection.close()


def _write(descriptor: int, text: str) -> None:
    os.write(descriptor, text.encode())

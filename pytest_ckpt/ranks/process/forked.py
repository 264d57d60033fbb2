"""A process that a rank forks, warm and without MPI, to be killed: it tells by single letters how far it has come."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

from pytest_ckpt.support.die_with_parent import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable


class Forked:
    """Runs ``work(tell, hear)`` in a child; ``told`` is what the child has told so far.

    ``tell(letter)`` reaches the parent, ``hear()`` waits for a letter of it. The child ends with its parent, and never
    returns into the code that made it.
    """

    def __init__(self, work: Callable[[Callable[[str], None], Callable[[], str]], None]) -> None:
        self._heard = ""
        self._from_child, to_parent = os.pipe()
        from_parent, self._to_child = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            code = 1
            try:
                die_with_parent()
                os.close(self._from_child)
                os.close(self._to_child)
                work(lambda letter: _write(to_parent, letter), lambda: os.read(from_parent, 1).decode())
                code = 0
            except BaseException as error:
                with contextlib.suppress(OSError):
                    _write(to_parent, f"!{type(error).__name__}: {error}\n")
            finally:
                os._exit(code)
        os.close(to_parent)
        os.close(from_parent)
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

    def kill(self) -> None:
        """Kill the child, hear what it still told, and let go of it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self.poll()
        os.close(self._from_child)
        os.close(self._to_child)


def _write(descriptor: int, text: str) -> None:
    os.write(descriptor, text.encode())

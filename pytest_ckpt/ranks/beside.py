"""What a rank does in a thread of its own beside an operation."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Beside(threading.Thread):
    """Does something beside an operation; its error is raised where the operation waits for it."""

    def __init__(self, act: Callable[[threading.Event], None]) -> None:
        super().__init__()
        self._act = act
        self._over = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        """Act; keep the error for `finish`."""
        try:
            self._act(self._over)
        except BaseException as error:  # it is raised by finish
            self._error = error

    def finish(self) -> None:
        """Say that it is over, wait for the end and raise the error that was met."""
        self._over.set()
        self.join()
        if self._error:
            raise self._error

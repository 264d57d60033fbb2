"""The progress of a run in pytest's terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.launching.observer import Observer
from pytest_ckpt.launching.progress import Progress
from pytest_ckpt.plugin.terminal_lines import TerminalLines
from pytest_ckpt.support import waits

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_ckpt.facts.events import Event
    from pytest_ckpt.sizing.plan import PlannedCheckpoint
    from pytest_ckpt.sizing.steps import Steps


class TerminalObserver(Observer):
    """Shows the progress of a run through pytest's terminal; silent without a terminal (workers of xdist).

    ``steps`` and ``checks`` are the totals of the session.
    """

    def __init__(self, config: pytest.Config, steps: Sequence[Steps], checks: int) -> None:
        lines = TerminalLines(config)
        self._progress: Progress | None = None
        if lines.is_shown:
            self._progress = Progress(steps, checks, lines.write, lines.fresh_line, live=lines.is_live)
            # Its live line is cleared before a line about waits.
            waits.before_telling(self._progress.make_way)

    def begin(self, checkpoints: Sequence[PlannedCheckpoint]) -> None:
        """Begin a launch."""
        if self._progress:
            self._progress.begin(checkpoints)

    def take(self, event: Event) -> None:
        """Show an event."""
        if self._progress:
            self._progress.take(event)

    def printed(self, text: str) -> None:
        """Show a sentence."""
        if self._progress:
            self._progress.printed(text)

    def tick(self) -> None:
        """Bring the live line up to date."""
        if self._progress:
            self._progress.tick()

    def end(self) -> None:
        """Remove the live line."""
        if self._progress:
            self._progress.end()

    def checking(self, name: str) -> None:
        """Show that a check begins."""
        if self._progress:
            self._progress.checking(name)

    def checked(self, name: str, seconds: float) -> None:
        """Show that a check is over."""
        if self._progress:
            self._progress.checked(name, seconds)

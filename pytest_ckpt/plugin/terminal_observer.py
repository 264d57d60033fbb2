"""The progress of a run in pytest's terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.launching.observer import Observer
from pytest_ckpt.launching.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_ckpt.facts.events import Event
    from pytest_ckpt.sizing.plan import PlannedCheckpoint
    from pytest_ckpt.sizing.steps import Steps


class TerminalObserver(Observer):
    """Shows the progress of a run through pytest's terminal; silent where there is none (workers of xdist).

    ``steps`` and ``checks`` are all that the session will come to.
    """

    def __init__(self, config: pytest.Config, steps: Sequence[Steps], checks: int) -> None:
        self._capture = config.pluginmanager.getplugin("capturemanager")
        self._terminal = config.get_terminal_writer()
        self._blank_width: int | None = None
        reporter = None if hasattr(config, "workerinput") else config.pluginmanager.getplugin("terminalreporter")
        self._reporter = reporter
        self._progress = (
            Progress(steps, checks, self._write, self._fresh_line, live=reporter.isatty) if reporter else None
        )

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

    def _fresh_line(self) -> None:
        """End the line that pytest has begun; one that was only cleared is a fresh one."""
        width = self._terminal.width_of_current_line
        if width and width != self._blank_width:
            self._write("\n")

    def _write(self, text: str) -> None:
        assert self._reporter is not None
        with self._capture.global_and_fixture_disabled():
            self._reporter.write(text)
            self._reporter.flush()
        self._blank_width = self._terminal.width_of_current_line if text.endswith("\r") else None

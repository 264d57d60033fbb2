"""The progress of a launch in pytest's terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.launching.observer import Observer
from pytest_ckpt.launching.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_ckpt.facts.events import Event
    from pytest_ckpt.sizing.plan import PlannedCheckpoint


class TerminalObserver(Observer):
    """Shows the progress of a launch through pytest's terminal; silent where there is none (workers of xdist)."""

    def __init__(self, config: pytest.Config) -> None:
        self._capture = config.pluginmanager.getplugin("capturemanager")
        self._reporter = None if hasattr(config, "workerinput") else config.pluginmanager.getplugin("terminalreporter")
        self._progress: Progress | None = None

    def begin(self, checkpoints: Sequence[PlannedCheckpoint]) -> None:
        """Start a new set of lines."""
        if self._reporter is not None:
            self._write("\n")
            self._progress = Progress(checkpoints, self._write, live=self._reporter.isatty)

    def take(self, event: Event) -> None:
        """Show an event."""
        if self._progress:
            self._progress.take(event)

    def said(self, text: str) -> None:
        """Show a sentence."""
        if self._progress:
            self._progress.said(text)

    def tick(self) -> None:
        """Bring the live line up to date."""
        if self._progress:
            self._progress.tick()

    def end(self) -> None:
        """Remove the live line."""
        if self._progress:
            self._progress.end()
            self._progress = None

    def _write(self, text: str) -> None:
        assert self._reporter is not None
        with self._capture.global_and_fixture_disabled():
            self._reporter.write(text)
            self._reporter.flush()

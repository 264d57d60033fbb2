"""Output on pytest's terminal: single lines and the progress of a run. Works even while pytest captures output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.launching.progress import Progress
from pytest_ckpt.launching.recorder import Observer
from pytest_ckpt.support import waits

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_ckpt.facts.events import Event
    from pytest_ckpt.sizing.plan import PlannedCheckpoint
    from pytest_ckpt.sizing.steps import Steps


class TerminalLines:
    """Writes to pytest's terminal. A worker of pytest-xdist has no terminal; there, this class writes nothing."""

    def __init__(self, config: pytest.Config) -> None:
        self._capture = config.pluginmanager.getplugin("capturemanager")
        self._terminal = config.get_terminal_writer() if config.pluginmanager.hasplugin("terminalreporter") else None
        self._blank_width: int | None = None
        is_worker = hasattr(config, "workerinput")
        self._reporter = None if is_worker else config.pluginmanager.getplugin("terminalreporter")

    @property
    def is_shown(self) -> bool:
        """Whether this process has a terminal."""
        return self._reporter is not None

    @property
    def is_live(self) -> bool:
        """Whether a line may be overwritten."""
        return self._reporter is not None and self._reporter.isatty

    def fresh_line(self) -> None:
        """Start a new line if the current line contains text."""
        width = self._terminal.width_of_current_line if self._terminal else 0
        if width and width != self._blank_width:
            self.write("\n")

    def write(self, text: str) -> None:
        """Write a text unchanged, without an additional line end."""
        if self._reporter is None or self._terminal is None:
            return
        with self._capture.global_and_fixture_disabled():
            self._reporter.write(text)
            self._reporter.flush()
        self._blank_width = self._terminal.width_of_current_line if text.endswith("\r") else None
        if not text.startswith("\r"):
            # A live line does not count as output, because redirected output does not contain it.
            waits.spoke()

    def line(self, text: str) -> None:
        """Write text on a separate line."""
        self.fresh_line()
        self.write(f"{text}\n")


class TerminalObserver(Observer):
    """Prints the progress of a run on pytest's terminal. In a worker of pytest-xdist, it prints nothing.

    ``steps`` and ``checks`` are the steps and the number of checks of the whole session.
    """

    def __init__(self, config: pytest.Config, steps: Sequence[Steps], checks: int) -> None:
        lines = TerminalLines(config)
        self._progress: Progress | None = None
        if lines.is_shown:
            self._progress = Progress(steps, checks, lines.write, lines.fresh_line, live=lines.is_live)
            # The live line is cleared before a line about waits.
            waits.before_output(self._progress.clear_line)

    def begin(self, checkpoints: Sequence[PlannedCheckpoint]) -> None:
        """Record the start of a launch that measures ``checkpoints``."""
        if self._progress:
            self._progress.begin(checkpoints)

    def record(self, event: Event) -> None:
        """Show an event."""
        if self._progress:
            self._progress.record(event)

    def printed(self, text: str) -> None:
        """Show a sentence."""
        if self._progress:
            self._progress.printed(text)

    def tick(self) -> None:
        """Update the live line."""
        if self._progress:
            self._progress.tick()

    def end(self) -> None:
        """Record the end of a launch and clear the live line."""
        if self._progress:
            self._progress.end()

    def checking(self, name: str) -> None:
        """Show that a check begins."""
        if self._progress:
            self._progress.checking(name)

    def checked(self, name: str, seconds: float) -> None:
        """Show that a check has ended."""
        if self._progress:
            self._progress.checked(name, seconds)

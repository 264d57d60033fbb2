"""Console output of the subcommands: lines without control characters, and a progress bar."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from pytest_ckpt.support.units import counted


def print_lines(lines: Iterable[str]) -> None:
    """Print each text as one line, without control characters."""
    from pytest_ckpt.report.svg import printable  # noqa: PLC0415 - only when there is something to say

    for line in lines:
        print(printable(line).replace("\n", " "), flush=True)


_WIDTH = 30


class ProgressBar:
    """A progress bar such as ``reading [#####.....] 12 of 100 runs, 12,288 files``, on a stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._shown = ""

    def show(self, done: int, of: int, files: int) -> None:
        """Redraw the bar for ``done`` of ``of`` runs, with ``files`` files in total.

        If the stream is not a terminal, nothing is written.
        """
        if not self._live or not of:
            return
        filled = _WIDTH * done // of
        bar = "#" * filled + "." * (_WIDTH - filled)
        self._write(f"reading [{bar}] {done:,} of {counted(of, 'run')}, {counted(files, 'file')}")

    def end(self) -> None:
        """Remove the bar from the terminal."""
        if self._shown:
            self._write("")

    def _write(self, text: str) -> None:
        if text != self._shown:
            blank = " " * max(0, len(self._shown) - len(text))
            self._stream.write("\r" + text + blank + ("" if text else "\r"))
            self._stream.flush()
            self._shown = text

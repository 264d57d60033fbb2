"""What a person sees while ranks work: one live line on a terminal, one plain line an operation elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pytest_ckpt.facts.events import OperationDone, OperationStarted
from pytest_ckpt.support.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_ckpt.facts.events import Event
    from pytest_ckpt.facts.measurement import Operation
    from pytest_ckpt.sizing.plan import PlannedCheckpoint

_GIB = 1 << 30


class Progress:
    """Turns the events of a launch into lines.

    ``write`` takes text with its own line ends; ``live`` says that a line may be written over. The bytes of the
    operations that are done tell how long the rest will take.
    """

    def __init__(self, checkpoints: Sequence[PlannedCheckpoint], write: Callable[[str], None], *, live: bool) -> None:
        self._checkpoints = {c.subject: c for c in checkpoints}
        self._write = write
        self._live = live
        self._started = time.monotonic()
        self._first = 0.0
        self._doing = "starting the ranks"
        self._done_bytes = 0
        self._done = 0
        self._total = sum(2 * c.operations for c in checkpoints)
        self._total_bytes = sum(2 * c.operations * c.layout.bytes for c in checkpoints)
        self._shown = ""

    def take(self, event: Event) -> None:
        """Take in an event of rank 0."""
        if isinstance(event, OperationStarted):
            self._doing, self._started = str(event.operation), time.monotonic()
            # What is left is told from the operations, not from the start of the ranks.
            self._first = self._first or self._started
        elif isinstance(event, OperationDone):
            planned = self._checkpoints[event.subject]
            self._done += 1
            self._done_bytes += planned.layout.bytes
            self._line(self._result(planned, event.operation))

    def said(self, text: str) -> None:
        """Show a sentence on a line of its own."""
        self._line(text)

    def tick(self) -> None:
        """Bring the live line up to date."""
        if self._live:
            seconds = format_seconds(round(time.monotonic() - self._started))
            place = f"operation {self._done + 1} of {self._total}: " if self._done < self._total else ""
            self._show(f"{place}{self._doing}, {seconds}{self._left()}")

    def end(self) -> None:
        """Remove the live line."""
        self._show("")

    def _result(self, planned: PlannedCheckpoint, operation: Operation) -> str:
        kind, demand = operation.kind, planned.demand
        needed = demand.save_bytes_per_second if kind == "save" else demand.load_bytes_per_second
        rate = operation.bytes_per_second / _GIB
        return (
            f"[{self._done}/{self._total}] {planned.subject} {kind} {operation.index} of {planned.operations}: "
            f"{format_seconds(operation.seconds)}, {rate:.3g} GiB/s (needed: {needed / _GIB:.3g}){self._left()}"
        )

    def _left(self) -> str:
        if not self._done_bytes or self._done >= self._total:
            return ""
        seconds = (time.monotonic() - self._first) * (self._total_bytes / self._done_bytes - 1)
        return f", about {format_seconds(round(seconds) or 1)} left"

    def _line(self, text: str) -> None:
        if self._live:
            self._show("")
        self._write(text + "\n")

    def _show(self, text: str) -> None:
        if text != self._shown:
            blank = " " * max(0, len(self._shown) - len(text))
            self._write("\r" + text + blank + ("" if text else "\r"))
            self._shown = text

"""How long the steps that are left will take, told from those that are over. Pure."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_ckpt.sizing.steps import MAXIMUM_TURN_SECONDS, MINIMUM_TURN_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.sizing.steps import Steps


@dataclass(slots=True)
class Row:
    """How far steps of one kind have come. ``count`` shrinks where some will never be done.

    ``part_done`` counts the saves of endurance, which is one step. ``clock_seconds`` went by in steps that the clock
    decides.
    """

    steps: Steps
    count: int
    done: int = 0
    part_done: int = 0
    clock_seconds: float = 0.0
    seconds: list[float] = field(default_factory=list)

    def ended(self, seconds: float) -> None:
        """Take in the end of a step."""
        self.done += 1
        self.count = max(self.count, self.done)
        self.seconds.append(seconds)
        if self.steps.turn_seconds is not None:
            self.clock_seconds += seconds

    def restart(self) -> None:
        """Forget what was done: it is done again."""
        self.count, self.done, self.part_done = self.steps.count, 0, 0
        self.seconds.clear()

    @property
    def bytes_done(self) -> int:
        """The bytes of the steps that the storage decides."""
        if self.steps.parts > 1:
            return self.part_done * self.steps.bytes_each // self.steps.parts
        return self.done * self.steps.bytes_each

    @property
    def bytes_left(self) -> int:
        """Those that are to come."""
        if self.done >= self.count:
            return 0
        return self.count * self.steps.bytes_each - self.bytes_done


def seconds_left(rows: Sequence[Row], spent_seconds: float) -> float | None:
    """Return how long the rest of the steps takes; None where nothing tells it, or nothing is left.

    ``spent_seconds`` went by so far. What the storage decides goes on at the pace of what is over; what the clock
    decides takes its time.
    """
    done = sum(row.bytes_done for row in rows)
    if not done or all(row.done >= row.count for row in rows):
        return None
    left = sum(row.bytes_left for row in rows)
    pace = (spent_seconds - sum(row.clock_seconds for row in rows)) / done
    return max(0.0, pace) * left + sum(_by_clock(row, rows) for row in rows)


def _by_clock(row: Row, rows: Sequence[Row]) -> float:
    turn = row.steps.turn_seconds
    if turn is None or row.done >= row.count:
        return 0.0
    if not turn:
        # A turn lasts as long as the subject's saves do, within bounds.
        saves = [
            seconds
            for other in rows
            if other.steps.kind == "save" and other.steps.subject == row.steps.subject
            for seconds in other.seconds
        ]
        usual = statistics.median(saves) if saves else 0.0
        return (row.count - row.done) * min(max(usual, MINIMUM_TURN_SECONDS), MAXIMUM_TURN_SECONDS)
    return max(0.0, row.count * turn - row.clock_seconds)

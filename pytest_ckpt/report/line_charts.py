"""What line charts over cluster sizes share: a frame, its grid, labels, lines, and names at the lines' ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.report.svg import Axis, label, line, number, tag
from pytest_ckpt.support import units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# Names of lines that end near each other stand so far below each other.
_NAME_HEIGHT = 15.0
_TICK_GAP, _NAME_GAP, _LABEL_DEPTH = 6, 8, 18


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """Where the lines of a chart lie, in pixels: between ``left`` and ``right``, ``top`` and ``bottom``."""

    left: float
    right: float
    top: float
    bottom: float

    def grid(self, up: Axis, words: Callable[[float], str]) -> list[str]:
        """Draw a line for each tick of the upright axis, with its value before it."""
        parts = []
        for value in up.ticks():
            parts.append(line(self.left, up.at(value), self.right, up.at(value), "grid"))
            parts.append(label(self.left - _TICK_GAP, up.at(value) + 4, words(value), "t", "end"))
        return parts

    def counts_below(self, across: Axis, counts: Iterable[int]) -> list[str]:
        """Write counts below the chart, each at its place."""
        return [
            label(across.at(count), self.bottom + _LABEL_DEPTH, units.format_count(count), "t quiet", "middle")
            for count in counts
        ]

    def names(self, ends: Iterable[tuple[float, str]]) -> list[str]:
        """Write the name of each line where it ends: pairs of the height and the name."""
        parts, free = [], self.top
        for height, name in sorted(ends):
            free = max(height + 4, free)
            parts.append(label(self.right + _NAME_GAP, free, name, "t"))
            free += _NAME_HEIGHT
        return parts

    def ground(self) -> str:
        """Draw the level axis."""
        return line(self.left, self.bottom, self.right, self.bottom, "axis")


def curve(points: Sequence[tuple[float, float]]) -> str:
    """Draw a line through points."""
    path = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return tag("path", d=path, class_="save-line", fill="none")


def mark(x: float, y: float) -> str:
    """Draw the dot of a point."""
    return tag("circle", cx=x, cy=y, r=3.2, class_="mark save-mark")

"""Charts as SVG. All functions are pure: they convert plain values to a string, and escape all text.

Charts can be read without color: saves are dots, loads are diamonds, operations over a limit are crosses, and a legend
names every series. `Frame` draws the grid and the labels that several line charts have in common.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_ckpt.report.quantity import NONE, decimals_for, seconds_text
from pytest_ckpt.report.svg import Axis, escape, label, line, number, picture, rectangle, tag
from pytest_ckpt.support import units
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


Operation = Mapping[str, Any]

_WIDTH, _LEFT, _RIGHT = 520, 46, 474
_PHASES = ("stage", "open", "write", "read", "fsync", "close", "directory", "coordination", "commit")
BETWEEN = "between calls"
"""The name of the time outside storage calls: a library plans its calls, or ranks wait for each other."""
_LEAST_SEEN = 0.02
_MAXIMUM_LABELLED = 12
_FAR_ABOVE = 4.0
_WIDE_RANGE = 12.0


def operations_chart(
    key: str, kind: str, operations: Sequence[Operation], planned: int, limit_seconds: float | None
) -> str:
    """Return a chart of the time of every operation, with the spread over ranks and a line for the limit.

    The axis covers the measured times. If the limit is far above these times, the limit is written at the top edge. If
    the times differ greatly, the axis is logarithmic.
    """
    results = [o["seconds"] for o in operations]
    if not results:
        return ""
    top, bottom, height = 44.0, 222.0, 262
    axis, beyond = _seconds_axis(operations, limit_seconds, bottom, top)
    ticks, unit = time_ticks(axis)
    parts = [
        part
        for value in ticks
        for part in (
            line(_LEFT, axis.at(value), _RIGHT, axis.at(value), "grid"),
            label(_LEFT - 6, axis.at(value) + 4, time_label(value, unit), "t", "end"),
        )
    ]
    slots = _slots(operations, planned)
    width = (_RIGHT - _LEFT) / len(slots)
    worst = max(results)
    decimals = decimals_for(worst * unit[1])
    by_index = {o["index"]: o for o in operations}
    for position, index in enumerate(slots):
        x = _LEFT + (position + 0.5) * width
        operation = by_index.get(index)
        if operation is None:
            parts.append(label(x, bottom - 6, NONE, "t quiet", "middle"))
        else:
            late = limit_seconds is not None and operation["seconds"] > limit_seconds
            parts += _one_operation(kind, operation, axis, x, width, late)
            if len(slots) <= _MAXIMUM_LABELLED or operation["seconds"] == worst:
                emphasis = "t value worst" if operation["seconds"] == worst else "t value"
                shown = f"{operation['seconds'] * unit[1]:,.{decimals}f}"
                parts.append(label(x, bottom + 33, shown, emphasis, "middle"))
        if _shows_index(position, len(slots)):
            parts.append(label(x, bottom + 17, index, "t", "middle"))
    parts.append(line(_LEFT, bottom, _RIGHT, bottom, "axis"))
    parts.append(label(_LEFT - 6, bottom + 17, "no.", "t quiet", "end"))
    parts.append(label(_LEFT - 6, bottom + 33, unit[0], "t quiet", "end"))
    parts.append(label(0, 16, f"{kind}s, {unit[0]}" + (", log" if axis.log else ""), f"t strong {kind}-text"))
    extremes = f"Slowest {seconds_text(worst)}, fastest {seconds_text(min(results))}."
    described = f"{len(results)} of {counted(planned, kind)}. {extremes}"
    if limit_seconds is not None:
        parts += _limit(axis, limit_seconds, beyond, top)
        late_count = sum(r > limit_seconds for r in results)
        described += f" Limit {seconds_text(limit_seconds)}: {late_count or 'none'} above it."
    title = f"Time of every {kind}, slowest rank and spread over ranks"
    return picture(key, _WIDTH, height, title, described, parts, "half")


def phases_chart(key: str, kind: str, operations: Sequence[Operation], planned: int) -> str:
    """Return a chart with a column for each operation: the time of the slowest rank, divided by phase."""
    staged = [o for o in operations if o.get("phases")]
    names = phase_names(staged)
    if not names:
        return ""
    top, bottom, height = 30.0, 140.0, 166
    tallest = max(sum(_phases(o).values()) for o in staged) or 1.0
    axis = Axis(low=0.0, high=tallest * 1.04, start=bottom, end=top)
    ticks, unit = time_ticks(axis, 3)
    parts = [
        part
        for value in ticks
        for part in (
            line(_LEFT, axis.at(value), _RIGHT, axis.at(value), "grid"),
            label(_LEFT - 6, axis.at(value) + 4, time_label(value, unit), "t", "end"),
        )
    ]
    slots = _slots(operations, planned)
    width = (_RIGHT - _LEFT) / len(slots)
    by_index = {o["index"]: o for o in staged}
    for position, index in enumerate(slots):
        x = _LEFT + (position + 0.5) * width
        below = 0.0
        phases = _phases(by_index[index]) if index in by_index else {}
        for name in names:
            spent = phases.get(name, 0.0)
            if spent <= 0:
                continue
            y = axis.at(below + spent)
            hint = f"{kind} {index}: {name} {seconds_text(spent)}"
            bar = min(width * 0.62, 30)
            parts.append(rectangle(x - bar / 2, y, bar, axis.at(below) - y, f"bar {phase_class(name)}", hint))
            below += spent
        if _shows_index(position, len(slots)):
            parts.append(label(x, bottom + 17, index, "t", "middle"))
    parts.append(line(_LEFT, bottom, _RIGHT, bottom, "axis"))
    parts.append(label(0, 16, f"phases of the slowest rank, {unit[0]}", "t quiet"))
    shares = ", ".join(f"{name} {share:.0%}" for name, share in phase_shares(staged).items())
    described = f"Of the slowest ranks' time in all {kind}s: {shares}."
    return picture(key, _WIDTH, height, f"Phases of the slowest rank in every {kind}", described, parts, "half")


def phase_names(operations: Sequence[Operation]) -> list[str]:
    """Return the phases that took time, in their usual order. Unknown phases come last."""
    phases = dict.fromkeys(n for o in operations for n, seconds in _phases(o).items() if seconds > 0)
    return [n for n in _PHASES if n in phases] + [n for n in phases if n not in _PHASES]


def phase_shares(operations: Sequence[Operation]) -> dict[str, float]:
    """Return {phase: share of the phase in the total time}. Each operation counts with its slowest rank's time."""
    spent = {n: sum(_phases(o).get(n, 0.0) for o in operations) for n in phase_names(operations)}
    whole = sum(spent.values()) or 1.0
    return {name: seconds / whole for name, seconds in spent.items()}


def _phases(operation: Operation) -> dict[str, float]:
    """Return {phase: seconds} of an operation.

    The time between phases is included as one more phase if it would be visible in a chart.
    """
    phases: dict[str, float] = dict(operation.get("phases") or {})
    rest = operation["seconds"] - sum(phases.values())
    return phases | {BETWEEN: rest} if phases and rest > _LEAST_SEEN * operation["seconds"] else phases


def phase_class(name: str) -> str:
    """Return the style-sheet class of a phase."""
    return f"phase-{name}" if name in _PHASES else "phase-other"


def mark(
    kind: str, x: float, y: float, size: float, *, late: bool = False, hollow: bool = False, hint: str = ""
) -> str:
    """Return the mark of one operation: a dot for a save, a diamond for a load, or a cross if ``late``.

    ``hollow`` leaves the mark unfilled. ``hint`` is the mark's title.
    """
    inside = tag("title", escape(hint)) if hint else ""
    style = f"mark {kind}-mark" + (" hollow" if hollow else "")
    if late:
        s, back = number(2 * size + 1), number(-2 * size - 1)
        path = f"M{number(x - size - 0.5)} {number(y - size - 0.5)}l{s} {s}m0 {back}l{back} {s}"
        return tag("path", inside, d=path, class_="late")
    if kind == "load":
        s, back = number(size * 1.25), number(-size * 1.25)
        path = f"M{number(x)} {number(y - size * 1.25)}l{s} {s}l{back} {s}l{back} {back}z"
        return tag("path", inside, d=path, class_=style)
    return tag("circle", inside, cx=float(x), cy=float(y), r=float(size), class_=style)


def _seconds_axis(operations: Sequence[Operation], limit: float | None, bottom: float, top: float) -> tuple[Axis, bool]:
    """Return (axis of seconds for a chart, whether the limit is too large for this axis)."""
    every = [v for o in operations for v in (o["seconds"], *(o.get("rank_seconds") or ()))]
    highest, minimum = max(*every, 1e-9), max(min(every), 1e-9)
    middle = statistics.median(o["seconds"] for o in operations)
    beyond = limit is not None and limit > highest * _FAR_ABOVE
    shown = highest if limit is None or beyond else max(highest, limit)
    if highest > _WIDE_RANGE * max(middle, 1e-9):
        low = min(minimum, limit if limit is not None and limit > 0 else minimum) / 1.3
        return Axis(low=low, high=shown * 1.5, start=bottom, end=top, log=True), beyond
    return Axis(low=0.0, high=shown * 1.12, start=bottom, end=top), beyond


def _limit(axis: Axis, limit: float, beyond: bool, top: float) -> list[str]:
    y = top - 12 if beyond else axis.at(limit)
    text = f"limit {seconds_text(limit)}"
    if beyond:
        text += f" (this axis ends at {seconds_text(axis.high)})"
    name = "↑ limit" if beyond else "limit"
    return [
        line(_LEFT, y, _RIGHT, y, "limit"),
        label(_RIGHT + 4, y + 4, name, "t strong"),
        label(_WIDTH - 2, 16, text, "t strong", "end"),
    ]


def _one_operation(kind: str, operation: Operation, axis: Axis, x: float, width: float, late: bool) -> list[str]:
    parts = []
    ranks = sorted(operation.get("rank_seconds") or ())
    half = min(width * 0.2, 7.0)
    if len(ranks) > 1:
        low, high = axis.at(ranks[0]), axis.at(ranks[-1])
        parts.append(line(x, low, x, high, f"whisker {kind}-line"))
        if len(ranks) >= 4:
            quarter, three = statistics.quantiles(ranks, n=4, method="inclusive")[::2]
            y = axis.at(three)
            parts.append(rectangle(x - half, y, 2 * half, axis.at(quarter) - y, f"box {kind}-box"))
        median = axis.at(statistics.median(ranks))
        parts.append(line(x - half, median, x + half, median, "median"))
    text = f"{kind} {operation['index']}: {seconds_text(operation['seconds'])}"
    if operation.get("slowest_rank") is not None:
        text += f", slowest rank {operation['slowest_rank']}"
    parts.append(mark(kind, x, axis.at(operation["seconds"]), min(4.5, width * 0.4), late=late, hint=text))
    return parts


def _slots(operations: Sequence[Operation], planned: int) -> list[int]:
    """Return the numbers of all planned operations, including operations that did not run."""
    return list(range(1, max(planned, *(o["index"] for o in operations)) + 1))


def _shows_index(position: int, slots: int) -> bool:
    return position % math.ceil(slots / 20) == 0


def time_ticks(axis: Axis, wanted: int = 5) -> tuple[list[float], tuple[str, float]]:
    """Return (ticks, unit of the tick labels) for an axis of time.

    Ticks are in seconds, at round values of the unit. The unit is (name, number of units per second).
    """
    unit = ("ms", 1000.0) if axis.high < 1 else ("s", 1.0) if axis.high < 600 else ("min", 1 / 60)
    shown = Axis(low=axis.low * unit[1], high=axis.high * unit[1], start=axis.start, end=axis.end, log=axis.log)
    return [tick / unit[1] for tick in shown.ticks(wanted)], unit


def time_label(seconds: float, unit: tuple[str, float]) -> str:
    """Return the label of a tick at ``seconds``, in a unit that `time_ticks` returned."""
    return f"{seconds * unit[1]:,.10g}"


# Names of lines that end close together are moved apart.
_NAME_HEIGHT = 15.0
_TICK_GAP, _NAME_GAP, _LABEL_DEPTH = 6, 8, 18


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """The rectangle in which a chart draws its curves, in pixels. The methods return labels and lines as SVG."""

    left: float
    right: float
    top: float
    bottom: float

    def grid(self, up: Axis, words: Callable[[float], str]) -> list[str]:
        """Return a horizontal line for each tick of the axis ``up``, with the tick's value on the left."""
        parts = []
        for value in up.ticks():
            parts.append(line(self.left, up.at(value), self.right, up.at(value), "grid"))
            parts.append(label(self.left - _TICK_GAP, up.at(value) + 4, words(value), "t", "end"))
        return parts

    def counts_below(self, across: Axis, counts: Iterable[int]) -> list[str]:
        """Return labels with the given counts below the frame, at their positions on the axis ``across``."""
        return [
            label(across.at(count), self.bottom + _LABEL_DEPTH, units.format_count(count), "t quiet", "middle")
            for count in counts
        ]

    def names(self, ends: Iterable[tuple[float, str]]) -> list[str]:
        """Return the names of curves at their right ends. ``ends`` contains (height, name) of each curve."""
        parts, free = [], self.top
        for height, name in sorted(ends):
            free = max(height + 4, free)
            parts.append(label(self.right + _NAME_GAP, free, name, "t"))
            free += _NAME_HEIGHT
        return parts

    def ground(self) -> str:
        """Return the horizontal axis."""
        return line(self.left, self.bottom, self.right, self.bottom, "axis")


def curve(points: Sequence[tuple[float, float]]) -> str:
    """Return an SVG line through the given points."""
    path = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return tag("path", d=path, class_="save-line", fill="none")


def dot(x: float, y: float) -> str:
    """Return an SVG dot at a point."""
    return tag("circle", cx=x, cy=y, r=3.2, class_="dot save-dot")

"""What each subject leaves for training, over clusters of different size: the curves of the certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_ckpt.report.svg import Axis, label, line, number, picture, tag
from pytest_ckpt.support.units import counted, format_percent

_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM, _HEIGHT = 1040, 70.0, 1010.0, 34.0, 250.0, 290
_NAMES = "abcdefghijklmnopqrstuvwxyz"
COLORS = 8
"""Of so many curves each has a color of its own (`.line-0` on, as swatches `.stage-0`)."""
# Below, a share of time is nothing that anybody would see.
_MINIMUM_LOST = 0.0001
# The height of a letter, with what keeps it apart from the next.
_LETTER = 13.0
# The width of a digit, by which numbers are kept apart.
_DIGIT = 7.0


def curve_names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the letter by which the chart names each row; empty where there are more rows than letters."""
    return [_NAMES[position] if position < len(_NAMES) else "" for position in range(len(rows))]


def goodput_chart(key: str, rows: Sequence[Mapping[str, Any]], asked: int) -> str:
    """Return the share of time that does not train, for each row of a report's ``training``, over clusters.

    Both axes are logarithmic. A point is hollow where the limits of that cluster are not met. A letter stands at both
    ends of each curve; where curves lie on each other, their letters stand below each other, in their order.
    """
    curves = [(row, [(c["accelerators"], _lost(c)) for c in row.get("clusters") or []]) for row in rows]
    points = [point for _, of_row in curves for point in of_row]
    if not points:
        return ""
    sizes = sorted({size for size, _ in points})
    x = Axis(low=sizes[0] / 1.3, high=sizes[-1] * 1.3, start=_LEFT, end=_RIGHT, log=True)
    y = Axis(low=min(lost for _, lost in points) / 1.6, high=1.0, start=_BOTTOM, end=_TOP, log=True)
    parts = [label(0, 16, "time that does not train: saving, loading, work lost", "t quiet")]
    for tick in y.ticks():
        parts.append(line(_LEFT, y.at(tick), _RIGHT, y.at(tick), "grid"))
        parts.append(label(_LEFT - 8, y.at(tick) + 4, format_percent(tick), "t", "end"))
    for size in _with_room(sizes, x, asked):
        parts.append(label(x.at(size), _BOTTOM + 18, f"{size:,}", "t strong" if size == asked else "t", "middle"))
    parts.append(tag("path", d=f"M{number(x.at(asked))} {number(_TOP)}V{number(_BOTTOM)}", class_="limit"))
    ends: dict[int, list[tuple[float, str]]] = {0: [], -1: []}
    for position, (name, (row, of_row)) in enumerate(zip(curve_names(rows), curves, strict=True)):
        path = "L".join(f"{number(x.at(size))} {number(y.at(lost))}" for size, lost in of_row)
        color = f"line-{position % COLORS}"
        parts.append(tag("path", d=f"M{path}", class_=f"curve {color}"))
        for (size, lost), cluster in zip(of_row, row["clusters"], strict=True):
            style = f"point {color}" if cluster["is_served"] else f"point hollow {color}"
            parts.append(tag("circle", cx=x.at(size), cy=y.at(lost), r=3.4, class_=style))
        for end, column in ends.items():
            column.append((y.at(of_row[end][1]) + 4, name))
    for end, column in ends.items():
        at, side = x.at(sizes[end]), 10 if end else -10
        parts += [label(at + side, height, name, "t", "middle") for height, name in _apart(column)]
    parts.append(line(_LEFT, _BOTTOM, _RIGHT, _BOTTOM, "axis"))
    parts.append(label(_RIGHT, _BOTTOM + 34, "accelerators", "t quiet", "end"))
    at_asked = "; ".join(
        f"{row['subject']} {format_percent(cluster['effective_training_time_ratio'])}"
        for row in rows
        for cluster in row.get("clusters") or []
        if cluster["accelerators"] == asked
    )
    described = f"Time that trains at {counted(asked, 'accelerator')}: {at_asked}."
    return picture(key, _WIDTH, _HEIGHT, "Time that does not train, over clusters", described, parts, "wide")


def _with_room(sizes: Sequence[int], x: Axis, asked: int) -> list[int]:
    """Return the sizes whose numbers do not touch below the axis; the asked one stands there, then the largest."""
    shown: list[int] = []
    for size in sorted(sizes, key=lambda size: (size != asked, -size)):
        halves = {other: _DIGIT * (len(f"{size:,}") + len(f"{other:,}")) / 2 for other in shown}
        if all(abs(x.at(size) - x.at(other)) > half + _DIGIT for other, half in halves.items()):
            shown.append(size)
    return sorted(shown)


def _apart(column: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return letters at heights at which none lies on another, from the top; those that find no room are left out."""
    room = int((_BOTTOM - _TOP) // _LETTER)
    shown = sorted(column)[:room]
    places: list[float] = []
    for at, _ in shown:
        places.append(max(at, places[-1] + _LETTER) if places else max(at, _TOP))
    # What was pushed below the axis pushes back what is above it.
    lowest = _BOTTOM - 4
    for position in range(len(places) - 1, -1, -1):
        places[position] = min(places[position], lowest)
        lowest = places[position] - _LETTER
    return [(at, name) for at, (_, name) in zip(places, shown, strict=True)]


def _lost(cluster: Mapping[str, Any]) -> float:
    ratio: float = cluster["effective_training_time_ratio"]
    return min(1.0, max(_MINIMUM_LOST, 1.0 - ratio))

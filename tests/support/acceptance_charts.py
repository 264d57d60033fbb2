"""SVG charts of the acceptance study: the share of simulated arrays that pass, for each margin to the limit."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_ckpt.report.charts import curve, dot
from pytest_ckpt.report.svg import Axis, label, line, number, picture, tag
from pytest_ckpt.support.units import format_percent
from tests.support.simulated_arrays import truth_of

Point = Mapping[str, Any]

_COLUMNS = 3
_PANEL_WIDTH, _PANEL_HEIGHT = 300, 196
_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 286.0, 34.0, 156.0
# An SVG file is shown without the certificate's style sheet, so it contains the colours for paper.
_STYLE = """
text { font: 12px sans-serif; fill: #1b2733; }
.quiet { fill: #5a6875; } .strong { font-weight: 700; }
path { fill: none; } .ground { fill: #ffffff; stroke: none; }
.grid { stroke: #d9dfe5; stroke-width: 0.8; } .axis { stroke: #5a6875; }
.limit { stroke: #b3261e; stroke-width: 1.4; stroke-dasharray: 6 4; }
.save-line { stroke: #1f5fa8; stroke-width: 1.8; } .dot { fill: #1f5fa8; }
.buyer { fill: #b3261e; fill-opacity: 0.22; stroke: none; } .vendor { fill: #e0a100; fill-opacity: 0.35; stroke: none; }
"""


def file_of(row: str) -> str:
    """Return the file name of the chart of a requirement, such as ``acceptance-save.svg``."""
    return f"acceptance-{re.sub(r'[^A-Za-z]+', '-', row).strip('-').lower()}.svg"


def passed_share(point: Point) -> float:
    """Return the share, from 0 to 1, of the simulated arrays that pass at one point of a curve."""
    return float(point["passed"] / (point["passed"] + point["failed"]))


def curves_picture(document: Mapping[str, Any], row: str) -> str:
    """Return the chart of a requirement as SVG text, with a panel for each kind of array."""
    curves = [each for each in document["curves"] if each["row"] == row]
    lines = -(-len(curves) // _COLUMNS)
    width, height = _COLUMNS * _PANEL_WIDTH, lines * _PANEL_HEIGHT + 30
    parts = [tag("style", _STYLE), tag("rect", width="100%", height="100%", class_="ground")]
    for position, each in enumerate(curves):
        x, y = position % _COLUMNS * _PANEL_WIDTH, position // _COLUMNS * _PANEL_HEIGHT
        parts.append(tag("g", "".join(_panel(each)), transform=f"translate({x} {y})"))
    parts += _legend(height - 10.0)
    described = f"Share of arrays that pass {row} over their margin; {document['arrays']} simulated arrays a point."
    found = picture(f"acceptance-{row}", width, height, f"{row}: how often arrays pass", described, parts)
    return found.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"


def _panel(each: Mapping[str, Any]) -> list[str]:
    points: Sequence[Point] = each["points"]
    across = Axis(low=points[0]["margin"], high=points[-1]["margin"], start=_LEFT, end=_RIGHT)
    up = Axis(low=0.0, high=1.0, start=_BOTTOM, end=_TOP)
    at = [(across.at(point["margin"]), up.at(passed_share(point))) for point in points]
    border = across.at(truth_of(each["truth"]).good_margin)
    parts = [label(_LEFT, 18, each["truth"], "strong")]
    for value in (0.0, 0.5, 1.0):
        parts.append(line(_LEFT, up.at(value), _RIGHT, up.at(value), "grid"))
        parts.append(label(_LEFT - 6, up.at(value) + 4, format_percent(value), "quiet", "end"))
    on_border = (border, _height_at(border, at))
    parts.append(_area([*(one for one in at if one[0] < border), on_border], _BOTTOM, "buyer"))
    parts.append(_area([on_border, *(one for one in at if one[0] > border)], _TOP, "vendor"))
    parts.append(line(border, _TOP, border, _BOTTOM, "limit"))
    parts += [curve(at), *(dot(x, y) for x, y in at), line(_LEFT, _BOTTOM, _RIGHT, _BOTTOM, "axis")]
    for value in across.ticks(4):
        parts.append(label(across.at(value), _BOTTOM + 17, _margin(value), "quiet", "middle"))
    return parts


def _height_at(x: float, points: Sequence[tuple[float, float]]) -> float:
    """Return the y at ``x`` on the line through ``points``, by linear interpolation."""
    (left, low), (right, high) = next(pair for pair in itertools.pairwise(points) if pair[0][0] <= x <= pair[1][0])
    return low + (high - low) * (x - left) / (right - left)


def _margin(value: float) -> str:
    return f"{value * 100:+.0f} %" if value else "0"


def _area(points: Sequence[tuple[float, float]], edge: float, class_: str) -> str:
    """Return an SVG shape that fills the area between a curve and the horizontal line at height ``edge``.

    The area shows the share of wrong verdicts. ``class_`` is the CSS class of the shape.
    """
    corners = [(points[0][0], edge), *points, (points[-1][0], edge)]
    return tag("path", d="M" + "L".join(f"{number(x)} {number(y)}" for x, y in corners) + "z", class_=class_)


def _legend(y: float) -> list[str]:
    words = (("buyer", "bad arrays that pass (buyer's risk)"), ("vendor", "good arrays that fail (vendor's risk)"))
    parts = []
    for position, (class_, text) in enumerate(words):
        x = _LEFT + position * 250
        parts.append(tag("path", d=f"M{number(x)} {number(y - 10)}h14v12h-14z", class_=class_))
        parts.append(label(x + 20, y, text, "quiet"))
    parts.append(line(_LEFT + 510, y - 4, _LEFT + 530, y - 4, "limit"))
    parts.append(label(_LEFT + 536, y, "good arrays begin; across: margin, up: share that passes", "quiet"))
    return parts

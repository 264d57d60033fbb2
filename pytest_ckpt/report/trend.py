"""The trend of save and load times over many runs: lines with sparklines for a terminal, and an HTML page."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from pytest_ckpt.analysis.statistics import MINIMUM_RUNS
from pytest_ckpt.report.svg import Axis, escape, label, line, picture, printable, tag
from pytest_ckpt.support import units

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ckpt.report.html import PageSection

    Plain = Mapping[str, Any]
    """A trend, one of its series or a point, in the form of its schema."""

_METHOD = (
    "Each point is the median of a run's operations. A change is reported when the newest 5, 8, 13 or 21 runs differ "
    "from the up to 40 runs before them in an exact rank test (Mann and Whitney), with at most 0.05 % false alarms per "
    "look if the order of the runs carries no trend. A change that is older than 21 runs becomes the baseline."
)
_BARS = {True: "▁▂▃▄▅▆▇█", False: "_.-=+*#@"}
_COLUMNS = ("median", "slowest", "limit")
_SHOWN = 40
_P99 = "99th percentile of each run, at its worst endpoint"
_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM, _HEIGHT = 1060, 78.0, 1040.0, 34.0, 190.0, 222


def trend_lines(document: Plain, *, unicode: bool) -> list[str]:
    """Return the trend as lines of text.

    Sparklines consist of block characters if ``unicode`` is true; otherwise of ASCII characters.
    """
    form = "{:<22} {:<5}{:>5}{:>12}{:>12}{:>12}{:>8}  {}"
    lines = [units.counted(document["runs"], "run"), ""]
    lines.append(form.format("checkpoint", "", "runs", "newest", "slowest", "limit", "late", "median of each run"))
    for series in document["series"]:
        points = series["points"]
        newest = points[-1] if points else None
        cells = [series["subject"], series["kind"], len(points)]
        if newest:
            cells += [units.format_seconds(newest[f"{n}_seconds"]) for n in _COLUMNS]
            cells += [_late(points), sparkline([p["median_seconds"] for p in points[-_SHOWN:]], unicode=unicode)]
        else:
            cells += ["-", "-", "-", "-", ""]
        lines.append(form.format(*cells).rstrip())
    lines.append("")
    lines += [f"{s['subject']} {s['kind']}: {_change(s)}" for s in document["series"] if s["change"]]
    if not any(s["change"] for s in document["series"]):
        lines.append("no change shows")
    young = [s for s in document["series"] if not s["can_show"]]
    lines += [
        f"{s['subject']} {s['kind']}: too few runs to show a change: {len(s['points'])} of {MINIMUM_RUNS}"
        for s in young
    ]
    lines += _lines_of_requests(document["requests"], unicode=unicode)
    lines += [f"{s['subject']} {s['kind']}: left out: {text}" for s in document["series"] if (text := _omitted(s))]
    lines += document["notices"]
    if document["regression"] is not None:
        threshold = units.format_percent(document["regression"])
        named = ", ".join(document["regressions"])
        blind = f"; {len(young)} of {len(document['series'])} series are too short to show one" if young else ""
        lines.append(
            f"REGRESSION of at least {threshold}: {named}" if named else f"no regression of {threshold}{blind}"
        )
    lines += ["", *textwrap.wrap(_METHOD, 100)]
    return [printable(text).replace("\n", " ") for text in lines]


def _lines_of_requests(requests: Sequence[Plain], *, unicode: bool) -> list[str]:
    """Return a line for each kind of object-store request with the number of runs, the newest time, and a sparkline.

    For each kind whose times have changed, return another line on this change.
    """
    if not requests:
        return []
    form = "{:<22} {:<12}{:>5}{:>12}  {}"
    lines = ["", form.format("requests", "", "runs", "newest", _P99)]
    for series in requests:
        seconds = [point["p99_seconds"] for point in series["points"]]
        bars = sparkline(seconds[-_SHOWN:], unicode=unicode)
        newest = units.format_seconds(seconds[-1])
        lines.append(form.format(series["subject"], series["kind"], len(seconds), newest, bars).rstrip())
    lines += [f"{s['subject']} {s['kind']}: {_change(s)}" for s in requests if s["change"]]
    return [*lines, ""]


def trend_sections(document: Plain) -> list[PageSection]:
    """Return the trend as the sections of a page."""
    from pytest_ckpt.report.html import PageSection  # noqa: PLC0415 - jinja2 only when it is needed

    sections = []
    for number, series in enumerate(document["series"]):
        text = " ".join(filter(None, [_change(series), _omitted(series)]))
        chart = (_chart(f"trend-{number}", series),) if series["points"] else ()
        heading = f"{series['subject']}, {series['kind']}s"
        sections.append(PageSection(heading=heading, text=text, pictures=chart))
    rows = tuple(
        (s["subject"], s["kind"], p["started"], p["id"], *(units.format_seconds(p[f"{n}_seconds"]) for n in _COLUMNS))
        for s in document["series"]
        for p in reversed(s["points"])
    )
    head = ("checkpoint", "operation", "started", "run", *_COLUMNS)
    sections.append(PageSection(heading="Every run", text=_METHOD, head=head, rows=rows))
    if document["requests"]:
        sections.append(_section_of_requests(document["requests"]))
    return sections


def _section_of_requests(requests: Sequence[Plain]) -> PageSection:
    from pytest_ckpt.report.html import PageSection  # noqa: PLC0415 - jinja2 only when it is needed

    changes = " ".join(f"{s['subject']} {s['kind']}: {_change(s)}" for s in requests if s["change"])
    rows = tuple(
        (s["subject"], s["kind"], p["started"], p["id"], units.format_seconds(p["p99_seconds"]))
        for s in requests
        for p in reversed(s["points"])
    )
    head = ("checkpoint", "request", "started", "run", "p99")
    text = f"{_P99[:1].upper()}{_P99[1:]}. {changes}".rstrip()
    return PageSection(heading="Requests to the object store", text=text, head=head, rows=rows)


def sparkline(values: Sequence[float], *, unicode: bool) -> str:
    """Return a sparkline: one character per value, scaled from the lowest to the highest value."""
    bars = _BARS[unicode]
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(bars[round((value - low) / span * (len(bars) - 1))] for value in values)


def _late(points: Sequence[Plain]) -> int:
    return sum(p["slowest_seconds"] > p["limit_seconds"] for p in points)


def _change(series: Plain) -> str:
    change = series["change"]
    if change is None:
        return (
            "No change shows."
            if series["can_show"]
            else f"Too few runs to show a change: {len(series['points'])} of {MINIMUM_RUNS}."
        )
    word = "slower" if change["ratio"] > 1 else "faster"
    return (
        f"{word} since {change['since']}: the newest {units.counted(change['runs'], 'run takes', 'runs take')} "
        f"{change['ratio']:.3f} times what the {change['before']} before took (chance of that without a change: "
        f"{change['probability']:.1g})."
    )


def _omitted(series: Plain) -> str:
    return ", ".join(f"{units.counted(count, 'run')}: {reason}" for reason, count in series["omitted"].items() if count)


def _chart(key: str, series: Plain) -> str:
    """Return a chart of the median time and the slowest time of every run.

    The chart includes the limit if the limit is at most twice the slowest time of all runs.
    """
    points, kind = series["points"], series["kind"]
    slowest = max(p["slowest_seconds"] for p in points)
    limit = points[-1]["limit_seconds"]
    near = limit <= 2 * slowest
    axis = Axis(low=0.0, high=max(slowest, limit if near else 0.0) * 1.08, start=_BOTTOM, end=_TOP)
    step = (_RIGHT - _LEFT) / len(points)
    parts = []
    for value in axis.ticks(4):
        parts.append(line(_LEFT, axis.at(value), _RIGHT, axis.at(value), "grid"))
        parts.append(label(_LEFT - 6, axis.at(value) + 4, units.format_seconds(value) if value else "0", "t", "end"))
    for number, point in enumerate(points):
        x = _LEFT + (number + 0.5) * step
        late = point["slowest_seconds"] > point["limit_seconds"]
        top, middle = axis.at(point["slowest_seconds"]), axis.at(point["median_seconds"])
        parts.append(line(x, top, x, middle, "late" if late else f"whisker {kind}-line"))
        hint = (
            f"{point['started']}: median {units.format_seconds(point['median_seconds'])}, "
            f"slowest {units.format_seconds(point['slowest_seconds'])}"
        )
        parts.append(tag("circle", tag("title", escape(hint)), cx=x, cy=middle, r=3.2, class_=f"mark {kind}-mark"))
    if series["change"]:
        x = _LEFT + (len(points) - series["change"]["runs"]) * step
        parts.append(line(x, _TOP, x, _BOTTOM, "span"))
        parts.append(label(x, _TOP - 4, "change", "t small", "middle"))
    if near:
        parts.append(line(_LEFT, axis.at(limit), _RIGHT, axis.at(limit), "limit"))
    parts.append(line(_LEFT, _BOTTOM, _RIGHT, _BOTTOM, "axis"))
    parts.append(label(_LEFT, _BOTTOM + 18, points[0]["started"][:10], "t quiet"))
    parts.append(label(_RIGHT, _BOTTOM + 18, points[-1]["started"][:10], "t quiet", "end"))
    shown = units.format_seconds(limit)
    parts.append(label(0, 16, f"{kind}s; limit {shown}" + ("" if near else ", beyond the chart"), f"t {kind}-text"))
    late = f"{_late(points)} runs with a {kind} above the limit of {shown}"
    described = f"{units.counted(len(points), 'run')}. {_change(series)} {late}."
    return picture(key, _WIDTH, _HEIGHT, f"Time of {kind}s of {series['subject']} over runs", described, parts)

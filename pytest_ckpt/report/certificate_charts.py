"""The charts of a certificate, made from the report document.

The charts show operations by rank, cluster sizes, saves and goodput (the share of time spent on training).
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.judging.save_costs import SaveCost, save_costs
from pytest_ckpt.report import charts, view
from pytest_ckpt.report.charts import Operation, mark, time_label, time_ticks
from pytest_ckpt.report.quantity import seconds_text
from pytest_ckpt.report.svg import Axis, label, line, number, picture, rectangle, tag
from pytest_ckpt.report.view import Document
from pytest_ckpt.support.units import counted, format_percent

HEAT_LEVELS = (0.8, 0.95, 1.05, 1.2, 1.5)
"""The borders between the colours of the heat map: a rank's time divided by the time of the median rank."""


_NAMED_RANKS = 4


def heat_map(key: str, operations: Sequence[Operation], rank_bytes: Sequence[int] = ()) -> str:
    """Return a heat map with a column for each rank and a row for each operation.

    A color shows a rank's time per byte, relative to the median rank of the operation. Without ``rank_bytes``, it shows
    the rank's time relative to the median rank. If there are more than 128 ranks, several ranks share a column. If
    there are more than 60 operations, several operations share a row. A shared cell shows the largest value.
    """
    rows = [
        (f"{o['kind']} {o['index']}", _relative(o["rank_seconds"], rank_bytes))
        for o in operations
        if len(o.get("rank_seconds") or []) > 1
    ]
    if not rows:
        return ""
    ranks = max(len(ratios) for _, ratios in rows)
    columns = min(ranks, 128)
    shared_rows = math.ceil(len(rows) / 60)
    groups = [rows[n : n + shared_rows] for n in range(0, len(rows), shared_rows)]
    cell_height = 13 if len(groups) <= 24 else 6
    left, right, top = 70.0, 1071.0, 2.0
    width = (right - left) / columns
    paths: dict[int, list[str]] = {}
    parts = []
    for row, group in enumerate(groups):
        y = top + (row + 0.5) * cell_height
        levels = [_heat_level(max(v)) for v in zip(*(_columns(ratios, columns) for _, ratios in group), strict=False)]
        column = 0
        while column < len(levels):
            after = column
            while after < len(levels) and levels[after] == levels[column]:
                after += 1
            run = f"M{number(left + column * width)} {number(y)}h{number((after - column) * width)}"
            paths.setdefault(levels[column], []).append(run)
            column = after
        if len(groups) <= 24 or row % 5 == 0:
            parts.append(label(left - 6, y + 3.5, group[0][0], "t small", "end"))
    for level, runs in sorted(paths.items()):
        parts.append(tag("path", d="".join(runs), class_=f"heat heat-{level}", stroke_width=float(cell_height - 1)))
    bottom = top + len(groups) * cell_height
    for column in range(0, columns, max(1, columns // 8)):
        rank = column * ranks // columns
        parts.append(label(left + (column + 0.5) * width, bottom + 15, f"rank {rank}", "t small", "middle"))
    slow = sum(ratio > HEAT_LEVELS[-1] for _, ratios in rows for ratio in ratios)
    who = f"{counted(len(rows), 'operation')} by {counted(ranks, 'rank')}"
    described = f"{who}; {slow or 'none'} above 1.5 times the median rank."
    title = "Every rank in every operation, against the median rank"
    return picture(key, 1072, int(bottom) + 22, title, described, parts, "map")


def slow_ranks(
    operations: Sequence[Operation], rank_bytes: Sequence[int] = (), hosts: Mapping[int, str] | None = None
) -> str:
    """Return a sentence that lists up to 4 slow ranks, and the count of the others.

    The rank that was slow most often comes first.

    In an operation, a rank is slow if its time per byte exceeds 1.5 times the time per byte of the median rank. Without
    ``rank_bytes``, times are compared instead of times per byte.
    """
    timed = [o for o in operations if len(o.get("rank_seconds") or []) > 1]
    slow = _slow(timed, rank_bytes)
    if not slow:
        return f"No rank took more than {HEAT_LEVELS[-1]:g} times what the median rank did."
    named = [
        f"rank {rank}{' on ' + hosts[rank] if hosts and hosts.get(rank) else ''} in {count} of {len(timed)}"
        for rank, count in slow.most_common(_NAMED_RANKS)
    ]
    more = f" and {counted(len(slow) - len(named), 'more rank')}" if len(slow) > len(named) else ""
    return f"More than {HEAT_LEVELS[-1]:g} times the median rank: {', '.join(named)} operations{more}."


def is_even(operations: Sequence[Operation], rank_bytes: Sequence[int] = ()) -> bool:
    """Return whether every rank took at most 1.5 times the median rank's time per byte in every operation.

    Without ``rank_bytes``, times are compared instead of times per byte.
    """
    return not _slow([o for o in operations if len(o.get("rank_seconds") or []) > 1], rank_bytes)


def _slow(timed: Sequence[Operation], rank_bytes: Sequence[int]) -> Counter[int]:
    return Counter(
        rank
        for o in timed
        for rank, ratio in enumerate(_relative(o["rank_seconds"], rank_bytes))
        if ratio > HEAT_LEVELS[-1]
    )


def cluster_chart(
    key: str,
    sizes: Sequence[Document],
    cluster_size: int,
    bands: Mapping[str, Sequence[Document]] | None = None,
) -> str:
    """Return a chart of the largest cluster for which each measurement's times are fast enough.

    There is one mark per measurement and kind of operation. The size of a cluster is its number of accelerators. A line
    marks ``cluster_size``. The axis is logarithmic. ``bands`` is {subject: projections from fewer clients}. Each
    projection is drawn as a pale bar from its low bound to its high bound.
    """
    bands = bands or {}
    measured = [row for row in sizes if row.get("save") or row.get("load")]
    if not measured:
        return ""
    values = [v for row in measured for v in (row.get("save"), row.get("load")) if v] + [cluster_size]
    values += [
        max(1, band[end])
        for of in bands.values()
        for band in of
        for end in ("sufficient_up_to_accelerators_low", "sufficient_up_to_accelerators_high")
    ]
    names = [f"{row['subject']}" + (" (projected)" if row.get("projected") else "") for row in measured]
    # The longest name decides the start of the axis, because a subject may include engine and strategy.
    left = min(420.0, max(190.0, 6.6 * max(map(len, names)) + 16))
    right, top, row_height = 1040.0, 46.0, 34
    low, high = min(values) / 1.6, max(values) * 1.6
    axis = Axis(low=low, high=high, start=left, end=right, log=True)
    bottom = top + row_height * len(measured)
    parts = []
    for tick in axis.ticks():
        parts.append(line(axis.at(tick), top, axis.at(tick), bottom, "grid"))
        parts.append(label(axis.at(tick), bottom + 18, f"{tick:,.0f}", "t", "middle"))
    parts.append(tag("path", d=f"M{number(axis.at(cluster_size))} {number(top - 8)}V{number(bottom)}", class_="limit"))
    parts.append(
        label(axis.at(cluster_size), top - 16, f"chosen: {counted(cluster_size, 'accelerator')}", "t strong", "middle")
    )
    for position, (name, row) in enumerate(zip(names, measured, strict=True)):
        y = top + (position + 0.5) * row_height
        parts.append(label(left - 12, y + 4, name, "t", "end"))
        save, load = row.get("save"), row.get("load")
        for band in bands.get(row["subject"], ()):
            start, end = (
                axis.at(max(1, band[name]))
                for name in ("sufficient_up_to_accelerators_low", "sufficient_up_to_accelerators_high")
            )
            above = y - 11 if band["kind"] == "save" else y + 4
            hint = f"{band['kind']}s of {band['clients']:,} {band['unit']}, projected"
            parts.append(rectangle(start, above, max(end - start, 2.0), 7, f"box {band['kind']}-box", hint))
        if save and load:
            parts.append(line(axis.at(save), y, axis.at(load), y, "span"))
        for kind, value in (("save", save), ("load", load)):
            if value:
                parts.append(mark(kind, axis.at(value), y, 5.5, hollow=bool(row.get("projected"))))
        minimum = min(v for v in (save, load) if v)
        clear = axis.at(minimum) - 12
        crowded = abs(axis.at(cluster_size) - clear) < 60 and axis.at(cluster_size) < clear
        parts.append(label(clear, y + (-6 if crowded else 4), f"{minimum:,}", "t value", "end"))
    described = "; ".join(
        f"{row['subject']}: saves up to {row.get('save') or 'unknown'}, loads up to {row.get('load') or 'unknown'}"
        for row in measured
    )
    title = "Largest cluster that each measurement would serve, in accelerators"
    return picture(key, 1072, int(bottom) + 28, title, described, parts)


def stages_bar(key: str, stages: Mapping[str, float]) -> str:
    """Return a horizontal bar whose sections show how long each activity of the run took."""
    whole = sum(stages.values())
    if whole <= 0:
        return ""
    x, width = 0.0, 1072.0
    parts = []
    for position, (name, spent) in enumerate(stages.items()):
        share = spent / whole * width
        hint = f"{name}: {seconds_text(spent)}, {spent / whole:.0%}"
        parts.append(rectangle(x, 2, share, 32, f"bar stage-{position % 8}", hint))
        if share > 60 and len(name) * 8 < share - 12:
            parts.append(label(x + share / 2, 23, name, f"t on-stage on-{position % 8}", "middle"))
        x += share
    described = f"Of {seconds_text(whole)}: " + ", ".join(f"{n} {spent / whole:.0%}" for n, spent in stages.items())
    return picture(key, 1072, 36, "How the time of the run was spent", described, parts)


def _heat_level(ratio: float) -> int:
    return sum(ratio > border for border in HEAT_LEVELS)


def _relative(seconds: Sequence[float], rank_bytes: Sequence[int]) -> list[float]:
    """Return the time per byte of each rank, relative to the median rank. A rank without bytes has the value 1.

    If the numbers of bytes are unknown, return the time of each rank, relative to the median rank.
    """
    if len(rank_bytes) != len(seconds):
        paces: list[float | None] = list(seconds)
    else:
        paces = [s / b if b else None for s, b in zip(seconds, rank_bytes, strict=True)]
    middle = statistics.median([p for p in paces if p is not None] or [1.0]) or 1.0
    return [1.0 if p is None else p / middle for p in paces]


def _columns(ratios: Sequence[float], columns: int) -> list[float]:
    """Divide ranks among the columns of the heat map. Return the ratio of the slowest rank in each column."""
    edges = [n * len(ratios) // columns for n in range(columns + 1)]
    return [max(ratios[a:b], default=1.0) for a, b in itertools.pairwise(edges)]


_WIDTH, _LEFT, _RIGHT = 1040, 60, 1010
_TOP, _ROW = 40.0, 30.0
_MAXIMUM_BARS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class BackgroundSave:
    """The times of one background save, and of the training steps during this save, in seconds.

    ``undisturbed_seconds`` is the median time of a step without a save. ``during_drain_seconds`` is the mean time of a
    step during the save; None if no step ran.
    """

    cost: SaveCost
    stored_seconds: float
    steps: int
    undisturbed_seconds: float
    during_drain_seconds: float | None


def background_saves(measurement: Mapping[str, Any] | None) -> list[BackgroundSave]:
    """Return the times of saves during which the job continued. If saves blocked the job, return an empty list."""
    if not measurement or not (measurement.get("patterns") or {}).get("training"):
        return []
    whole = from_plain(Measurement, measurement)
    assert whole.patterns
    assert whole.patterns.training
    saves = []
    for cost, save in zip(save_costs(whole), whole.of_kind("save"), strict=False):
        steps = whole.patterns.training.of(save.checkpoint)
        if steps is None or save.stored_seconds is None:
            continue
        during = sum(batch.seconds for batch in steps.during)
        saves.append(
            BackgroundSave(
                cost=cost,
                stored_seconds=save.stored_seconds,
                steps=steps.steps,
                undisturbed_seconds=steps.undisturbed_seconds,
                during_drain_seconds=during / steps.steps if steps.steps else None,
            )
        )
    return saves


def background_chart(key: str, saves: Sequence[BackgroundSave]) -> str:
    """Return a chart with a bar for each save, divided by phase, and a mark for each training step during the save."""
    shown = saves[:_MAXIMUM_BARS]
    if not shown:
        return ""
    bottom = _TOP + len(shown) * _ROW
    axis = Axis(low=0.0, high=max(s.cost.seconds for s in shown) * 1.02, start=_LEFT, end=_RIGHT)
    ticks, unit = time_ticks(axis, 8)
    parts = [label(0, 16, f"every save from its begin, {unit[0]}", "t quiet")]
    for tick in ticks:
        parts.append(line(axis.at(tick), _TOP - 6, axis.at(tick), bottom, "grid"))
        parts.append(label(axis.at(tick), bottom + 17, time_label(tick, unit), "t", "middle"))
    for position, save in enumerate(shown):
        y = _TOP + position * _ROW
        parts.append(label(_LEFT - 8, y + 15, save.cost.index, "t", "end"))
        begin = 0.0
        points = (
            ("stage", save.cost.blocked_seconds),
            ("write", save.stored_seconds),
            ("commit", save.cost.seconds),
        )
        for phase, end in points:
            hint = f"save {save.cost.index}: {phase} until {seconds_text(end)}"
            parts.append(
                rectangle(axis.at(begin), y + 3, axis.at(end) - axis.at(begin), 14, f"bar phase-{phase}", hint)
            )
            begin = max(begin, end)
        if save.during_drain_seconds:
            parts += _steps(save, axis, y + 23)
    parts.append(line(_LEFT, bottom, _RIGHT, bottom, "axis"))
    longest = max(save.cost.seconds for save in saves)
    described = f"{counted(len(saves), 'save')}; the longest took {seconds_text(longest)}."
    if len(saves) > len(shown):
        described += f" The first {len(shown)} are shown."
    return picture(key, _WIDTH, int(bottom) + 26, "Saves during training", described, parts, "wide")


def _steps(save: BackgroundSave, axis: Axis, y: float) -> list[str]:
    """Return a mark for the end of each training step during a save. A mark that would overlap another is left out."""
    ends = [save.cost.blocked_seconds + (n + 1) * (save.during_drain_seconds or 0.0) for n in range(save.steps)]
    every = max(1, len(ends) // 100)
    return [
        line(axis.at(save.cost.blocked_seconds), y, axis.at(min(ends[-1], save.cost.seconds)), y, "span"),
        *(line(axis.at(end), y - 3, axis.at(end), y + 3, "span") for end in ends[::every] if end <= axis.high),
    ]


_CURVES_WIDTH, _CURVES_LEFT, _CURVES_RIGHT, _CURVES_TOP, _CURVES_BOTTOM, _CURVES_HEIGHT = (
    1040,
    70.0,
    1010.0,
    34.0,
    250.0,
    290,
)
_NAMES = "abcdefghijklmnopqrstuvwxyz"
COLORS = 8
"""The maximum number of curves with separate colours (classes `.line-0` on, swatches `.stage-0` on)."""
# A smaller share of time would not be visible.
_MINIMUM_LOST = 0.0001
# The height of a letter, and the gap to the next letter.
_LETTER = 13.0
# The width of a digit, used to prevent overlapping numbers.
_DIGIT = 7.0


def curve_names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the letter that names each row's curve in the chart.

    Rows after the last letter of the alphabet have an empty name.
    """
    return [_NAMES[position] if position < len(_NAMES) else "" for position in range(len(rows))]


def goodput_chart(key: str, rows: Sequence[Mapping[str, Any]], cluster_size: int) -> str:
    """Return a chart of the share of time that is not spent on training, over cluster size.

    ``rows`` is the table ``training`` of a report; each row is a curve. Both axes are logarithmic. A point is hollow if
    the measured times exceed the limits for the cluster size of the point. Each curve has a letter at both ends. If
    letters would overlap, they are moved apart.
    """
    curves = [(row, [(c["accelerators"], _lost(c)) for c in row.get("clusters") or []]) for row in rows]
    points = [point for _, of_row in curves for point in of_row]
    if not points:
        return ""
    sizes = sorted({size for size, _ in points})
    x = Axis(low=sizes[0] / 1.3, high=sizes[-1] * 1.3, start=_CURVES_LEFT, end=_CURVES_RIGHT, log=True)
    y = Axis(low=min(lost for _, lost in points) / 1.6, high=1.0, start=_CURVES_BOTTOM, end=_CURVES_TOP, log=True)
    parts = [label(0, 16, "time that does not train: saving, loading, work lost", "t quiet")]
    for tick in y.ticks():
        parts.append(line(_CURVES_LEFT, y.at(tick), _CURVES_RIGHT, y.at(tick), "grid"))
        parts.append(label(_CURVES_LEFT - 8, y.at(tick) + 4, format_percent(tick), "t", "end"))
    for size in _without_overlap(sizes, x, cluster_size):
        parts.append(
            label(x.at(size), _CURVES_BOTTOM + 18, f"{size:,}", "t strong" if size == cluster_size else "t", "middle")
        )
    parts.append(
        tag("path", d=f"M{number(x.at(cluster_size))} {number(_CURVES_TOP)}V{number(_CURVES_BOTTOM)}", class_="limit")
    )
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
    parts.append(line(_CURVES_LEFT, _CURVES_BOTTOM, _CURVES_RIGHT, _CURVES_BOTTOM, "axis"))
    parts.append(label(_CURVES_RIGHT, _CURVES_BOTTOM + 34, "accelerators", "t quiet", "end"))
    at_cluster_size = "; ".join(
        f"{row['subject']} {format_percent(cluster['effective_training_time_ratio'])}"
        for row in rows
        for cluster in row.get("clusters") or []
        if cluster["accelerators"] == cluster_size
    )
    described = f"Time that trains at {counted(cluster_size, 'accelerator')}: {at_cluster_size}."
    return picture(
        key, _CURVES_WIDTH, _CURVES_HEIGHT, "Time that does not train, over clusters", described, parts, "wide"
    )


def _without_overlap(sizes: Sequence[int], x: Axis, cluster_size: int) -> list[int]:
    """Return the cluster sizes that can be written below the axis without overlap.

    ``cluster_size`` is placed first, then the other sizes from the largest to the smallest.
    """
    shown: list[int] = []
    for size in sorted(sizes, key=lambda size: (size != cluster_size, -size)):
        halves = {other: _DIGIT * (len(f"{size:,}") + len(f"{other:,}")) / 2 for other in shown}
        if all(abs(x.at(size) - x.at(other)) > half + _DIGIT for other, half in halves.items()):
            shown.append(size)
    return sorted(shown)


def _apart(column: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return (height, letter) for each letter, from the top. Letters are moved apart until they do not overlap.

    ``column`` contains (wanted height, letter). Letters for which there is no space are left out.
    """
    line_count = int((_CURVES_BOTTOM - _CURVES_TOP) // _LETTER)
    shown = sorted(column)[:line_count]
    places: list[float] = []
    for at, _ in shown:
        places.append(max(at, places[-1] + _LETTER) if places else max(at, _CURVES_TOP))
    # Labels that were moved below the axis move the labels above them back up.
    lowest = _CURVES_BOTTOM - 4
    for position in range(len(places) - 1, -1, -1):
        places[position] = min(places[position], lowest)
        lowest = places[position] - _LETTER
    return [(at, name) for at, (_, name) in zip(places, shown, strict=True)]


def _lost(cluster: Mapping[str, Any]) -> float:
    ratio: float = cluster["effective_training_time_ratio"]
    return min(1.0, max(_MINIMUM_LOST, 1.0 - ratio))


def cluster(sizes: Sequence[view.Document], cluster_size: int, forecasts: Sequence[view.Document] = ()) -> Markup:
    """Return a chart of the largest cluster for which each measurement's times are fast enough.

    ``forecasts`` are projections from fewer clients. Each projection is drawn as a bar.
    """
    bands = {row["subject"]: row["projected"] for row in forecasts}
    return Markup(cluster_chart("cluster", sizes, cluster_size, bands))


def of_subject(position: int, subject: view.Subject) -> dict[str, Any]:
    """Return {name: chart or value} for the section of one subject.

    The values are for the text next to the charts. ``position`` is the number of the subject on the page. It makes the
    ids of the charts unique.
    """
    made: dict[str, Any] = {"phases": [], "phase_names": []}
    for kind in subject.kinds:
        key = f"s{position}-{kind.kind}"
        if not kind.operations:
            continue
        made[kind.kind] = Markup(
            charts.operations_chart(key, kind.kind, kind.operations, kind.planned, kind.limit_seconds)
        )
        phases = charts.phases_chart(f"{key}-phases", kind.kind, kind.operations, kind.planned)
        if phases:
            made["phases"].append(Markup(phases))
    made["background_saves"] = background_saves(subject.measurement)
    made["background"] = Markup(background_chart(f"s{position}-background", made["background_saves"]))
    every = [*subject.save.operations, *subject.load.operations]
    made["phase_names"] = charts.phase_names(every)
    made["shares"] = {kind.kind: charts.phase_shares(kind.operations) for kind in subject.kinds}
    ran = subject.measurement or {}
    made["heat"] = Markup(heat_map(f"s{position}-heat", every, ran.get("rank_bytes") or ()))
    made["is_even"] = is_even(every, ran.get("rank_bytes") or ())
    made["slow"] = slow_ranks(
        every, ran.get("rank_bytes") or (), {r["rank"]: r["host"] for r in ran.get("ranks") or ()}
    )
    return made


def goodput(rows: Sequence[Mapping[str, Any]], cluster_size: int) -> dict[str, Any]:
    """Return the chart of the time that is not spent on training (``picture``), and its curves' letters (``names``)."""
    return {"picture": Markup(goodput_chart("goodput", rows, cluster_size)), "names": curve_names(rows)}


def stages(seconds_of: Mapping[str, float]) -> dict[str, Any]:
    """Return how long each activity of the run took, in three forms.

    ``picture`` is a bar. ``rows`` contains (activity, seconds, share of the total). ``whole`` is the total in seconds.
    """
    spent = {name: seconds for name, seconds in seconds_of.items() if seconds > 0}
    whole = sum(spent.values())
    return {
        "picture": Markup(stages_bar("stages", spent)),
        "rows": [(name, seconds, seconds / whole) for name, seconds in spent.items()],
        "whole": whole,
    }


def heat_legend() -> list[str]:
    """Return the labels of the heat map's colors, from the fastest ranks to the slowest ranks."""
    borders = [f"{border:g}" for border in HEAT_LEVELS]
    between = [f"{low} to {high}" for low, high in itertools.pairwise(borders)]
    return [f"up to {borders[0]}", *between, f"over {borders[-1]}"]

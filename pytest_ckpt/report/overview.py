"""The certificate's wide charts: ranks by operations, cluster sizes, and where the time of the run went."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from pytest_ckpt.report.charts import Operation, mark
from pytest_ckpt.report.quantity import seconds_text
from pytest_ckpt.report.svg import Axis, label, line, number, picture, rectangle, tag
from pytest_ckpt.report.view import Document
from pytest_ckpt.support.units import counted

HEAT_LEVELS = (0.8, 0.95, 1.05, 1.2, 1.5)
"""Borders between the colours of the heat map: a rank's seconds over the median rank's of that operation."""


_NAMED_RANKS = 4


def heat_map(key: str, operations: Sequence[Operation], rank_bytes: Sequence[int] = ()) -> str:
    """Return rank by operation: how long each rank took for each of its bytes, against the median of that operation.

    Layouts give ranks different amounts; without ``rank_bytes`` the ranks' seconds are compared as they are. More than
    128 ranks share columns, and more than 60 operations share rows; the slowest of those shows.
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
    """Return a sentence that names the ranks which the heat map shows darkest, most often slow ones first."""
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
    """Return whether no rank was slow in any operation."""
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
    asked: int,
    bands: Mapping[str, Sequence[Document]] | None = None,
) -> str:
    """Return the largest cluster each measurement would serve, on a logarithmic axis, with the one that was asked.

    ``bands``, by subject, are what is projected from fewer clients: a pale bar from the low end to the high one.
    """
    bands = bands or {}
    measured = [row for row in sizes if row.get("save") or row.get("load")]
    if not measured:
        return ""
    values = [v for row in measured for v in (row.get("save"), row.get("load")) if v] + [asked]
    values += [
        max(1, band[end])
        for of in bands.values()
        for band in of
        for end in ("sufficient_up_to_accelerators_low", "sufficient_up_to_accelerators_high")
    ]
    names = [f"{row['subject']}" + (" (projected)" if row.get("projected") else "") for row in measured]
    # The longest name decides where the axis begins: a subject may name engine and strategy.
    left = min(420.0, max(190.0, 6.6 * max(map(len, names)) + 16))
    right, top, row_height = 1040.0, 46.0, 34
    low, high = min(values) / 1.6, max(values) * 1.6
    axis = Axis(low=low, high=high, start=left, end=right, log=True)
    bottom = top + row_height * len(measured)
    parts = []
    for tick in axis.ticks():
        parts.append(line(axis.at(tick), top, axis.at(tick), bottom, "grid"))
        parts.append(label(axis.at(tick), bottom + 18, f"{tick:,.0f}", "t", "middle"))
    parts.append(tag("path", d=f"M{number(axis.at(asked))} {number(top - 8)}V{number(bottom)}", class_="limit"))
    parts.append(label(axis.at(asked), top - 16, f"asked: {counted(asked, 'accelerator')}", "t strong", "middle"))
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
        crowded = abs(axis.at(asked) - clear) < 60 and axis.at(asked) < clear
        parts.append(label(clear, y + (-6 if crowded else 4), f"{minimum:,}", "t value", "end"))
    described = "; ".join(
        f"{row['subject']}: saves up to {row.get('save') or 'unknown'}, loads up to {row.get('load') or 'unknown'}"
        for row in measured
    )
    title = "Largest cluster that each measurement would serve, in accelerators"
    return picture(key, 1072, int(bottom) + 28, title, described, parts)


def stages_bar(key: str, stages: Mapping[str, float]) -> str:
    """Return where the time of the run went, as one bar."""
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
    return picture(key, 1072, 36, "Where the time of the run went", described, parts)


def _heat_level(ratio: float) -> int:
    return sum(ratio > border for border in HEAT_LEVELS)


def _relative(seconds: Sequence[float], rank_bytes: Sequence[int]) -> list[float]:
    """Return each rank over the median rank; ranks without any bytes count as the median."""
    if len(rank_bytes) != len(seconds):
        paces: list[float | None] = list(seconds)
    else:
        paces = [s / b if b else None for s, b in zip(seconds, rank_bytes, strict=True)]
    middle = statistics.median([p for p in paces if p is not None] or [1.0]) or 1.0
    return [1.0 if p is None else p / middle for p in paces]


def _columns(ratios: Sequence[float], columns: int) -> list[float]:
    """Return the slowest rank of each column."""
    edges = [n * len(ratios) // columns for n in range(columns + 1)]
    return [max(ratios[a:b], default=1.0) for a, b in itertools.pairwise(edges)]

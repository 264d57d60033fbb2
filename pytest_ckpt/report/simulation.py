"""Output of a training simulation: lines for a terminal, and a page with a chart of goodput over cluster size.

Goodput is the share of time that is spent on training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_ckpt import __version__
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.report.charts import Frame, curve, dot
from pytest_ckpt.report.svg import Axis, label, line, picture
from pytest_ckpt.support import units

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ckpt.grading.simulation import SimulatedRow, SimulationRules
    from pytest_ckpt.report.html import PageSection

SCHEMA = "pytest-ckpt/simulation/1"
_WIDTH, _HEIGHT = 1060, 344
_FRAME = Frame(left=70.0, right=800.0, top=34.0, bottom=300.0)
_HEAD = (
    "subject", "accelerators", "goodput", "90 % of runs", "by formula", "saving", "lost work", "restoring", "failures",
    "meet a save", "saves every", "best interval", "limits",
)  # fmt: skip


def document_of(
    rows: Sequence[tuple[str, SimulatedRow]], rules: SimulationRules, notices: Sequence[str]
) -> dict[str, Any]:
    """Return the result of a simulation in plain JSON types.

    ``rows`` contains (name of a subject, simulated values).
    """
    return {
        "schema": SCHEMA,
        "tool": f"pytest-ckpt {__version__}",
        "rules": to_plain(rules),
        "notices": list(notices),
        "rows": [{**to_plain(row), "subject": name} for name, row in rows],
    }


def simulation_lines(document: Mapping[str, Any]) -> list[str]:
    """Return the result of a simulation as lines of text."""
    table = [_HEAD, *map(_cells, document["rows"])]
    widths = [max(len(row[column]) for row in table) for column in range(len(_HEAD))]
    lines = [*document["notices"], *_rules(document), ""]
    for row in table:
        padded = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join((row[0].ljust(widths[0]), *padded)))
    return [*lines, "", *_readings(document)]


def simulation_sections(document: Mapping[str, Any]) -> list[PageSection]:
    """Return the result of a simulation as the sections of a page."""
    from pytest_ckpt.report.html import PageSection  # noqa: PLC0415 - jinja2 only when it is needed

    rows = tuple(map(_cells, document["rows"]))
    pictures = (_chart(document["rows"]),)
    return [
        PageSection(heading="Goodput over cluster size", head=_HEAD, rows=rows, pictures=pictures),
        PageSection(heading="Rules", text=" ".join((*_rules(document), *_readings(document)))),
    ]


def _rules(document: Mapping[str, Any]) -> list[str]:
    rules = document["rules"]
    arrivals = rules["arrivals"]
    how = {
        "exponential": "Failures are independent",
        "weibull": f"Times between failures follow a Weibull distribution of shape {arrivals['shape']:g}",
        "bursts": f"{units.format_percent(arrivals['shape'])} of failures come right after another",
    }[arrivals["kind"]]
    return [
        f"Simulated: {units.counted(rules['runs'], 'run')} of {rules['seconds'] / 86_400:g} days over measured saves "
        f"and loads, seed {rules['seed']}. A simulation is not certified.",
        f"{how}; the restart of a job takes {units.format_seconds(rules['restart_seconds'])} in addition to its load.",
    ]


def _readings(document: Mapping[str, Any]) -> list[str]:
    listed = [
        "goodput: share of time that trains, median of the runs; saving, lost work and restoring are hours of one run.",
        "by formula: 1 - T_save / I - (I / 2 + T_risk + T_load + T_restart) / MTTF, independent failures and constant "
        "times.",
        "limits: whether every save and load meets the limits of that cluster. Larger clusters are assumed to be "
        "served as fast.",
    ]
    if any(row["projected"] for row in document["rows"]):
        listed.append("The run was at reduced size: its times are projected to full size at the same bandwidth.")
    return listed


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    percent, seconds = units.format_percent, units.format_seconds
    return (
        row["subject"],
        units.format_count(row["accelerators"]),
        percent(row["goodput"]),
        f"{percent(row['goodput_low'])} to {percent(row['goodput_high'])}",
        percent(row["closed_form"]),
        *(f"{row[f'{kind}_hours']:.3g} h" for kind in ("saving", "lost_work", "restoring")),
        f"{row['failures']:.0f}",
        percent(row["met_save_share"]),
        seconds(row["interval_seconds"]),
        seconds(row["best_interval_seconds"]),
        "met" if row["is_served"] else "missed",
    )


def _chart(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a chart of goodput over cluster size. Each subject has a curve; bars show the middle 90 % of the runs."""
    sizes = sorted({row["accelerators"] for row in rows})
    across = Axis(low=sizes[0] / 1.3, high=sizes[-1] * 1.3, start=_FRAME.left, end=_FRAME.right, log=True)
    lowest = min(row["goodput_low"] for row in rows)
    up = Axis(low=max(0.0, lowest - 0.05), high=1.0, start=_FRAME.bottom, end=_FRAME.top)
    parts = [label(0, 16, "share of time that trains; bars: 90 % of the runs", "t quiet")]
    parts += [*_FRAME.grid(up, units.format_percent), *_FRAME.counts_below(across, sizes)]
    ends = []
    for subject in dict.fromkeys(row["subject"] for row in rows):
        of_subject = [row for row in rows if row["subject"] == subject]
        points = [(across.at(row["accelerators"]), up.at(row["goodput"])) for row in of_subject]
        parts.append(curve(points))
        for (x, y), row in zip(points, of_subject, strict=True):
            parts.append(line(x, up.at(row["goodput_low"]), x, up.at(row["goodput_high"]), "span"))
            parts.append(dot(x, y))
        ends.append((points[-1][1], subject))
    parts += [*_FRAME.names(ends), _FRAME.ground()]
    described = f"Goodput on clusters of {sizes[0]:,} to {sizes[-1]:,} accelerators."
    return picture("simulation", _WIDTH, _HEIGHT, "Goodput over cluster size", described, parts)

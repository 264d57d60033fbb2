"""Writes the comparison of two runs as lines for a terminal or as an HTML page."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Any

from pytest_ckpt.report.quantity import NONE
from pytest_ckpt.report.svg import printable
from pytest_ckpt.support import units

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ckpt.report.html import PageSection

_TABLES = ("settings", "cluster", "system", "environment", "versions")
_METHOD = (
    "Ratio of the medians, after over before; above 1 is slower. In brackets its 95 % confidence interval (percentile "
    "bootstrap, 4,000 resamples, fixed seed). A change is reported when the interval excludes 1. It compares these two "
    "runs; it does not predict the next two."
)

_COST = "encryption costs at most 10 %:"

_COUNTED = "sent / again / 503 or 429, and the 99th percentile of the worst endpoint"


def diff_lines(document: Mapping[str, Any]) -> list[str]:
    """Return the comparison as lines of text. ``document`` is the comparison of two runs."""
    before, after = document["before"], document["after"]
    lines = [f"before: {_run(before)}", f"after:  {_run(after)}", *document["notices"]]
    for name in _TABLES:
        if rows := document[name]:
            lines += ["", f"{name}:", *(f"  {r['name']}: {_value(r['before'])} -> {_value(r['after'])}" for r in rows)]
    if rows := document["verdicts"]:
        lines += ["", "verdicts:"]
        lines += [f"  {r['id']} {r['subject']}: {_value(r['before'])} -> {_value(r['after'])}" for r in rows]
    same = [n for n in (*_TABLES, "verdicts") if not document[n]]
    if same:
        lines += ["", f"the same in both: {', '.join(same)}"]
    if rows := document["operations"]:
        form = "{:<22} {:<5}{:>12}{:>12}{:>22}  {}"
        lines += ["", form.format("operations", "", "before", "after", "ratio", "")]
        lines += [form.format(*_cells(row)).rstrip() for row in rows]
        lines += ["", *textwrap.wrap(_METHOD, 100)]
    if cost := document.get("encryption"):
        lines += ["", f"{_COST} {cost['outcome']}", *(f"  {reason}" for reason in cost["because"])]
    if rows := document["requests"]:
        lines += ["", f"requests ({_COUNTED}):"]
        lines += [f"  {r['subject']} {r['kind']}: {_requests(r['before'])} -> {_requests(r['after'])}" for r in rows]
    return [printable(line).replace("\n", " ") for line in lines]


def diff_sections(document: Mapping[str, Any]) -> list[PageSection]:
    """Return the comparison as the sections of an HTML page."""
    from pytest_ckpt.report.html import PageSection  # noqa: PLC0415 - jinja2 only when it is needed

    sections = []
    if cost := document.get("encryption"):
        heading = f"{_COST} {cost['outcome']}"
        sections.append(PageSection(heading=heading, head=("because",), rows=tuple((r,) for r in cost["because"])))
    if document["operations"]:
        head = ("checkpoint", "operation", "before (median)", "after (median)", "ratio", "change")
        rows = tuple(_cells(row) for row in document["operations"])
        sections.append(PageSection(heading="Operations", text=_METHOD, head=head, rows=rows))
    if document["requests"]:
        counts = tuple(
            (r["subject"], r["kind"], _requests(r["before"]), _requests(r["after"])) for r in document["requests"]
        )
        titles = ("checkpoint", "request", "before", "after")
        sections.append(PageSection(heading="Requests", text=f"{_COUNTED.capitalize()}.", head=titles, rows=counts))
    if document["verdicts"]:
        rows = tuple(
            (f"{r['id']} {r['subject']}", _value(r["before"]), _value(r["after"]), r["because"])
            for r in document["verdicts"]
        )
        sections.append(PageSection(heading="Verdicts", head=("requirement", "before", "after", "why"), rows=rows))
    for name in _TABLES:
        rows = tuple((r["name"], _value(r["before"]), _value(r["after"])) for r in document[name])
        if rows:
            sections.append(PageSection(heading=name.capitalize(), head=("name", "before", "after"), rows=rows))
    same = [n for n in (*_TABLES, "verdicts") if not document[n]]
    if same:
        sections.append(PageSection(heading="The same in both", text=", ".join(same)))
    return sections


def diff_lead(document: Mapping[str, Any]) -> list[str]:
    """Return the introductory sentences of the HTML page."""
    return [f"Before: {_run(document['before'])}", f"After: {_run(document['after'])}", *document["notices"]]


def _requests(counted: Mapping[str, Any] | None) -> str:
    if counted is None:
        return NONE
    p99 = NONE if counted["p99_seconds"] is None else units.format_seconds(counted["p99_seconds"])
    return f"{counted['sent']:,} / {counted['again']:,} / {counted['busy']:,}, {p99}"


def _run(head: Mapping[str, Any]) -> str:
    return f"{head['id']}, {head['started']}, {head['grade']}, exit code {head['exit_code']}"


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    ratio = NONE if row["ratio"] is None else f"{row['ratio']:.3f}"
    if row["low"] is not None:
        ratio += f" [{row['low']:.3f}, {row['high']:.3f}]"
    fields = {"none": "no change shown"}.get(row["change"], row["change"])
    return (
        row["subject"],
        row["kind"],
        _seconds(row["before"]),
        _seconds(row["after"]),
        ratio.replace(NONE, "-"),
        f"{fields}; {row['note']}" if row["note"] else fields,
    )


def _seconds(summary: Mapping[str, Any] | None) -> str:
    return "-" if summary is None else units.format_seconds(summary["median_seconds"])


def _value(value: Any) -> str:
    if value is None:
        return "nothing"
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)

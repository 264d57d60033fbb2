"""The terminal's view of a report: a summary with colours, and the text of a failing test."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from pytest_ckpt import units
from pytest_ckpt.report import view
from pytest_ckpt.report.quantity import NONE, margin_text, quantity
from pytest_ckpt.report.svg import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

Line = tuple[str, dict[str, bool]]

WIDTH = 100
"""Columns that a summary fills at most. Only a path that is longer is left whole, so that it can be copied."""

_CERTIFICATE = "certificate.html"
_GRADES: dict[str, dict[str, bool]] = {
    "certified": {"green": True, "bold": True},
    "not certified": {"red": True, "bold": True},
    "incomplete": {"yellow": True, "bold": True},
    "rehearsal": {"yellow": True, "bold": True},
}
_COLUMNS = "{:<20.20} {:<5}{:>10}{:>10}{:>9}{:>13}{:>12}{:>14}"


def summary_lines(document: Mapping[str, Any]) -> list[Line]:
    """Return the lines of the terminal summary, each with the markup of pytest's terminal writer."""
    subjects = view.subjects(document)
    lines = [*_table(subjects), *_exceptions(document), *_grade(document), *_left_behind(document)]
    return [(printable(line).replace("\n", " "), markup) for line, markup in lines]


def failure_text(verdict: Mapping[str, Any], explain: str) -> str:
    """Return the text of a failing test: what was measured, the limit, by how much, why, and what explains it.

    ``explain`` is the command that tells more; an empty one is left out.
    """
    measured, limit, unit = verdict.get("measured"), verdict.get("limit"), verdict.get("unit") or ""
    lines = [f"{verdict['id']} failed for {verdict['subject']}: {verdict['because']}"]
    facts = []
    if measured is not None:
        facts.append(("measured", quantity(measured, unit)))
    if limit is not None:
        facts.append(("limit", quantity(limit, unit)))
    if measured is not None and limit is not None and measured != limit:
        facts.append(("by", _difference(measured, limit, unit)))
    if facts:
        lines.append("")
        lines += [f"  {name:<9} {value}" for name, value in facts]
    if verdict.get("detail"):
        lines += ["", *(f"  {line}" for line in verdict["detail"].splitlines())]
    if explain:
        lines += ["", f"  explained by: {explain}"]
    return "\n".join(printable(line) for line in lines)


def _difference(measured: float, limit: float, unit: str) -> str:
    more = "more" if measured > limit else "fewer" if not unit or unit in {"files", "bytes", "folders"} else "less"
    share = f" ({abs(measured / limit - 1):.0%} {more} than the limit)" if limit else " more than the limit"
    return f"{quantity(abs(measured - limit), unit)}{share}".replace("%", " %" if limit else "%")


def _table(subjects: list[view.Subject]) -> list[Line]:
    if not subjects:
        return []
    heads = ("checkpoint", "", "slowest", "limit", "margin", "needed", "got", "serves up to")
    lines: list[Line] = [(_COLUMNS.format(*heads), {"bold": True})]
    projected = False
    for subject in subjects:
        if subject.measurement is None:
            lines.append((_COLUMNS.format(subject.name, "not run", *[""] * 6).rstrip(), {"yellow": True}))
            continue
        for kind in subject.kinds:
            mark = "*" if kind.projected and kind.certified is not None else ""
            projected = projected or bool(mark)
            row = _COLUMNS.format(
                subject.name if kind.kind == "save" else "",
                kind.kind,
                _or_none(kind.slowest_seconds, units.format_seconds),
                _or_none(kind.limit_seconds, units.format_seconds),
                margin_text(kind.margin),
                _or_none(kind.needed_bytes_per_second, units.format_rate),
                _or_none(kind.got_bytes_per_second, units.format_rate),
                _or_none(kind.certified, "{:,}".format) + mark,
            )
            lines.append((row.rstrip(), {"red": True} if kind.margin is not None and kind.margin < 0 else {}))
    if projected:
        lines.append(("* accelerators, projected from a reduced size: certifies nothing", {}))
    return [*lines, ("", {})]


def _exceptions(document: Mapping[str, Any]) -> list[Line]:
    """Return what was not met, failed ones first; what did not run for one reason stands together."""
    verdicts = document.get("requirements") or []
    lines: list[Line] = []
    for severity, word, markup in (
        ("required", "failed", {"red": True}),
        ("advisory", "advisory failed", {"yellow": True}),
    ):
        for v in verdicts:
            if v["outcome"] == "failed" and v["severity"] == severity:
                lines += _wrapped(f"{word}: {v['id']} of {v['subject']}: {v['because']}", markup)
    for outcome in ("waived", "not run"):
        causes: dict[tuple[str, str], list[str]] = {}
        for v in verdicts:
            if v["outcome"] == outcome:
                causes.setdefault((v["subject"], v["because"]), []).append(v["id"])
        for (subject, because), ids in causes.items():
            lines += _wrapped(f"{outcome}: {', '.join(ids)} of {subject}: {because}", {"yellow": True})
    return [*lines, ("", {})] if lines else []


def _grade(document: Mapping[str, Any]) -> list[Line]:
    grade = document["grade"]
    accelerators = (document.get("cluster") or {}).get("accelerators")
    cluster = f" for a cluster of {accelerators:,} accelerators" if accelerators else ""
    lines: list[Line] = [(f"{grade.upper()}{cluster}", _GRADES[grade])]
    # What failed, was waived or did not run stands above already, with its reason.
    told = ("failed for", "was waived for", "did not run for")
    for reason in document.get("grade_reasons") or []:
        if not any(word in reason for word in told):
            lines += _wrapped(f"  {reason}", {})
    folder = (document.get("run") or {}).get("folder")
    if folder:
        lines.append((f"certificate: {folder.rstrip('/')}/{_CERTIFICATE}", {}))
    return lines


def _left_behind(document: Mapping[str, Any]) -> list[Line]:
    return [(f"left on the target: {path}", {"yellow": True}) for path in document.get("left_behind") or []]


def _wrapped(text: str, markup: dict[str, bool]) -> list[Line]:
    indent = " " * (len(text) - len(text.lstrip()))
    found = textwrap.wrap(
        text.strip(), WIDTH, initial_indent=indent, subsequent_indent=indent + "  ", break_on_hyphens=False
    )
    return [(line, markup) for line in found]


def _or_none(value: Any, write: Any) -> str:
    return NONE if value is None else str(write(value))

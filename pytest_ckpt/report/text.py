"""Terminal output for a report: a summary with colours, and the text of a failing test."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.many_names import Metadata
from pytest_ckpt.report import view
from pytest_ckpt.report.quantity import NONE, margin_text, quantities, quantity, three_digits
from pytest_ckpt.report.svg import printable
from pytest_ckpt.report.view import judged_again_lines, shares_shown, start_lines
from pytest_ckpt.support import units
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Line = tuple[str, dict[str, bool]]

WIDTH = 100
"""The maximum width of a summary in columns. A longer path is not broken, so that a user can copy it."""

_CERTIFICATE = "certificate.html"
_REHEARSALS: dict[view.RehearsalResult, str] = {
    "passed": ": passed",
    "failed": ": did not pass",
    "incomplete": ": not everything required was run",
}
_GRADES: dict[str, dict[str, bool]] = {
    "certified": {"green": True, "bold": True},
    "not certified": {"red": True, "bold": True},
    "incomplete": {"yellow": True, "bold": True},
    "rehearsal": {"yellow": True, "bold": True},
}
_ASCII = str.maketrans({"\N{MINUS SIGN}": "-", "\N{EN DASH}": "-", "\N{MULTIPLICATION SIGN}": "x"})
_NARROWEST = 20
_NOT_PROJECTED = (
    "sufficient for up to: not stated if an operation took less than 1 s, or if a checkpoint was less than 1 GB a host"
)
_NOT_PROVEN = "sufficient for up to: not stated for loads that were not proven to come from the storage (COLD)"
_COLUMNS = "{:<5}{:>10}{:>10} {:>11}{:>11}{:>11}{:>15}"


def summary_lines(document: Mapping[str, Any]) -> list[Line]:
    """Return the lines of the terminal summary, each with its markup for pytest's terminal writer."""
    subjects = view.subjects(document)
    lines = [
        *_table(subjects),
        *_names(document),
        *_behaviour(document),
        *_plugins(document),
        *_starts(document),
        *_exceptions(document),
        *_grade(document),
        *_leftovers(document),
    ]
    return [(_typed(line).replace("\n", " "), markup) for line, markup in lines]


def failure_text(verdict: Mapping[str, Any], explain: str, next_step: str = "") -> str:
    """Return the text of a failing test: the measured value, the limit, the excess, the reason, and the remedy.

    ``explain`` is the command that explains the failure. ``next_step`` is the user's first action. If the verdict
    contains a known fix, ``next_step`` is omitted.
    """
    measured, limit, unit = verdict.get("measured"), verdict.get("limit"), verdict.get("unit") or ""
    lines = [f"{verdict['id']} failed for {verdict['subject']}: {verdict['because']}"]
    facts = []
    took, allowed = quantities(measured, limit, unit)
    if measured is not None:
        facts.append(("measured", took))
    if limit is not None:
        facts.append(("limit", allowed))
    if measured is not None and limit is not None and measured != limit:
        facts.append(("by", quantity(abs(measured - limit), unit) + _beyond(measured, limit)))
    if facts:
        lines.append("")
        lines += [f"  {name:<9} {value}" for name, value in facts]
    if verdict.get("detail"):
        lines += ["", *(f"  {line}" for line in verdict["detail"].splitlines())]
    # A known fix for this failure replaces the general first action.
    if next_step and not view.cure(verdict):
        lines += ["", *textwrap.wrap(f"  next: {next_step}", WIDTH, subsequent_indent="    ", break_on_hyphens=False)]
    if explain:
        lines += ["", f"  explained by: {explain}"]
    return "\n".join(_typed(line) for line in lines)


def _beyond(measured: float, limit: float) -> str:
    """Return the difference between a value and its limit as a percentage of the limit.

    If the value is at least twice the limit, return the value as a multiple of the limit instead. If the limit is 0 or
    negative, the result is empty.
    """
    if limit <= 0:
        return ""
    if measured >= 2 * limit:
        return f": {three_digits(measured / limit)} \N{MULTIPLICATION SIGN} the limit"
    return f", {units.format_percent(abs(measured / limit - 1), digits=2)} of the limit"


def _typed(line: str) -> str:
    """Return a line with typographic characters replaced by ASCII, because a terminal may have any encoding."""
    return printable(line).translate(_ASCII)


def _table(subjects: list[view.Subject]) -> list[Line]:
    if not subjects:
        return []
    width = max(_NARROWEST, *(len(subject.name) for subject in subjects))
    heads = ("", "slowest", "limit", "margin", "needed", "got", "sufficient for")
    lines: list[Line] = [(f"{'checkpoint':<{width}} {_COLUMNS.format(*heads)}", {"bold": True})]
    projected = is_short = is_unproven = False
    for subject in subjects:
        if subject.measurement is None:
            lines.append((f"{subject.name:<{width}} not run", {"yellow": True}))
            continue
        for kind in subject.kinds:
            mark = "*" if kind.projected and kind.sufficient_up_to_accelerators is not None else ""
            projected = projected or bool(mark)
            is_unproven = is_unproven or not kind.is_proven
            is_short = is_short or (
                kind.is_proven
                and kind.sufficient_up_to_accelerators is None
                and len(kind.operations) == kind.planned > 0
            )
            name = subject.name if kind.kind == "save" else ""
            row = _COLUMNS.format(
                kind.kind,
                _or_dash(kind.slowest_seconds, units.format_seconds),
                _or_dash(kind.limit_seconds, units.format_seconds),
                margin_text(kind.margin),
                _or_dash(kind.needed_bytes_per_second, units.format_rate),
                _or_dash(kind.got_bytes_per_second, units.format_rate),
                _or_dash(kind.sufficient_up_to_accelerators, "{:,}".format) + mark,
            )
            markup = {"red": True} if kind.margin is not None and kind.margin < 0 else {}
            lines.append((f"{name:<{width}} {row.rstrip()}", markup))
    if projected:
        lines.append(("* accelerators, projected from a reduced size: not certified", {}))
    if is_short:
        lines += _wrapped(_NOT_PROJECTED, {})
    if is_unproven:
        lines += _wrapped(_NOT_PROVEN, {})
    return [*lines, ("", {})]


def _names(document: view.Document) -> list[Line]:
    """Return lines with the rates of metadata calls (create, stat, list, …) for each measured subject."""
    lines: list[Line] = []
    for measurement in document.get("measurements") or []:
        if found := (measurement.get("patterns") or {}).get("metadata"):
            names = from_plain(Metadata, found)
            lines += _wrapped(f"names of {measurement['subject']}: {names.extent}: {names.rates or 'no rate'}", {})
    return [*lines, ("", {})] if lines else []


def _behaviour(document: Mapping[str, Any]) -> list[Line]:
    """Return a line with the number of checks of the target's behavior for each outcome."""
    verdicts = view.behaviour(document)
    if not verdicts:
        return []
    text = ", ".join(f"{count} {outcome}" for outcome, count in view.counts(verdicts).items())
    return [(f"behaviour checks: {text}", {}), ("", {})]


def _plugins(document: Mapping[str, Any]) -> list[Line]:
    """Return one line for each plugin: the number of the plugin's requirements for each outcome."""
    of = view.plugins_by_id(document)
    lines: list[Line] = []
    for plugin in dict.fromkeys(of.values()):
        verdicts = [v for v in document.get("requirements") or [] if of.get(v["id"]) == plugin]
        text = ", ".join(f"{count} {outcome}" for outcome, count in view.counts(verdicts).items())
        lines.append((f"requirements of plugin {plugin}: {text}", {}))
    return [*lines, ("", {})] if lines else []


def _starts(document: view.Document) -> list[Line]:
    """Return lines on the starts (pytest invocations) of a run that was interrupted or resumed."""
    lines = [line for text in start_lines(document) for line in _wrapped(text, {})]
    return [*lines, ("", {})] if lines else []


def _exceptions(document: Mapping[str, Any]) -> list[Line]:
    """Return lines on all verdicts that were not met, failed verdicts first.

    Waived verdicts with the same reason share a line. Verdicts that were not run for the same reason also share a line.
    """
    verdicts = document.get("requirements") or []
    behaviour = view.behaviour_ids(document)
    steps = view.next_steps(document)
    lines: list[Line] = []
    for severity, word, markup in (
        ("required", "failed", {"red": True}),
        ("advisory", "advisory failed", {"yellow": True}),
    ):
        for v in verdicts:
            if v["outcome"] == "failed" and v["severity"] == severity:
                lines += _wrapped(f"{word}: {_name(v, behaviour)}: {v['because']}", markup)
                if severity == "required" and (step := view.cure(v) or steps.get(v["id"])):
                    lines += _wrapped(f"  next: {step}", markup)
    for outcome in ("waived", "not run"):
        for group in view.group_verdicts([v for v in verdicts if v["outcome"] == outcome], behaviour):
            lines += _wrapped(f"{outcome}: {group.names}: {group.because}", {"yellow": True})
    return [*lines, ("", {})] if lines else []


def _name(verdict: Mapping[str, Any], behaviour: set[str]) -> str:
    between = " " if verdict["id"] in behaviour else " of "
    return f"{verdict['id']}{between}{verdict['subject']}"


def _grade(document: Mapping[str, Any]) -> list[Line]:
    grade, verdicts = document["grade"], document.get("requirements") or []
    accelerators = (document.get("cluster") or {}).get("accelerators")
    cluster = f" for a cluster of {counted(accelerators, 'accelerator')}" if accelerators else ""
    markup, addition = _GRADES[grade], ""
    if grade == "rehearsal":
        result = view.rehearsal_result(document)
        markup, addition = _GRADES["not certified" if result == "failed" else grade], _REHEARSALS[result]
    of = (document.get("scope") or {}).get("text")
    lines: list[Line] = [(f"{grade.upper()}{cluster}{addition}", markup)]
    for sentence in judged_again_lines(document):
        lines += _wrapped(f"  {sentence}", {})
    lines += _wrapped(f"  {of[0].upper()}{of[1:]}.", {}) if of else []
    lines += [line for sentence in shares_shown(document) for line in _wrapped(f"  {sentence}", {})]
    # A reason that ends with a verdict's sentence was already printed above.
    reasons_of_verdicts = tuple(v["because"] for v in verdicts if v["outcome"] != "met" and v["because"])
    for reason in document.get("grade_reasons") or []:
        if not reason.endswith(reasons_of_verdicts):
            lines += _wrapped(f"  {reason}", {})
    for title, name in (
        ("Why this may be a weak test of an array:", "relevance"),
        ("Not proven, not tried:", "not_tested"),
    ):
        if sentences := document.get(name):
            lines.append((f"  {title}", {"yellow": True} if grade == "certified" else {}))
            lines += [line for sentence in sentences for line in _wrapped(f"    {sentence}", {})]
    directory = (document.get("run") or {}).get("directory")
    if directory:
        lines.append((f"certificate: {directory.rstrip('/')}/{_CERTIFICATE}", {}))
    return lines


def _leftovers(document: Mapping[str, Any]) -> list[Line]:
    return [(f"left on the target: {path}", {"yellow": True}) for path in document.get("left_behind") or []]


def _wrapped(text: str, markup: dict[str, bool]) -> list[Line]:
    indent = " " * (len(text) - len(text.lstrip()))
    lines = textwrap.wrap(
        text.strip(), WIDTH, initial_indent=indent, subsequent_indent=indent + "  ", break_on_hyphens=False
    )
    return [(line, markup) for line in lines]


def _or_dash(value: float | None, write: Callable[[Any], str]) -> str:
    return NONE if value is None else write(value)

"""Terminal output for published benchmark results: the published times, and the times that we judge."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_ckpt.report.quantity import NONE
from pytest_ckpt.report.svg import printable
from pytest_ckpt.support import units

WIDTH = 100
_MAXIMUM_MESSAGES = 30
_SYSTEM_WIDTH = 30
_ONE = "{:<6}{:>11}{:>15}{:>12}{:>10}  {:<38}  {}"
_MANY = "{:<30} {:<19}{:>10}{:>10}{:>10}{:>10}{:>16}  {}"


def result_lines(document: Mapping[str, Any]) -> list[str]:
    """Return one published result as lines: published and judged times, then notices about its files."""
    published = document["published"]
    lines = [
        f"published with {published['tool']}: {published['system']}",
        _ONE.format("", "published", "slowest rank", "overstated", "judged", "basis", "limit"),
    ]
    for figure in published["figures"]:
        if not figure["operations"]:
            lines.append(_ONE.format(figure["kind"], NONE, NONE, NONE, NONE, "not in this result", ""))
            continue
        lines.append(
            _ONE.format(
                figure["kind"],
                _seconds(figure["published_seconds"]),
                _seconds(figure["slowest_mean_seconds"]),
                share(figure["overstatement"]),
                _seconds(figure["judged_seconds"]),
                figure["basis"],
                figure["outcome_text"],
            )
        )
    lines.append("published and slowest rank are means over the operations; judged is the slowest operation")
    if published["network"]:
        lines += textwrap.wrap(published["network"]["description"], WIDTH)
    return [_plain(line) for line in [*lines, "", *message_lines(published["messages"])]]


def table_lines(document: Mapping[str, Any]) -> list[str]:
    """Return a table of all results in a directory tree: one row per system and checkpoint."""
    accelerators = document["cluster"]["accelerators"]
    lines = [
        _MANY.format("", "", "save:", "", "load:", "", "", "").rstrip(),
        _MANY.format(
            "system",
            "checkpoint",
            "published",
            "judged",
            "published",
            "judged",
            "sufficient for",
            f"at {accelerators:,}",
        ),
    ]
    for row in document["results"]:
        cells = [_seconds(f[name]) for f in row["figures"] for name in ("published_seconds", "judged_seconds")]
        overall = row["sufficient_up_to_accelerators"]["overall"]
        flags = row["verdict"] + (", signs of cached loads" if row["signs"] else "")
        if row["network"] and row["network"]["crossed"]:
            flags += ", loads crossed the network"
        lines.append(
            _MANY.format(
                _shortened(row["system"]), row["subject"], *cells, NONE if overall is None else f"{overall:,}", flags
            )
        )
    results = len(document["results"])
    lines += [
        "",
        *textwrap.wrap(
            f"{units.counted(results, 'result')} of {units.counted(document['runs'], 'run')} for a cluster of "
            f"{units.counted(accelerators, 'accelerator')}: a save "
            f"within {units.format_seconds(document['cluster']['save_limit_seconds'])}, a load within "
            f"{units.format_seconds(document['cluster']['load_limit_seconds'])}. Published: mean of rank 0's own "
            "times. Judged: the slowest process of the slowest operation. None is certified: DLIO shows neither that "
            "saves are durable, nor that loads are cold, nor that bytes are right.",
            WIDTH,
        ),
    ]
    if document["passed_over"]:
        others = units.counted(document["passed_over"], "run of another benchmark was", "runs of other benchmarks were")
        lines.append(f"{others} passed over.")
    return [_plain(line) for line in [*lines, "", *message_lines(document["messages"])]]


def rule_lines(document: Mapping[str, Any]) -> list[str]:
    """Return lines on the benchmark's rules, for each result: broken rules, warnings, undecided rules, met rules."""
    lines = []
    for row in document["results"]:
        division = row["division"].upper() or "no division"
        lines.append(f"{row['system']}: {row['subject']} ({division})")
        for outcome in ("broken", "warning", "not told", "met"):
            for rule in row["rules"]:
                if rule["outcome"] == outcome:
                    head = f"  {outcome:<9} {rule['number']:<13}"
                    text = f"{rule['text']}. {rule['because']}" if outcome != "met" else rule["text"]
                    lines += textwrap.wrap(head + text, WIDTH, subsequent_indent=" " * len(head))
        counts = Counter(rule["outcome"] for rule in row["rules"])
        warnings = f"{units.counted(counts['warning'], 'warning')}, " if counts["warning"] else ""
        lines += [
            f"  {counts['met']} met, {counts['broken']} broken, {warnings}{counts['not told']} not shown by these "
            "files",
            "",
        ]
    lines += textwrap.wrap(f"{document['source']}. MLCommons decides whether a submission is valid.", WIDTH)
    return [_plain(line) for line in [*lines, "", *message_lines(document["messages"])]]


def message_lines(messages: Sequence[Mapping[str, str]]) -> list[str]:
    """Return at most 30 messages as lines. Files with the same message share one line."""
    lines = []
    grouped = group_messages(messages)
    for text, paths in grouped[:_MAXIMUM_MESSAGES]:
        more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
        lines += textwrap.wrap(
            f"note: {paths[0]}{more}: {text}", WIDTH, subsequent_indent="  ", break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
    if len(grouped) > _MAXIMUM_MESSAGES:
        lines.append(f"and {units.counted(len(grouped) - _MAXIMUM_MESSAGES, 'more note')}: --json has all of them")
    return lines


def group_messages(messages: Iterable[Mapping[str, str]]) -> list[tuple[str, list[str]]]:
    """Return (text, paths) for each distinct text, in the order of first appearance."""
    grouped: dict[str, list[str]] = {}
    for message in messages:
        grouped.setdefault(message["text"], []).append(message["path"])
    return list(grouped.items())


def share(overstatement: float | None) -> str:
    """Return the overstatement as a signed percentage. If it is unknown, return a dash.

    The overstatement is the additional time of the slowest process, compared with the time of rank 0.
    """
    if overstatement is None:
        return NONE
    return ("+" if overstatement >= 0 else "-") + units.format_percent(abs(overstatement), digits=2)


def _seconds(value: float | None) -> str:
    return NONE if value is None else units.format_seconds(value)


def _shortened(name: str) -> str:
    if len(name) <= _SYSTEM_WIDTH:
        return name
    return f"{name[: _SYSTEM_WIDTH - 13]}...{name[-10:]}"


def _plain(line: str) -> str:
    return printable(line).replace("\n", " ").replace("\N{EN DASH}", "-").rstrip()

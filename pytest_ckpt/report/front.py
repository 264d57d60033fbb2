"""The first page of a certificate: open points with remedies, and a matrix of requirements and checkpoints.

The remedy of a verdict is a section of docs/faq.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from pytest_ckpt.facts.checks import BY_NAME as CHECKS
from pytest_ckpt.facts.verdict import Reason
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.report import view
from pytest_ckpt.report.view import Document
from pytest_ckpt.support import resources
from pytest_ckpt.support.units import counted

_CLIENT = "A client's fsync or clock cannot be believed"

_OF_REASONS: Mapping[str, str] = {
    "no test": "A test was deselected",
    "not selected": "A suite was not selected",
    "not given": "Inputs of a check that were not given",
    "not planned": "The model needs more ranks than there are",
    "unproven": "Uncached reads cannot be proven",
    "command failed": "The command that drops caches fails",
    "run ended": "The run ended before something was measured",
    "hung": "A rank hung",
    "killed": "A rank was killed",
}
"""The help's headings for verdicts that are "not run", by reason, and for ranks that ended early."""

_OF_UNPROVEN: Mapping[str, str] = {"DURABLE-CALLS": _CLIENT}
"""The help's headings for requirements whose missing proof is not a proof of uncached reads."""

_WAIVED = "Waived"

HEADINGS = frozenset({*(r.help for r in REQUIREMENTS.values()), *_OF_REASONS.values(), *_OF_UNPROVEN.values(), _WAIVED})
"""All headings that a verdict can refer to."""

REASONS = frozenset(_OF_REASONS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Help:
    """A section of docs/faq.md that a certificate contains: heading, id in the certificate, and content as HTML."""

    heading: str
    anchor: str
    text: str


def heading_of(verdict: Document) -> str:
    """Return the heading of the help section for a verdict; empty if no help section exists for it."""
    outcome, reason = verdict["outcome"], verdict.get("reason") or ""
    if outcome == "waived":
        return _WAIVED
    if outcome == "failed":
        return _OF_REASONS.get(reason) or (REQUIREMENTS[verdict["id"]].help if verdict["id"] in REQUIREMENTS else "")
    if (outcome, reason) == ("not run", "unproven") and verdict["id"] in _OF_UNPROVEN:
        return _OF_UNPROVEN[verdict["id"]]
    return _OF_REASONS.get(reason, "") if outcome == "not run" else ""


def anchor_of(heading: str) -> str:
    """Return the id of a help section in a certificate."""
    return "h-" + re.sub(r"\W+", "-", heading.lower()).strip("-")


def helps(verdicts: Iterable[Document]) -> list[Help]:
    """Return the help sections for all failed verdicts and for all required verdicts. Each section occurs once.

    A met verdict has no help section.
    """
    decisive = (v for v in verdicts if v["outcome"] == "failed" or v["severity"] == "required")
    headings = filter(None, dict.fromkeys(map(heading_of, decisive)))
    return [Help(heading=h, anchor=anchor_of(h), text=_parts()[h]) for h in headings]


@cache
def _parts() -> Mapping[str, str]:
    file = resources.directory("templates") / "remedies.json"
    parts: Mapping[str, str] = json.loads(file.read_text(encoding="utf-8"))
    return parts


MAXIMUM_COLUMNS = 8
"""The maximum number of checkpoints that a matrix shows as columns on a phone.

A matrix with one checkpoint, or with more than this maximum, has a line for each checkpoint.
"""

_NEXT_OF_REASONS: Mapping[str, str] = {
    "no test": "Run again without deselecting (-k, -m, a name on the command line), and let the session end.",
    "not selected": "Run again without --ckpt-suite, or with these suites named, too.",
    "not given": "Give what the sentence names, and run again.",
    "not planned": "Start as many ranks as the model needs (--ckpt-ranks, --ckpt-hosts), or choose --ckpt-model.",
    "unproven": "Prove that loads are not cached: run as root, or give --ckpt-drop-caches.",
    "client too slow": "Use more or faster clients (--ckpt-hosts, more cores), and run again.",
    "run ended": "Look why the run ended, and run again.",
    "not measured": "Look why the measurement ended, and run again.",
}
_NEXT_OF_NEEDS: Mapping[str, str] = {
    "second client": "Give a second client (--ckpt-second-mount, or a second host in --ckpt-hosts), and run again.",
    "power cut": "Give the command that cuts the power (--ckpt-actions [power_cut] command), and run again.",
    "small directory": "Give a directory on a small volume or quota that may be filled (--ckpt-small-volume).",
}
_MAXIMUM_NAMED = 4
_AGAIN = "Read the reason, put it right, and run again."


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenPoint:
    """Required verdicts that are not met and have the same next step.

    ``ids`` are the requirements. ``names`` are the subjects as text or, if there are many, the number of verdicts.
    ``helps`` is the id of the help section in the certificate; empty without help.
    """

    outcome: str
    ids: tuple[str, ...]
    names: str
    next_step: str
    helps: str


def open_points(document: Document) -> list[OpenPoint]:
    """Return the points that prevent a certificate, each with its next step. Failures come first."""
    steps = view.next_steps(document)
    groups: dict[tuple[str, str, str], list[Document]] = {}
    for outcome in ("failed", "not run", "waived"):
        for verdict in document.get("requirements") or []:
            if verdict["severity"] != "required" or verdict["outcome"] != outcome:
                continue
            reason = verdict.get("reason") or ""
            if outcome == "failed":
                step = view.cure(verdict) or steps.get(verdict["id"], _AGAIN)
            elif outcome == "not run":
                step = _next_of_missing(verdict) or _NEXT_OF_REASONS.get(reason, _AGAIN)
            else:
                step = "Have it met before the waiver expires."
            groups.setdefault((outcome, step, heading_of(verdict)), []).append(verdict)
    return [
        OpenPoint(
            outcome=outcome,
            ids=tuple(dict.fromkeys(v["id"] for v in verdicts)),
            names=_named(verdicts),
            next_step=step,
            helps=heading and anchor_of(heading),
        )
        for (outcome, step, heading), verdicts in groups.items()
    ]


def after_certificate(document: Document, *, is_signed: bool) -> list[str]:
    """Return the next steps of a buyer who has a certificate. For any other grade, return an empty list."""
    if document["grade"] != "certified":
        return []
    tester = ((document.get("system") or {}).get("tester") or {}).get("role")
    untried = document.get("not_tested") or view.unread_copies(document)
    steps = (
        "Verify the run directory and its signature: pytest-ckpt verify DIRECTORY --key PUBLIC."
        if is_signed
        else "Ask for the run directory, signed with --ckpt-sign, and verify it: pytest-ckpt verify DIRECTORY.",
        "" if tester else "Ask whether the vendor, the buyer or a third party tested.",
        "Decide which points under “Not proven and not tried” the purchase depends on, and require them."
        if untried
        else "",
        "Repeat the run on the delivered system.",
    )
    return [step for step in steps if step]


_CAUSES: Mapping[str, frozenset[Reason]] = {
    "slower than the limit": frozenset({"over limit", "uneven", "not steady"}),
    "data lost, wrong or not durable": frozenset({"wrong bytes", "missing bytes", "not durable"}),
    "behaviour that checkpoint software cannot rely on": frozenset({"anomaly"}),
    "loads not proven to come from the storage": frozenset({"cached", "unproven"}),
    "a call failed or did not return": frozenset({"error", "hung"}),
    "the run or a rank ended early": frozenset({"killed", "run ended", "not measured", "command failed"}),
    "the clients or other work on the hosts, not the storage": frozenset({"client too slow", "host busy"}),
    "times that are not known exactly enough": frozenset({"perhaps late", "not recorded"}),
    "not run with the ranks and inputs that were given": frozenset(
        {"not given", "not planned", "not selected", "not possible", "too few", "no test", "no facts"}
    ),
    "an error in a test": frozenset({"hook failed", "check broke", "plugin"}),
}
"""The kinds of causes that the first page names, each with the reason codes of its verdicts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """A kind of cause that prevented a certificate, and the requirements that were not met for this cause."""

    outcome: str
    text: str
    ids: tuple[str, ...]


def causes(document: Document) -> list[Cause]:
    """Return the causes of failed required verdicts.

    If no required verdict failed, return the causes of missing results.
    """
    required = [v for v in document.get("requirements") or [] if v["severity"] == "required"]
    for outcome in ("failed", "not run"):
        decisive = [v for v in required if v["outcome"] == outcome]
        if decisive:
            found = ((text, [v["id"] for v in decisive if v["reason"] in codes]) for text, codes in _CAUSES.items())
            return [Cause(outcome=outcome, text=text, ids=tuple(dict.fromkeys(ids))) for text, ids in found if ids]
    return []


def advisory_failures(document: Document) -> list[view.VerdictGroup]:
    """Return the failed advisory verdicts, grouped by reason. Advisory verdicts do not change the grade."""
    verdicts = document.get("requirements") or []
    failed = [v for v in verdicts if v["severity"] == "advisory" and v["outcome"] == "failed"]
    return view.group_verdicts(failed, view.behaviour_ids(document))


def _named(verdicts: Sequence[Document]) -> str:
    """Return the subjects of verdicts as text. If there are many subjects, return the number of verdicts."""
    subjects = [*dict.fromkeys(v["subject"] for v in verdicts)]
    return ", ".join(subjects) if len(subjects) <= _MAXIMUM_NAMED else counted(len(verdicts), "verdict")


def _next_of_missing(verdict: Document) -> str:
    """Return how the user can provide the missing input of a check. If no input is missing, return an empty text."""
    check = CHECKS.get(f"{verdict['id']}.{verdict['subject']}")
    return _NEXT_OF_NEEDS.get(check.needs, "") if check and verdict.get("reason") == "not given" else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """The worst outcome of one requirement, for one checkpoint or for all behaviour checks of the requirement.

    ``outcome`` is empty if the requirement does not apply to the checkpoint.
    """

    outcome: str = ""
    severity: str = "required"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One requirement, with a cell for each checkpoint (column)."""

    id: str
    cells: tuple[Cell, ...]

    @property
    def is_advisory(self) -> bool:
        """Whether all verdicts of the row are advisory."""
        return all(cell.severity == "advisory" for cell in self.cells if cell.outcome)


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrix:
    """A table of outcomes: a row for each requirement, a column for each checkpoint.

    ``behaviour`` contains (requirement, cell, number of met checks, number of checks) for each requirement on the
    target's behavior. ``advisory_not_run`` lists advisory requirements that were not run; the table has no row for
    them.
    """

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    behaviour: tuple[tuple[str, Cell, int, int], ...]
    advisory_not_run: tuple[str, ...]


def matrix(document: Document) -> Matrix:
    """Return the table of outcomes: each requirement for each checkpoint, and the outcomes of behaviour checks."""
    behaviour = view.behaviour_ids(document)
    verdicts = document.get("requirements") or []
    of_checkpoints = [v for v in verdicts if v["id"] not in behaviour]
    columns = tuple(dict.fromkeys(v["subject"] for v in of_checkpoints))
    verdict_of = {(v["id"], v["subject"]): v for v in of_checkpoints}
    rows, not_requested = [], []
    for name in dict.fromkeys(v["id"] for v in of_checkpoints):
        of_requirement = [v for v in of_checkpoints if v["id"] == name]
        if all(v["outcome"] == "not run" and v["severity"] == "advisory" for v in of_requirement):
            not_requested.append(name)
            continue
        cells = (verdict_of.get((name, subject)) for subject in columns)
        rows.append(Row(id=name, cells=tuple(_cell([v]) if v else Cell() for v in cells)))
    checks = []
    for name in dict.fromkeys(v["id"] for v in verdicts if v["id"] in behaviour):
        of_requirement = [v for v in verdicts if v["id"] == name]
        if all(v["outcome"] == "not run" and v["severity"] == "advisory" for v in of_requirement):
            not_requested.append(name)
            continue
        checks.append(
            (name, _cell(of_requirement), sum(v["outcome"] == "met" for v in of_requirement), len(of_requirement))
        )
    return Matrix(columns=columns, rows=tuple(rows), behaviour=tuple(checks), advisory_not_run=tuple(not_requested))


def _cell(verdicts: Sequence[Document]) -> Cell:
    """Return the worst of several verdicts. Advisory verdicts count only if there is no required verdict."""
    order = ("failed", "not run", "waived", "met")
    decisive = [v for v in verdicts if v["severity"] == "required"] or verdicts
    worst = min(decisive, key=lambda v: order.index(v["outcome"]))
    return Cell(outcome=worst["outcome"], severity=worst["severity"])

"""What helps where a verdict is not met: which part of docs/faq.md a verdict leads to, and what that part says.

templates/remedies.json holds the parts themselves, made from the page, so that a certificate brings them along.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.report.view import Document
from pytest_ckpt.support import resources

_CLIENT = "A client's fsync or clock cannot be believed"

_OF_REASONS: Mapping[str, str] = {
    "no test": "A test was deselected",
    "not selected": "A suite was not selected",
    "not given": "What a check needs was not given",
    "not planned": "The model needs more ranks than there are",
    "unproven": "Uncached reads cannot be proven",
    "command failed": "The command that drops caches fails",
    "run ended": "The run ended before something was measured",
    "hung": "A rank hung",
    "killed": "A rank was killed",
}
"""Parts on why there is no verdict, or why a rank ended."""

_OF_UNPROVEN: Mapping[str, str] = {"DURABLE-CALLS": _CLIENT}
"""Parts on requirements whose proof lacks something else than uncached reads."""

_WAIVED = "Waived"

HEADINGS = frozenset({*(r.help for r in REQUIREMENTS.values()), *_OF_REASONS.values(), *_OF_UNPROVEN.values(), _WAIVED})
"""Every part that a verdict can lead to."""

REASONS = frozenset(_OF_REASONS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Help:
    """A part of docs/faq.md in a certificate: ``anchor`` is its id there, ``text`` what helps, as HTML."""

    heading: str
    anchor: str
    text: str


def heading_of(verdict: Document) -> str:
    """Return the part that helps with a verdict; empty where it was met, or nothing is written of it."""
    outcome, reason = verdict["outcome"], verdict.get("reason") or ""
    if outcome == "waived":
        return _WAIVED
    if outcome == "failed":
        return _OF_REASONS.get(reason) or (REQUIREMENTS[verdict["id"]].help if verdict["id"] in REQUIREMENTS else "")
    if (outcome, reason) == ("not run", "unproven") and verdict["id"] in _OF_UNPROVEN:
        return _OF_UNPROVEN[verdict["id"]]
    return _OF_REASONS.get(reason, "") if outcome == "not run" else ""


def anchor_of(heading: str) -> str:
    """Return the id of a part in a certificate."""
    return "h-" + re.sub(r"\W+", "-", heading.lower()).strip("-")


def helps(verdicts: Iterable[Document]) -> list[Help]:
    """Return what helps with verdicts, each part once: all that failed, and what is required and lacks."""
    asked = (v for v in verdicts if v["outcome"] == "failed" or v["severity"] == "required")
    headings = filter(None, dict.fromkeys(map(heading_of, asked)))
    return [Help(heading=h, anchor=anchor_of(h), text=_parts()[h]) for h in headings]


@cache
def _parts() -> Mapping[str, str]:
    file = resources.folder("templates") / "remedies.json"
    parts: Mapping[str, str] = json.loads(file.read_text(encoding="utf-8"))
    return parts

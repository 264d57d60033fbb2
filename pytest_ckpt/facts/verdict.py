"""What was decided about a requirement, and about a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["required", "advisory"]


Outcome = Literal["met", "failed", "not run", "waived"]


Grade = Literal["certified", "not certified", "incomplete", "rehearsal"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What was decided about one requirement and subject.

    ``margin`` is the share of the limit that was left (negative: by how much it was missed), None where a
    requirement has no scale. ``because`` is one sentence for a person; ``detail`` holds the lines that explain it.
    """

    id: str
    subject: str
    severity: Severity
    outcome: Outcome
    measured: float | None
    limit: float | None
    unit: str
    margin: float | None
    because: str
    detail: str

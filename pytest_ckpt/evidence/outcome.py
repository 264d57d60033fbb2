"""The result of one part of a verification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Examined = Literal["digests", "verdicts", "pages", "signature"]
Outcome = Literal["holds", "broken", "not checked"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Examination:
    """One comparison; ``details`` name each place of a difference."""

    name: Examined
    outcome: Outcome
    description: str
    details: tuple[str, ...] = ()

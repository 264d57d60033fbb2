"""What `doctor` finds: one line a thing that it looks at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One line: what was looked at, whether it can be done, and what to do if not.

    Without what is ``needed`` no run is possible; the rest limits what a run can prove.
    """

    name: str
    can: bool
    needed: bool
    description: str
    remedy: str = ""

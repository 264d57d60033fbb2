"""What more clients would get, as it is told; `saturation` finds it, and needs numpy."""

from __future__ import annotations

from dataclasses import dataclass

MINIMUM_COUNTS = 4
"""Different counts of clients without which no model can be told from another."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Projection:
    """Bytes a second that ``clients`` would get. ``model`` is the one with the least leave-one-out error.

    Where the rates do not determine it there is no median (``why_not`` says why), and ``low`` and ``high`` are bounds.
    Without a sign of a ceiling they are what the largest count got, and what linear growth or the bound would give.
    ``leave_one_out_error`` is the root mean square of the logarithms by which the model misses a count left out.
    """

    clients: int
    why_not: str
    model: str
    median: float | None
    low: float
    high: float
    leave_one_out_error: float

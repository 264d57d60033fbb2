"""The permitted values of records' fields beyond their types. `facts.written` checks files against them.

These are data, not msgspec's ``Meta``: the process of each check and each rank imports records, and msgspec costs more
to import than all of them.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple


class Bounds(NamedTuple):
    """The bounds of a number, the lengths of a text or list, the pattern of a text; ``description`` is for people."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    description: str | None = None


class Partly(NamedTuple):
    """For a record whose other fields may be missing in a file: the fields that must be there."""

    fields: tuple[str, ...]


Count = Annotated[int, Bounds(ge=0)]
CountFromOne = Annotated[int, Bounds(ge=1)]
NotNegative = Annotated[float, Bounds(ge=0)]
Positive = Annotated[float, Bounds(gt=0)]
Share = Annotated[float, Bounds(ge=0, le=1)]
AtMostOne = Annotated[float, Bounds(le=1)]
Difference = Annotated[float, Bounds(ge=-1e9, le=1e9)]
Text = Annotated[str, Bounds(min_length=1)]
"""A text that is not empty."""
Moment = Annotated[str, Bounds(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}")]
"""A time of day as ISO 8601."""
RequirementId = Annotated[str, Bounds(pattern=r"^[A-Z][A-Z0-9-]*$")]

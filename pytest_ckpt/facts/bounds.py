"""Bounds on the values of records' fields, for type annotations. `facts.written` checks files with them.

msgspec has a similar class, ``Meta``. It is not used because each check and each rank imports the records, and the
import of msgspec takes longer than the import of all records.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple


class Bounds(NamedTuple):
    """The bounds of a number, or of the length of a text or list, or the pattern (regular expression) of a text.

    ``description`` is the text for messages.
    """

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    description: str | None = None


class Partly(NamedTuple):
    """Marks a record whose fields are optional in a file, except ``fields``: the fields that the file must contain."""

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
"""A date and a time of day, in ISO 8601."""
RequirementId = Annotated[str, Bounds(pattern=r"^[A-Z][A-Z0-9-]*$")]

"""Access to values of any type in the JSON files of other tools. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

_CLOCK_START = datetime(2000, 1, 1)


def table(value: Any) -> dict[str, Any]:
    """Return a JSON object; an empty object for any other value."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> Sequence[Any]:
    """Return a JSON array; an empty array for any other value."""
    return value if isinstance(value, list) else []


def moment(value: Any) -> datetime | None:
    """Return a time in ISO 8601, with or without a zone; None for any other value."""
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None


def on_clock(naive: datetime) -> float:
    """Return a time without a zone as seconds since 2000 on the clock of the host that wrote it."""
    return (naive - _CLOCK_START).total_seconds()

"""Converts values from other tools' JSON files, which may have any type. Pure (no I/O)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

_CLOCK_START = datetime(2000, 1, 1)


def table(value: Any) -> dict[str, Any]:
    """Return ``value`` if it is a JSON object; otherwise an empty object."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> Sequence[Any]:
    """Return ``value`` if it is a JSON array; otherwise an empty array."""
    return value if isinstance(value, list) else []


def parsed_time(value: Any) -> datetime | None:
    """Return the time in an ISO 8601 text, with or without a time zone; None for any other value."""
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None


def on_clock(naive: datetime) -> float:
    """Return a time without a time zone as seconds since 2000 on the same clock."""
    return (naive - _CLOCK_START).total_seconds()

"""Converts values to text. Only this module defines how each unit of a verdict is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime

from pytest_ckpt.support import units
from pytest_ckpt.support.units import counted

NONE = "\N{EN DASH}"
"""The text for a value that was not measured."""

_WRITTEN: dict[str, Callable[..., str]] = {
    "s": units.format_seconds,
    "seconds": units.format_seconds,
    "B/s": units.format_rate,
    "bytes/s": units.format_rate,
    "B": units.format_bytes,
    "bytes": lambda value, digits=0: counted(round(value), "byte"),
    "fraction": units.format_percent,
}


def seconds_text(seconds: float) -> str:
    """Return a duration with its unit."""
    return units.format_seconds(seconds)


def quantity(value: float | None, unit: str) -> str:
    """Return a value of a verdict with its unit. If there is no value, return a dash.

    A unit such as ``slowest / median`` is a ratio. Such a value is written as a factor.
    """
    return NONE if value is None else _writer_of(unit)(value)


def quantities(measured: float | None, limit: float | None, unit: str) -> tuple[str, str]:
    """Return (measured value, limit) as texts, with enough digits to distinguish the two values."""
    if measured is None or limit is None:
        return quantity(measured, unit), quantity(limit, unit)
    return units.compared(measured, limit, _writer_of(unit))


def _writer_of(unit: str) -> Callable[..., str]:
    if unit in _WRITTEN:
        return _WRITTEN[unit]

    def write(value: float, *, digits: int = 3) -> str:
        if " / " in unit:
            return f"{value:.{digits - 1}f} \N{MULTIPLICATION SIGN}"
        shown = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.{digits}g}"
        return f"{shown} {unit}".rstrip()

    return write


def seconds_format(largest: float | None) -> Callable[[float | None], str]:
    """Return a formatter for a column of durations.

    The unit and the number of decimals are those that ``largest`` needs.
    """
    steps = ((7200.0, 3600.0, "h"), (120.0, 60.0, "min"), (1.0, 1.0, "s"), (1e-3, 1e-3, "ms"), (0.0, 1e-6, "µs"))
    return _column_format(largest, steps)


def rate_format(largest: float | None) -> Callable[[float | None], str]:
    """Return a formatter for a column of rates.

    The unit and the number of decimals are those that ``largest`` needs.
    """
    steps = ((1e12, 1e12, "TB/s"), (1e9, 1e9, "GB/s"), (1e6, 1e6, "MB/s"), (0.0, 1e3, "kB/s"))
    return _column_format(largest, steps)


def decimals_for(largest: float) -> int:
    """Return the number of decimals that a value needs for three significant digits."""
    return max(0, 2 - math.floor(math.log10(largest))) if largest > 0 else 0


def three_digits(value: float) -> str:
    """Return a number with at least three significant digits, and with thousands separators."""
    return f"{value:,.{decimals_for(value)}f}"


def _column_format(largest: float | None, steps: tuple[tuple[float, float, str], ...]) -> Callable[[float | None], str]:
    top = largest or 0.0
    _, size, letters = next(step for step in steps if top >= step[0])
    decimals = decimals_for(top / size)
    return lambda value: NONE if value is None else f"{value / size:,.{decimals}f} {letters}"


def margin_text(margin: float | None) -> str:
    """Return the unused share of the limit as a signed percentage: ``+58 %``, ``−4.2 %``.

    If a value exceeds twice the limit, return the multiple: ``100 × limit``. The result is ``+100 %`` only if
    ``margin`` is exactly 1. If ``margin`` is None, return a dash.
    """
    if margin is None:
        return NONE
    if margin < -1:
        return f"{three_digits(1 - margin)} \N{MULTIPLICATION SIGN} limit"
    sign = "+" if margin >= 0 else "\N{MINUS SIGN}"
    text = units.format_percent(abs(margin), digits=2 if margin < 0.99 else 3)
    return sign + ("99.9 %" if text == "100 %" and 0 < margin < 1 else text)


def time_text(iso: str | None) -> str:
    """Return an ISO 8601 time as readable text, in the time zone of ``iso``.

    If there is no time, return a dash. If the time is invalid, return ``iso`` unchanged.
    """
    if not iso:
        return NONE
    try:
        moment = datetime.fromisoformat(iso)
    except ValueError:
        return str(iso)
    zone = moment.strftime("%Z") or moment.strftime("%z")
    return f"{moment.day} {moment:%B %Y, %H:%M} {zone}".rstrip()

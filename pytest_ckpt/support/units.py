"""Parses and formats durations, fractions, sizes and rates for people.

GB is 10^9 bytes, GiB is 2^30 bytes, and case matters in sizes and rates (b means bits). The parsers raise ValueError
with the valid values; the caller adds the name of the option.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_NUMBER = r"\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?|\.\d+(?:[eE][+-]?\d{1,3})?"
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*([^\s\d](?:.*\S)?)?\s*", re.ASCII)
_RATIO = re.compile(r"\s*(\d+)\s*/\s*(\d+)\s*", re.ASCII)
_LARGEST = Fraction(10) ** 30
# The number of digits of a float.
_EVERY_DIGIT = 17
_DIGITS_OF_SHARES = 9

_MILLISECOND = Fraction(1, 1000)
_SECONDS: dict[str, Fraction] = {
    **dict.fromkeys(("us", "µs", "μs"), Fraction(1, 10**6)),
    "ms": _MILLISECOND,
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), Fraction(1)),
    **dict.fromkeys(("min", "minute", "minutes"), Fraction(60)),
    **dict.fromkeys(("h", "hour", "hours"), Fraction(3600)),
    **dict.fromkeys(("d", "day", "days"), Fraction(86_400)),
}
_PREFIXES = "kMGTPE"
_BYTES: dict[str, Fraction] = {"": Fraction(1), "B": Fraction(1)}
for _power, _letter in enumerate(_PREFIXES, start=1):
    for _name in {_letter, _letter.upper()}:
        _BYTES |= dict.fromkeys((_name, f"{_name}B"), Fraction(1000) ** _power)
        _BYTES |= dict.fromkeys((f"{_name}i", f"{_name}iB"), Fraction(1024) ** _power)

_DURATION_ACCEPTED = "a number with ms, s, min, h or d, such as 28s, 9.3min, 4h, 50000h (a bare number is seconds)"
_FRACTION_ACCEPTED = "a share from 0 to 1, such as 5%, 0.05 or 1/1000"
_SIZE_ACCEPTED = (
    "a number with B, kB, MB, GB, TB, PB (powers of 1000) or KiB, MiB, GiB, TiB, PiB (powers of 1024), "
    "such as 105GiB or 64MB (a bare number is bytes)"
)


def parse_duration(text: str) -> float:
    """Convert a duration such as ``28s``, ``9.3min``, ``50000h``, ``2d`` or ``500ms`` to seconds.

    A number without a unit is in seconds. Raises ValueError for other text. ``m`` is refused, because it may mean
    minutes, months or milli.
    """
    number, unit = _split(text, _DURATION_ACCEPTED)
    if unit in {"m", "M"}:
        raise ValueError(f"{text!r}: 'm' is ambiguous: use 'min' for minutes; expected {_DURATION_ACCEPTED}")
    factor = _SECONDS.get(unit.lower())
    if factor is None:
        raise ValueError(f"{text!r} has no known unit of time ({unit!r}); expected {_DURATION_ACCEPTED}")
    return float(number * factor)


def parse_fraction(text: str) -> float:
    """Convert a share such as ``5%``, ``0.05`` or ``1/1000`` to a number from 0 to 1.

    Raises ValueError for other text. For a number above 1, the message says that ``%`` was probably forgotten.
    """
    if ratio := _RATIO.fullmatch(text):
        over, under = int(ratio[1]), int(ratio[2])
        if not under:
            raise ValueError(f"{text!r} divides by zero; expected {_FRACTION_ACCEPTED}")
        value = Fraction(over, under)
        hint = ""
    else:
        number, unit = _split(text, _FRACTION_ACCEPTED)
        if unit not in {"", "%"}:
            raise ValueError(f"{text!r} is not a share; expected {_FRACTION_ACCEPTED}")
        value = number / 100 if unit else number
        hint = "" if unit else f", for percent write {text.strip()}%"
    if value > 1:
        raise ValueError(f"{text!r} is more than the whole{hint}; expected {_FRACTION_ACCEPTED}")
    return float(value)


def parse_size(text: str) -> int:
    """Convert a size such as ``105GiB``, ``64MB`` or ``4096`` to bytes, rounded down. Raises ValueError."""
    number, unit = _split(text, _SIZE_ACCEPTED)
    factor = _BYTES.get(unit)
    if factor is None:
        near = {name.lower(): name for name in _BYTES if name.endswith("B")}.get(unit.lower())
        hint = f", case counts: write {near}" if near else ""
        raise ValueError(f"{text!r} has no known unit of size ({unit!r}{hint}); expected {_SIZE_ACCEPTED}")
    return int(number * factor)


def format_seconds(seconds: float, *, digits: int = 3) -> str:
    """Return a duration as text with ``digits`` significant digits: ``12 ms``, ``4.45 s``, ``9.3 min``, ``50,000 h``.

    Below one second the unit is ms or µs. From two minutes on it is minutes, from two hours on it is hours.
    """
    return _in_steps(seconds, _TIME_STEPS, digits)


def format_times(seconds: Iterable[float]) -> str:
    """Return durations as text, separated by commas: ``1.2 s, 950 ms``."""
    return ", ".join(map(format_seconds, seconds))


def format_binary_bytes(count: float, *, digits: int = 3) -> str:
    """Return a number of bytes in binary units: ``512 KiB``, ``4 MiB``, ``5,292 GiB``.

    Use binary units only for sizes of requests and parts, which are powers of two, and for values that are published in
    GiB. All other amounts are shown in decimal units (`format_bytes`).
    """
    return _in_steps(count, _BINARY_STEPS, digits)


def format_bytes(count: float, *, digits: int = 3) -> str:
    """Return a number of bytes in decimal units: ``112 GB``, ``5.68 TB``, ``14.5 PB``."""
    return _in_steps(count, _DECIMAL_STEPS, digits)


def format_rate(bytes_per_second: float, *, digits: int = 3) -> str:
    """Return a rate in decimal units: ``533 MB/s``, ``273 GB/s``, ``1.64 TB/s``."""
    return f"{format_bytes(bytes_per_second, digits=digits)}/s"


def format_percent(fraction: float, *, digits: int = 3) -> str:
    """Return a share as a percentage: ``5 %`` for 0.05, ``0.35 %`` for 0.0035."""
    return f"{_number(fraction * 100, digits)} %"


def format_share(fraction: float) -> str:
    """Return a share, which a user set, as a percentage with up to nine significant digits: ``99.95 %``."""
    return format_percent(fraction, digits=_DIGITS_OF_SHARES)


def compared(value: float, limit: float, write: Callable[..., str] = format_seconds) -> tuple[str, str]:
    """Return (value, limit) as texts with enough digits to distinguish the two: ``1.0004 s`` and ``1 s``.

    ``write`` is a function that formats a number; its keyword ``digits`` is the number of digits.
    """
    texts = write(value), write(limit)
    digits = 3
    while texts[0] == texts[1] and value != limit and digits < _EVERY_DIGIT:
        digits += 1
        texts = write(value, digits=digits), write(limit, digits=digits)
    return texts


def format_ratio(ratio: float, limit: float = 1.0) -> str:
    """Return a ratio with two decimals, or with enough digits to distinguish it from its limit: ``1.0004``."""
    decimals = 2
    while ratio != limit and float(f"{ratio:.{decimals}f}") == limit and decimals < _EVERY_DIGIT:
        decimals += 1
    return f"{ratio:.{decimals}f}"


def format_general(value: float, *, digits: int = 6) -> str:
    """Return a number without a unit: ``0.25``, ``12``."""
    return f"{value:.{digits}g}"


def format_count(count: int) -> str:
    """Return a whole number with thousands separators: ``1,234``."""
    return f"{count:,}"


def counted(count: int, one: str, many: str = "") -> str:
    """Return a number with its noun: ``1 rank``, ``1,024 ranks``.

    ``many`` is the plural of ``one``; if ``many`` is empty, the plural is ``one`` with an s.
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


class _Step(NamedTuple):
    starts_at: float
    unit_size: float
    letters: str


# The first unit whose threshold is reached is used, so the largest come first.
_TIME_STEPS = (
    _Step(7200, 3600, "h"),
    _Step(120, 60, "min"),
    _Step(1, 1, "s"),
    _Step(1e-3, 1e-3, "ms"),
    _Step(0, 1e-6, "µs"),
)
_BINARY_STEPS = (
    _Step(2**30, 2**30, "GiB"),
    _Step(2**20, 2**20, "MiB"),
    _Step(2**10, 2**10, "KiB"),
    _Step(0, 1, "B"),
)
_DECIMAL_STEPS = (
    *(_Step(1000.0**power, 1000.0**power, f"{_PREFIXES[power - 1]}B") for power in range(6, 0, -1)),
    _Step(0, 1, "B"),
)


def _in_steps(value: float, steps: tuple[_Step, ...], digits: int) -> str:
    if not value or not math.isfinite(value):
        smallest_whole = next(step.letters for step in steps if step.unit_size == 1)
        return f"{value:g} {smallest_whole}"
    # Rounded first: 999.9 ms must become 1 s, not 1,000 ms.
    step = next(s for s in steps if abs(_round(value / s.unit_size, digits)) >= s.starts_at / s.unit_size)
    return f"{_number(value / step.unit_size, digits)} {step.letters}"


def _round(value: float, digits: int) -> float:
    return float(f"{value:.{digits - 1}e}")


def _number(value: float, digits: int) -> str:
    """Return a number as text with ``digits`` significant digits, without trailing zeros.

    All digits before the decimal point are kept.
    """
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(_round(value, digits)))))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _split(text: str, accepted: str) -> tuple[Fraction, str]:
    """Split a text into a finite, non-negative number and a unit.

    Raises ValueError if the text has another form. The message contains ``accepted``, the valid values.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not understood; expected {accepted}")
    number = Fraction(match[1])
    if number > _LARGEST:
        raise ValueError(f"{text!r} is too large; expected {accepted}")
    return number, match[2] or ""

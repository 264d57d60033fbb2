"""Where two plain documents differ, place by place; and findings cut to what a reader takes in."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# Sentences for people, which another version may word otherwise.
_WORDING = frozenset({"because", "reason", "detail", "reasons", "text", "not_run", "rehearsal", "published"})
_NAMES = ("requirement", "id", "kind", "index", "subject")
_MAXIMUM_DETAILS = 20
_CLOSE, _LAST_DIGITS = 1e-9, 1e-12
_AS_MEASURED = "measurements"
_NOTHING: tuple[Any, ...] = (None, False, "", [], {})


def differences(stated: Any, follows: Any, place: str, *, wording: bool = True) -> Iterator[tuple[str, Any, Any]]:
    """Yield (place, one value, other value) wherever two plain documents differ.

    Items of lists are known by id, subject, kind and index where they have them. Without ``wording`` (another version
    wrote ``said``) sentences for people are passed over, and fields that it did not have yet, where they hold nothing;
    and a number may differ as it does where the same formula is written otherwise. Of this version every digit of a
    measurement counts; what follows from logarithms and powers may differ in its last digits, as the mathematics
    libraries of two machines do.
    """
    if isinstance(stated, Mapping) and isinstance(follows, Mapping):
        for name in dict.fromkeys([*stated, *follows]):
            if not wording and (name in _WORDING or (name not in stated and follows[name] in _NOTHING)):
                continue
            yield from differences(stated.get(name), follows.get(name), f"{place}.{name}", wording=wording)
            # What is nothing, and is there all the same; an older version may leave out what is nothing.
            if (
                wording
                and stated.get(name) is None
                and follows.get(name) is None
                and (name in stated) != (name in follows)
            ):
                yield f"{place}.{name}", *((None, "no such name") if name in stated else ("no such name", None))
    elif isinstance(stated, list) and isinstance(follows, list):
        # Of a long run, hundreds of thousands of times.
        if stated == follows and {float}.issuperset(map(type, [*stated, *follows])):
            return
        ones, others = _named(stated), _named(follows)
        for name in dict.fromkeys([*ones, *others]):
            yield from differences(ones.get(name), others.get(name), f"{place}[{name}]", wording=wording)
    elif not _is_equal(stated, follows, _tolerance(place, is_same_version=wording)):
        yield place, stated, follows


def _tolerance(place: str, *, is_same_version: bool) -> float:
    if not is_same_version:
        return _CLOSE
    return 0.0 if place.removeprefix("report.").startswith(_AS_MEASURED) else _LAST_DIGITS


def _named(items: Sequence[Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for number, item in enumerate(items):
        known = item if isinstance(item, dict) else {}
        name = " ".join(str(known[n]) for n in _NAMES if n in known) or str(number)
        named[name if name not in named else f"{name} {number}"] = item
    return named


def _is_equal(one: Any, other: Any, tolerance: float) -> bool:
    numbers = (int, float)
    if type(one) is int and type(other) is int:
        return one == other
    if isinstance(one, numbers) and isinstance(other, numbers) and isinstance(one, bool) == isinstance(other, bool):
        return math.isclose(one, other, rel_tol=tolerance)
    return type(one) is type(other) and bool(one == other)


def some(found: Sequence[str]) -> tuple[str, ...]:
    """Return the first findings, and how many more there are."""
    more = len(found) - _MAXIMUM_DETAILS
    return (*found[:_MAXIMUM_DETAILS], *([f"and {more} more"] if more > 0 else []))


def short(value: Any) -> str:
    """Return a value as JSON, cut to a line."""
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."

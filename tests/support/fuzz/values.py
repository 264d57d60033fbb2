"""Random JSON values, and random changes in one place of a document."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

NUMBERS = ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e308", "-1", "0", "-0.0", "1e-320", "9" * 40,
           "9" * 5000, "1.0", "18446744073709551616", "0.1", "1e15", "true", "null", "007", "+1", "0x10", "1_000",
           ".5")  # fmt: skip
"""Numbers in JSON, or nearly so, that are below any limit or break a comparison."""

TEXTS = ("", "x", "\x1b[2J", "\ud800", "\u202e", "../../up", "/etc/passwd", "a" * 100_000, "\0", "²", "٣", "certified",
         "met", "nan", "1e999", "{{7*7}}", "<script>", "%s%n", "é" * 300, "\n", "𝔘")  # fmt: skip

DEEP = (60, 65, 1_000, 100_000)


def value(rng: Random) -> Any:
    kind = rng.randrange(9)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return rng.choice([0, -1, 1, 2**63, -(2**63), 10**15, 10**40, rng.randrange(-100, 100)])
    if kind == 2:
        return rng.choice([0.0, -0.0, 1e300, 1e-320, 0.001, 1.5, -1.5, rng.uniform(0, 1)])
    if kind == 3:
        return rng.choice(TEXTS)
    if kind == 4:
        return []
    if kind == 5:
        return {}
    if kind == 6:
        return [value(rng) for _ in range(rng.randrange(1, 4))]
    if kind == 7:
        return {rng.choice(TEXTS)[:40]: value(rng) for _ in range(rng.randrange(1, 3))}
    return nested(rng.choice(DEEP[:2]))


def nested(depth: int) -> Any:
    """Return lists that are nested to this depth."""
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


def places(document: Any) -> list[tuple[Any, ...]]:
    """Return the paths of all values in a document, except the empty path of the document itself."""
    found: list[tuple[Any, ...]] = []
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), document)]
    while waiting:
        at, inside = waiting.pop()
        if at:
            found.append(at)
        if isinstance(inside, dict):
            waiting += [((*at, key), below) for key, below in inside.items()]
        elif isinstance(inside, list):
            waiting += [((*at, number), below) for number, below in enumerate(inside)]
    return found


def get(document: Any, place: Sequence[Any]) -> Any:
    for key in place:
        document = document[key]
    return document


def set_value(document: Any, place: Sequence[Any], new: Any) -> Any:
    """Set the value at a path and return the document. For the empty path, return ``new``."""
    if not place:
        return new
    get(document, place[:-1])[place[-1]] = new
    return document


def near(rng: Random, old: Any) -> Any:
    """Return a value similar to ``old``, usually of the same type, as a person might write to improve a result."""
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        return rng.choice([old + 1, old - 1, old * 2, old // 2, old // 1000, old * 1000, -old, 0])
    if isinstance(old, float):
        return old * rng.choice([0.001, 0.1, 0.5, 0.99, 1.01, 2.0, 1000.0, -1.0, 0.0])
    if isinstance(old, str):
        return rng.choice([old + "x", old[:-1], old.upper(), old.swapcase(), "", f"{old}/stream", old[::-1]])
    if old is None:
        return value(rng)
    if isinstance(old, list):
        # A copy, because a value that occurs twice in a document must not change in both places.
        again = json.loads(json.dumps(old[-1:]))
        return rng.choice([old[:-1], old + again, old[::-1], [*old, value(rng)]])
    return {**old, "added": value(rng)}


def changed(rng: Random, document: Any) -> tuple[Any, str]:
    """Make one change to a document; return (document, description of the change)."""
    found = places(document)
    if not found or rng.random() < 0.01:
        return value(rng), "the whole"
    place = rng.choice(found)
    where = ".".join(map(str, place))
    old, holder = get(document, place), get(document, place[:-1])
    way = rng.randrange(8)
    if way == 0:
        del holder[place[-1]]
        return document, f"without {where}"
    if way == 1:
        other = rng.choice(found)
        if place[: len(other)] != other and other[: len(place)] != place:
            there = get(document, other)
            set_value(document, other, old)
            set_value(document, place, there)
            return document, f"{where} and {'.'.join(map(str, other))} in each other's place"
    if way == 2 and isinstance(holder, dict):
        holder[rng.choice(["added", "id", "default", "seconds", "outcome", "name"])] = value(rng)
        return document, f"something added beside {where}"
    new = value(rng) if way == 3 else near(rng, old)
    set_value(document, place, new)
    return document, f"{where} is {str(new)[:40]!r}"

"""Documents of an older schema as today's, in memory: the files of a run folder stay as its run wrote them.

A document is checked against the schema that it was written by (``templates/report-<n>.schema.json``), then upgraded
one schema at a time. An upgrade renames and restates; it adds no fact.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

TODAY = 2
"""The number of today's schema of report, plan and the records of a run folder."""

Kind = Literal["report", "measurement", "observation", "event", "session", "plan"]
"""A document of a run folder; ``event`` is one line of events.jsonl."""

_REPORT = re.compile(r"pytest-ckpt/report/([1-9][0-9]{0,3})")


def number_of(report: Any) -> int | None:
    """Return the number of a report's schema; None for a document that names no schema known here."""
    name = report.get("schema") if isinstance(report, Mapping) else None
    found = _REPORT.fullmatch(name) if isinstance(name, str) else None
    number = int(found[1]) if found else 0
    return number if 1 <= number <= TODAY else None


def schema_name(number: int) -> str:
    """Return the name under which `schemas.faults` knows the report of a schema."""
    return "report" if number == TODAY else f"report-{number}"


def upgraded(kind: Kind, document: Any, number: int) -> Any:
    """Return a document of schema ``number`` as one of today's; today's is returned as it is.

    Raises LookupError, TypeError, ValueError or AttributeError for a document that does not follow its schema.
    """
    for step in range(number, TODAY):
        document = _STEPS[step](kind, copy.deepcopy(document))
    return document


def _from_1(kind: Kind, document: Any) -> Any:
    for place, old, new in _RENAMED_1[kind]:
        for found in _places(document, place.split(".") if place else []):
            if old in found:
                found[new] = found.pop(old)
    if kind in ("report", "plan"):
        document["schema"] = f"pytest-ckpt/{kind}/2"
    return document


def _places(document: Any, steps: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the objects at a place; ``*`` stands for every item of a list. A place that is not there has none."""
    if not steps:
        if isinstance(document, dict):
            yield document
    elif steps[0] == "*":
        for item in document if isinstance(document, list) else ():
            yield from _places(item, steps[1:])
    elif isinstance(document, dict):
        yield from _places(document.get(steps[0]), steps[1:])


_Renamed = tuple[tuple[str, str, str], ...]


def _below(place: str, rows: _Renamed) -> _Renamed:
    return tuple((f"{place}.{inner}" if inner else place, old, new) for inner, old, new in rows)


# Rows of place, name of the field in schema 1, name in schema 2.
_CACHE_1: _Renamed = (("readings.*", "asks", "requires_drop"),)
_NEIGHBOUR_1: _Renamed = (("", "beside_seconds", "contended_seconds"),)
_MIXED_1: _Renamed = (
    ("", "beside_p99_seconds", "contended_p99_seconds"),
    ("", "beside_reads", "contended_reads"),
)
_ENDURANCE_1: _Renamed = (("", "asked_seconds", "requested_seconds"), ("", "began_seconds", "start_seconds"))
_NEAR_FULL_1: _Renamed = (("levels.*", "asked", "requested"),)
_MEASUREMENT_1: _Renamed = (
    *_below("cache", _CACHE_1),
    *_below("patterns.neighbour", _NEIGHBOUR_1),
    *_below("patterns.mixed", _MIXED_1),
    *_below("patterns.endurance", _ENDURANCE_1),
    *_below("patterns.near_full", _NEAR_FULL_1),
)
_PLAN_1: _Renamed = (("checkpoints.*", "beside", "scenarios"),)
_RENAMED_1: Mapping[Kind, _Renamed] = {
    "report": (*_PLAN_1, *_below("measurements.*", _MEASUREMENT_1)),
    "measurement": _MEASUREMENT_1,
    "observation": (),
    # What rank 0 says of a scenario lies under "found", whichever it is.
    "event": (
        *_below("cache", _CACHE_1),
        *_below("found", (*_NEIGHBOUR_1, *_MIXED_1, *_ENDURANCE_1, *_NEAR_FULL_1)),
    ),
    "session": (),
    "plan": _PLAN_1,
}
_STEPS: Mapping[int, Callable[[Kind, Any], Any]] = {1: _from_1}

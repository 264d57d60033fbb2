"""What encryption costs: the same run without it and with it, held against a limit. Pure.

Case 25 of our acceptance cases asks for at most 10 % (our proposal: no published figure exists). One run cannot tell:
storage is encrypted, or it is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_ckpt.facts.options import OPTIONS
from pytest_ckpt.facts.verdict import Outcome
from pytest_ckpt.support.units import counted

MAXIMUM_RATIO = 1.10
_OFF = "none"
_PLACES = {"at_rest": "at rest", "in_flight": "in flight"}
# Without these, a time is not that of the storage.
_PROOFS = {"save": "DURABLE-CALLS", "load": "COLD"}

# Two volumes have two paths; and of limits and numbers of operations no time depends.
_MAY_DIFFER = frozenset(("target", "endpoint", "second_mount", "full_target", "operations"))

Plain = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class CostOfEncryption:
    """What was decided; ``because`` are sentences for a person."""

    outcome: Outcome
    maximum_ratio: float
    because: tuple[str, ...]


def cost_of_encryption(off: Plain, on: Plain, rows: Sequence[Plain]) -> CostOfEncryption:
    """Return what the reports of two runs say of it.

    ``rows`` are the operations that `comparison.compare_reports` says of both. Met: the whole 95 % interval of the
    ratio of every save and load is at most the limit; failed: one interval is above it as a whole. All else is not
    decided.
    """
    outcome: Outcome
    if reasons := [*_not_a_pair(off, on), *_unlike(off, on), *_not_decided(off, on, rows)]:
        outcome = "not run"
    elif reasons := [f"{_name(row)} {_ratio(row)}." for row in rows if row["low"] > MAXIMUM_RATIO]:
        outcome = "failed"
    elif reasons := [
        f"{_name(row)} {_ratio(row)}: the limit of {MAXIMUM_RATIO:.2f} lies within the interval; more operations "
        "narrow it (--ckpt-operations)."
        for row in rows
        if row["high"] > MAXIMUM_RATIO
    ]:
        outcome = "not run"
    else:
        outcome = "met"
        reasons = [f"{_name(row)} {_ratio(row)}." for row in rows]
    told = [f"Told, not measured: {place} {how}." for place, how in _turned_on(off, on).items()]
    return CostOfEncryption(outcome=outcome, maximum_ratio=MAXIMUM_RATIO, because=(*reasons, *told))


def _told(report: Plain) -> dict[str, str]:
    """Return how it is encrypted, by place; what is told as none, or is not told, is off."""
    table = (report.get("system") or {}).get("encryption") or {}
    told = {place: str(table.get(place, _OFF)).strip() for place in _PLACES}
    return {place: "" if how.casefold() == _OFF else how for place, how in told.items()}


def _turned_on(off: Plain, on: Plain) -> dict[str, str]:
    one, other = _told(off), _told(on)
    return {_PLACES[place]: how for place, how in other.items() if how and not one[place]}


def _not_a_pair(off: Plain, on: Plain) -> Iterator[str]:
    one, other = _told(off), _told(on)
    for number, report in (("first", off), ("second", on)):
        if not (report.get("system") or {}).get("encryption"):
            yield f'The {number} run does not tell what is encrypted ([encryption] of --ckpt-system; "none" if not).'
            return
    if not _turned_on(off, on):
        yield "The second run tells of no encryption that the first one lacks: name the run without it first."
    for place, how in one.items():
        if how and how != other[place]:
            yield f"Encryption {_PLACES[place]} was not left as it was: {how}, and {other[place] or _OFF}."


def _unlike(off: Plain, on: Plain) -> Iterator[str]:
    """Yield in what else the runs differ that a time depends on."""
    options = {
        option.flag
        for option in OPTIONS
        if {"plan", "condition"} & set(option.roles) and "limit" not in option.roles and option.key not in _MAY_DIFFER
    }
    one, other = ({s["option"]: s.get("value") for s in r.get("settings") or ()} for r in (off, on))
    if unlike := [flag for flag in one if flag in options and one[flag] != other.get(flag)]:
        yield f"The runs differ in {', '.join(unlike)}."
    hosts = [sorted(str(h["host"]) for h in (r.get("environment") or {}).get("hosts") or ()) for r in (off, on)]
    if hosts[0] != hosts[1]:
        yield f"The runs had other clients: {', '.join(hosts[0])}, and {', '.join(hosts[1])}."
    if (off.get("system") or {}).get("topology") != (on.get("system") or {}).get("topology"):
        yield "The runs are told to have had another topology of the storage."


def _not_decided(off: Plain, on: Plain, rows: Sequence[Plain]) -> Iterator[str]:
    kinds = {row["kind"] for row in rows}
    if missing := [kind for kind in _PROOFS if kind not in kinds]:
        yield f"No {' and no '.join(missing)} was measured."
    for row in rows:
        if row["low"] is None or row["high"] is None:
            yield f"{_name(row)}: {row['note']}."
    for kind, requirement in _PROOFS.items():
        if kind not in kinds:
            continue
        for number, report in (("first", off), ("second", on)):
            asked = [v for v in report.get("requirements") or () if v["id"] == requirement]
            lacking = [v["subject"] for v in asked if v["outcome"] != "met"]
            if not asked or lacking:
                yield (
                    f"{requirement} was not met in the {number} run{' of ' + ', '.join(lacking) if lacking else ''}: "
                    f"its {kind}s may be those of memory."
                )


def _name(row: Plain) -> str:
    return f"{row['kind'].capitalize()}s of {row['subject']}"


def _ratio(row: Plain) -> str:
    times = counted(min(row["before"]["count"], row["after"]["count"]), "operation")
    return f"take {row['ratio']:.3f} times as long [{row['low']:.3f}, {row['high']:.3f}], by {times} or more"

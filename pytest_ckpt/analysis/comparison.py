"""Compares two runs: changed settings, changed verdicts, changed operation times, the cost of encryption. Pure.

The cost of encryption is the slowdown of a run with encryption, compared with an equal run without encryption. The
limit of 10 % is our own choice, because no published limit exists.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Any

from pytest_ckpt.analysis.statistics import MINIMUM, ratio_of_medians
from pytest_ckpt.facts.bounds import Bounds
from pytest_ckpt.facts.options import OPTIONS
from pytest_ckpt.facts.system import PICTURE
from pytest_ckpt.facts.verdict import Outcome
from pytest_ckpt.support.units import counted

SCHEMA = "pytest-ckpt/diff/1"
# These facts differ between any two runs and have no meaning for a comparison.
_PASSING = frozenset({"capacity.free_bytes", "capacity.used_bytes", "memory_available_bytes", "ranks"})
_KINDS = ("save", "load")

MAXIMUM_RATIO = 1.10
_OFF = "none"
_PLACES = {"at_rest": "at rest", "in_flight": "in flight"}
# Unless these requirements are met, a time may be a time of a cache.
_PROOFS = {"save": "DURABLE-CALLS", "load": "COLD"}

# Two volumes have different paths. The limits and the number of operations do not affect times.
_MAY_DIFFER = frozenset(("target", "endpoint", "second_mount", "small_volume", "operations"))

Plain = Mapping[str, Any]


def compare_reports(before: Mapping[str, Any], after: Mapping[str, Any], notices: Sequence[str] = ()) -> dict[str, Any]:
    """Return the differences between the reports of two runs, as plain types (schema pytest-ckpt/diff/1).

    ``notices`` are sentences for the reader about the two run directories.
    """
    one, other = before.get("environment") or {}, after.get("environment") or {}
    return {
        "schema": SCHEMA,
        "before": _head(before),
        "after": _head(after),
        "settings": _changes(_settings(before), _settings(after)),
        "cluster": _changes(_numbers(before.get("cluster")), _numbers(after.get("cluster"))),
        "system": _changes(_system(before), _system(after)),
        "environment": _changes(_environment(one), _environment(other)),
        "versions": _changes(one.get("versions") or {}, other.get("versions") or {}),
        "verdicts": _verdicts(before, after),
        "operations": list(_operations(before, after)),
        "requests": list(_requests(before, after)),
        "notices": list(notices),
    }


def _head(report: Mapping[str, Any]) -> dict[str, Any]:
    run = report["run"]
    return {"id": run["id"], "started": run["started"], "grade": report["grade"], "exit_code": report.get("exit_code")}


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = dict.fromkeys([*before, *after])
    return [
        {"name": name, "before": before.get(name), "after": after.get(name)}
        for name in names
        if before.get(name) != after.get(name)
    ]


def _settings(report: Mapping[str, Any]) -> dict[str, Any]:
    return {s["option"]: s.get("value") for s in report.get("settings") or ()}


def _numbers(table: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (table or {}).items() if isinstance(value, (int, float, str))}


def _environment(environment: Mapping[str, Any]) -> dict[str, Any]:
    target = dict(_flat(environment.get("target") or {}))
    found = {f"target {n}": v for n, v in target.items() if n not in _PASSING}
    found["launcher"] = environment.get("launcher")
    for host in environment.get("hosts") or ():
        found |= {f"{host['host']} {n}": v for n, v in host.items() if n not in _PASSING and n != "host"}
    for plugin in environment.get("plugins") or ():
        described = {"version": plugin["version"]} | plugin["facts"]
        found |= {f"plugin {plugin['name']} {n}": v for n, v in described.items()}
    return found


def _system(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the system description as one flat table. A picture is replaced by its digest."""
    described = dict(_flat(report.get("system") or {}))
    if picture := described.get(f"topology.{PICTURE}"):
        described[f"topology.{PICTURE}"] = f"sha256 {hashlib.sha256(str(picture).encode()).hexdigest()[:16]}"
    return described


def _flat(table: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{place}{name}.")
        else:
            yield f"{place}{name}", value


def _layout(subject: str) -> str:
    """Return the layout from the text of a subject: the model with its mode, such as ``llama3-8b-full``.

    The remaining text names the engine and the strategy. A comparison lists both as settings.
    """
    return subject.partition("/")[0]


def _verdicts(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    one, other = ({(v["id"], _layout(v["subject"])): v for v in r.get("requirements") or ()} for r in (before, after))
    rows = []
    for key in dict.fromkeys([*one, *other]):
        was, now = one.get(key, {}).get("outcome"), other.get(key, {}).get("outcome")
        if was != now:
            because = other.get(key, {}).get("because", "")
            rows.append({"id": key[0], "subject": key[1], "before": was, "after": now, "because": because})
    return rows


def _operations(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    one, other = ({_layout(m["subject"]): m for m in r.get("measurements") or ()} for r in (before, after))
    for subject in dict.fromkeys([*one, *other]):
        for kind in _KINDS:
            was, now = (_times(m.get(subject), kind) for m in (one, other))
            if not was and not now:
                continue
            row: dict[str, Any] = {"subject": subject, "kind": kind, "before": _summary(was), "after": _summary(now)}
            yield row | _verdict_on(was, now, one.get(subject, {}).get("bytes"), other.get(subject, {}).get("bytes"))


def _requests(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the request counts of both runs: one row for each checkpoint and kind of request to an object store.

    The counts are summed over all endpoints.
    """
    one, other = (
        {
            (_layout(m["subject"]), kind): _joined([r for r in m["requests"] if r["kind"] == kind])
            for m in report.get("measurements") or ()
            for kind in dict.fromkeys(r["kind"] for r in m.get("requests") or ())
        }
        for report in (before, after)
    )
    for subject, kind in dict.fromkeys([*one, *other]):
        was, now = one.get((subject, kind)), other.get((subject, kind))
        yield {"subject": subject, "kind": kind, "before": was, "after": now}


def _joined(rows: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return the request counts, summed over all endpoints, and the request times of the slowest endpoint.

    Each row of ``rows`` belongs to one endpoint.
    """
    added: dict[str, float | None] = {name: sum(row[name] for row in rows) for name in ("sent", "again", "busy")}
    for name in ("p99_seconds", "slowest_seconds"):
        added[name] = max((row[name] for row in rows if row.get(name) is not None), default=None)
    return added


def _times(measurement: Mapping[str, Any] | None, kind: str) -> list[float]:
    return [o["seconds"] for o in (measurement or {}).get("operations", ()) if o["kind"] == kind and o["seconds"] > 0]


def _summary(seconds: list[float]) -> dict[str, Any] | None:
    if not seconds:
        return None
    return {
        "count": len(seconds),
        "fastest_seconds": min(seconds),
        "median_seconds": median(seconds),
        "slowest_seconds": max(seconds),
    }


def _verdict_on(
    was: list[float], now: list[float], bytes_before: int | None, bytes_after: int | None
) -> dict[str, Any]:
    """Return the change of one kind of operation (saves or loads) between two runs.

    ``was`` and ``now`` are the operation times of the first and the second run in seconds. If the sizes of the
    checkpoints differ (``bytes_before``, ``bytes_after``), seconds per byte are compared.
    """
    if not was or not now:
        return {"ratio": None, "low": None, "high": None, "change": "unknown", "note": "measured in only one run"}
    note = ""
    if bytes_before and bytes_after and bytes_before != bytes_after:
        was, now = [s / bytes_before for s in was], [s / bytes_after for s in now]
        note = "the checkpoints differ in size: seconds per byte were compared"
    found = ratio_of_medians(was, now)
    if found.low is None:
        change = "unknown"
        note = "; ".join(filter(None, [note, f"too few operations for an interval: {MINIMUM} of each are needed"]))
    elif found.is_change:
        change = "slower" if found.ratio > 1 else "faster"
    else:
        change = "none"
    return {"ratio": found.ratio, "low": found.low, "high": found.high, "change": change, "note": note}


@dataclass(frozen=True, kw_only=True, slots=True)
class EncryptionCost:
    """The decision whether the cost of encryption is within the limit ``maximum_ratio``.

    A ratio is the time with encryption divided by the time without encryption. ``because`` lists the reasons as
    sentences.
    """

    outcome: Outcome
    maximum_ratio: Annotated[float, Bounds(gt=1)]
    because: Annotated[tuple[str, ...], Bounds(min_length=1)]


def cost_of_encryption(off: Plain, on: Plain, rows: Sequence[Plain]) -> EncryptionCost:
    """Return the decision on the cost of encryption.

    ``off`` is the report of a run without encryption, ``on`` the report of a run with encryption. ``rows`` are the
    operations of both runs, from `comparison.compare_reports`. A ratio is the time with encryption divided by the time
    without encryption. The outcomes are:

    - "met": for every ratio, the upper end of the 95 % interval is at most the limit.
    - "failed": for at least one ratio, the lower end of the interval is above the limit.
    - "not run": all other cases, and runs that cannot be compared.
    """
    outcome: Outcome
    if reasons := [*_not_a_pair(off, on), *_unlike(off, on), *_not_decided(off, on, rows)]:
        outcome = "not run"
    elif reasons := [f"{_name(row)} {_ratio(row)}." for row in rows if row["low"] > MAXIMUM_RATIO]:
        outcome = "failed"
    elif reasons := [
        f"{_name(row)} {_ratio(row)}: the limit of {MAXIMUM_RATIO:.2f} is inside the interval; more operations narrow "
        "it (--ckpt-operations)."
        for row in rows
        if row["high"] > MAXIMUM_RATIO
    ]:
        outcome = "not run"
    else:
        outcome = "met"
        reasons = [f"{_name(row)} {_ratio(row)}." for row in rows]
    notes = [f"Told, not measured: {place} {how}." for place, how in _turned_on(off, on).items()]
    return EncryptionCost(outcome=outcome, maximum_ratio=MAXIMUM_RATIO, because=(*reasons, *notes))


def _declarations(report: Plain) -> dict[str, str]:
    """Return {place: declared encryption} for the places ``at_rest`` and ``in_flight``.

    The text is empty if the encryption is declared as off, or is not declared.
    """
    table = (report.get("system") or {}).get("encryption") or {}
    declared = {place: str(table.get(place, _OFF)).strip() for place in _PLACES}
    return {place: "" if how.casefold() == _OFF else how for place, how in declared.items()}


def _turned_on(off: Plain, on: Plain) -> dict[str, str]:
    one, other = _declarations(off), _declarations(on)
    return {_PLACES[place]: how for place, how in other.items() if how and not one[place]}


def _not_a_pair(off: Plain, on: Plain) -> Iterator[str]:
    one, other = _declarations(off), _declarations(on)
    for number, report in (("first", off), ("second", on)):
        if not (report.get("system") or {}).get("encryption"):
            yield f'The {number} run does not declare encryption ([encryption] of --ckpt-system, or "none").'
            return
    if not _turned_on(off, on):
        yield "The second run declares no encryption that the first run lacks: name the run without encryption first."
    for place, how in one.items():
        if how and how != other[place]:
            yield f"Encryption {_PLACES[place]} was not left as it was: {how}, and {other[place] or _OFF}."


def _unlike(off: Plain, on: Plain) -> Iterator[str]:
    """Yield sentences on the differences of options, clients and topology that affect the times of two runs."""
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
        yield "The runs declare different topologies of the storage."


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
            verdicts = [v for v in report.get("requirements") or () if v["id"] == requirement]
            lacking = [v["subject"] for v in verdicts if v["outcome"] != "met"]
            if not verdicts or lacking:
                yield (
                    f"{requirement} was not met in the {number} run{' of ' + ', '.join(lacking) if lacking else ''}: "
                    f"its {kind}s may have been served from memory."
                )


def _name(row: Plain) -> str:
    return f"{row['kind'].capitalize()}s of {row['subject']}"


def _ratio(row: Plain) -> str:
    times = counted(min(row["before"]["count"], row["after"]["count"]), "operation")
    return f"take {row['ratio']:.3f} times as long [{row['low']:.3f}, {row['high']:.3f}], by {times} or more"

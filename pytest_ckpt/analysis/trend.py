"""Many runs in a row: the times of each subject, and whether the newest differ from those before. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from pytest_ckpt.analysis.statistics import MINIMUM_RUNS, find_change

SCHEMA = "pytest-ckpt/trend/1"
_KINDS = ("save", "load")


def make_trend(
    entries: Sequence[Mapping[str, Any]], notices: Iterable[str], regression: float | None = None
) -> dict[str, Any]:
    """Return the trend of a history, as plain types (schema pytest-ckpt/trend/1).

    A point is one run: the median of its operations, by which changes are found, and the slowest, which the limit is
    for. Runs that did not end well, and runs under conditions other than the newest run's, are counted and left out.
    ``regression`` is the share by which a change must be slower to count as one, None where none is asked for.
    """
    series = [one for kind_of in _subjects(entries) for one in (_series(entries, kind_of, kind) for kind in _KINDS)]
    slower = [
        f"{s['subject']} {s['kind']}"
        for s in series
        if regression is not None and s["change"] and s["change"]["ratio"] >= 1 + regression
    ]
    return {
        "schema": SCHEMA,
        "runs": len(entries),
        "notices": [*notices, *_newest(entries)],
        "regression": regression,
        "regressions": slower,
        "series": series,
    }


def _newest(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say that the newest run is in no series, where it did not end well."""
    if not entries:
        return []
    broken = [m["subject"] for m in entries[-1]["subjects"] if not m["is_whole"]]
    return [f"the newest run, {entries[-1]['id']}, did not end well: {', '.join(broken)}"] if broken else []


def _subjects(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(m["subject"] for e in entries for m in e["subjects"]))


def _series(entries: Sequence[Mapping[str, Any]], subject: str, kind: str) -> dict[str, Any]:
    found = [(e, m) for e in entries for m in e["subjects"] if m["subject"] == subject]
    newest = _key(found[-1][1])
    alike = [(e, m) for e, m in found if _key(m) == newest]
    whole = [(e, m) for e, m in alike if m["is_whole"] and m[f"{kind}_seconds"]]
    points = [
        {
            "id": e["id"],
            "started": e["started"],
            "grade": e["grade"],
            "median_seconds": median(m[f"{kind}_seconds"]),
            "slowest_seconds": max(m[f"{kind}_seconds"]),
            "limit_seconds": m[f"{kind}_limit_seconds"],
        }
        for e, m in whole
    ]
    change = find_change([p["median_seconds"] for p in points])
    return {
        "subject": subject,
        "kind": kind,
        "conditions": found[-1][1]["conditions"],
        "points": points,
        "change": None
        if change is None
        else {
            "since": points[-change.runs]["started"],
            "runs": change.runs,
            "before": change.before,
            "ratio": change.ratio,
            "probability": change.probability,
        },
        "can_show": len(points) >= MINIMUM_RUNS,
        "left_out": {"other conditions": len(found) - len(alike), "did not end well": len(alike) - len(whole)},
    }


def _key(measured: Mapping[str, Any]) -> str:
    # An option that an older run did not know yet was not set there.
    return json.dumps({name: value for name, value in measured["conditions"].items() if value}, sort_keys=True)

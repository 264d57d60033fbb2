"""The trend of many runs: the times of each workload, and whether the newest runs differ from previous runs. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from pytest_ckpt.analysis.statistics import MINIMUM_RUNS, find_change

SCHEMA = "pytest-ckpt/trend/1"
_KINDS = ("save", "load")
# A line of a history, its entry of a subject, or a point of a series. Each was validated against its schema.
_Plain = Mapping[str, Any]
# A run, and its measurements of a subject.
_Of = tuple[_Plain, _Plain]


def create_trend(entries: Sequence[_Plain], notices: Iterable[str], regression: float | None = None) -> dict[str, Any]:
    """Return the trend of a history, as plain types (schema pytest-ckpt/trend/1).

    The trend is a list of series. Each point of a series is one run. In a series of saves or loads, a point contains
    the median time, the slowest time and the time limit of the operations. Changes are detected in the medians. The
    time limit applies to the slowest time. In a series of requests to an object store, a point contains the 99th
    percentile of the request times. Changes are detected in these percentiles.

    Incomplete runs are left out, and also runs whose conditions differ from those of the newest run. A series of saves
    or loads contains the number of omitted runs. A slowdown of saves or loads is a regression if it is at least the
    share ``regression``. If ``regression`` is None, no slowdown counts as a regression.
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
        "requests": [one for subject in _subjects(entries) for one in _requests(entries, subject)],
    }


def _newest(entries: Sequence[_Plain]) -> list[str]:
    """Return one notice if the newest run has incomplete measurements, otherwise an empty list.

    No series contains incomplete measurements.
    """
    if not entries:
        return []
    broken = [m["subject"] for m in entries[-1]["subjects"] if not m["is_complete"]]
    return [f"the newest run, {entries[-1]['id']}, did not end well: {', '.join(broken)}"] if broken else []


def _subjects(entries: Sequence[_Plain]) -> list[str]:
    return list(dict.fromkeys(m["subject"] for e in entries for m in e["subjects"]))


def _series(entries: Sequence[_Plain], subject: str, kind: str) -> dict[str, Any]:
    found = _pairs_of(entries, subject)
    alike = _alike(found)
    whole = [(e, m) for e, m in alike if m["is_complete"] and m[f"{kind}_seconds"]]
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
    return {
        "subject": subject,
        "kind": kind,
        "conditions": found[-1][1]["conditions"],
        "points": points,
        "change": _change(points, "median_seconds"),
        "can_show": len(points) >= MINIMUM_RUNS,
        "omitted": {"other conditions": len(found) - len(alike), "did not end well": len(alike) - len(whole)},
    }


def _requests(entries: Sequence[_Plain], subject: str) -> Iterator[dict[str, Any]]:
    """Yield one series for each kind of request to an object store.

    Incomplete runs are left out, and also runs whose conditions differ from those of the newest run.
    """
    of_runs = [
        (e, m["request_p99_seconds"])
        for e, m in _alike(_pairs_of(entries, subject))
        if m["is_complete"] and m.get("request_p99_seconds")
    ]
    for kind in dict.fromkeys(kind for _, times in of_runs for kind in times):
        points = [
            {"id": e["id"], "started": e["started"], "p99_seconds": times[kind]}
            for e, times in of_runs
            if kind in times
        ]
        yield {
            "subject": subject,
            "kind": kind,
            "points": points,
            "change": _change(points, "p99_seconds"),
            "can_show": len(points) >= MINIMUM_RUNS,
        }


def _pairs_of(entries: Sequence[_Plain], subject: str) -> list[_Of]:
    return [(e, m) for e in entries for m in e["subjects"] if m["subject"] == subject]


def _alike(found: list[_Of]) -> list[_Of]:
    """Return the pairs (run, measurement) with the same conditions as the newest measurement."""
    newest = _key(found[-1][1])
    return [(e, m) for e, m in found if _key(m) == newest]


def _change(points: Sequence[_Plain], name: str) -> dict[str, Any] | None:
    change = find_change([p[name] for p in points])
    if change is None:
        return None
    return {
        "since": points[-change.runs]["started"],
        "runs": change.runs,
        "before": change.before,
        "ratio": change.ratio,
        "probability": change.probability,
    }


def _key(measured: _Plain) -> str:
    # An older run cannot have set an option that did not exist yet.
    return json.dumps({name: value for name, value in measured["conditions"].items() if value}, sort_keys=True)

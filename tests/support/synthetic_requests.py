"""Invented request counts of a run on an object store."""

from __future__ import annotations

from typing import Any

ONE, OTHER = "https://gw1.array.example:9000", "https://gw2.array.example:9000"


def row(endpoint: str, kind: str, sent: int, p99: float | None, *, again: int = 0) -> dict[str, Any]:
    """Return the counts and times of one kind of request to one endpoint.

    ``again`` is the number of repeated requests.
    """
    return {
        "endpoint": endpoint, "kind": kind, "sent": sent, "again": again, "busy": again, "waited_seconds": 0.25 * again,
        "bytes": sent * (5 << 20), "median_seconds": p99 and p99 / 2, "p99_seconds": p99,
        "slowest_seconds": p99 and 2 * p99,
    }  # fmt: skip


def requests(*, again: int = 0, slower: float = 1.0) -> list[dict[str, Any]]:
    """Return request counts of saves and loads over two endpoints, of which one did not answer ``put`` requests."""
    times = {"begin upload": 0.012, "put part": 0.084, "end upload": 0.131, "get": 0.045, "head": 0.004}
    return [
        row(endpoint, kind, 2_645, slower * p99, again=again if kind == "put part" else 0)
        for endpoint in (ONE, OTHER)
        for kind, p99 in times.items()
    ] + [row(OTHER, "put", 5, None, again=4)]

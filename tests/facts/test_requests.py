"""Requests of all ranks are combined: counts are added, and percentiles are computed over all requests together."""

from __future__ import annotations

import pytest

from pytest_ckpt.facts.requests import Requests, Tally, together

HERE, THERE = "http://a:1", "http://b:1"


def tally(*seconds: float, again: int = 0) -> Tally:
    made = Tally(sent=len(seconds) + again, again=again, busy=again, waited_seconds=0.5 * again)
    for each in seconds:
        made.answered(each, 10)
    return made


def test_counts_are_added_by_endpoint_and_kind():
    found = together([{(HERE, "put"): tally(0.1, again=1)}, {(HERE, "put"): tally(0.2), (THERE, "put"): tally(0.3)}])
    assert [(r.endpoint, r.kind, r.sent, r.again, r.busy, r.bytes) for r in found] == [
        (HERE, "put", 3, 1, 1, 20),
        (THERE, "put", 1, 0, 0, 10),
    ]
    assert found[0].waited_seconds == 0.5
    assert together([{}, {}]) == ()


def test_percentiles_are_those_of_all_ranks_together_within_1_percent():
    ranks = [{(HERE, "put part"): tally(*(0.001 * n for n in range(start, 1001, 4)))} for start in (1, 2, 3, 4)]
    (found,) = together(ranks)
    assert found.median_seconds == pytest.approx(0.5, rel=0.0101)
    assert found.p99_seconds == pytest.approx(0.99, rel=0.0101)
    assert found.slowest_seconds == 1.0
    assert found.p99_seconds <= found.slowest_seconds


def test_unanswered_requests_have_no_times():
    (found,) = together([{(HERE, "get"): Tally(sent=5, again=4)}])
    assert isinstance(found, Requests)
    assert (found.median_seconds, found.p99_seconds, found.slowest_seconds) == (None, None, None)

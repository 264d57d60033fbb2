"""SAVE and LOAD: met, failed and not run, at the limit and a hair beyond it, on measurements made up for them."""

from __future__ import annotations

import dataclasses
import math

import pytest

from pytest_ckpt.facts.failure import Failure
from tests.support.limits_of_judges import ALL, CLOSE
from tests.support.made_measurement import (
    FULL,
    LIMITS,
    SUBJECT,
    at,
    failed_in,
    judged,
    measurement,
    outcome,
)

pytestmark = pytest.mark.covers(requirements=("SAVE", "LOAD"))
TIMES = [("SAVE", "saves", LIMITS.save_limit_seconds), ("LOAD", "loads", LIMITS.load_limit_seconds)]


@pytest.mark.parametrize(("requirement", "kind", "limit"), TIMES)
class TestTime:
    def test_exactly_at_the_limit_it_is_met(self, requirement, kind, limit):
        verdict = judged(requirement, measurement(**{kind: (1.0, limit, 1.0)}))
        assert (verdict.outcome, verdict.measured, verdict.limit, verdict.unit) == ("met", limit, limit, "s")
        assert verdict.margin == 0

    def test_a_hair_beyond_the_limit_it_has_failed(self, requirement, kind, limit):
        verdict = judged(requirement, measurement(**{kind: (1.0, math.nextafter(limit, math.inf), 1.0)}))
        assert verdict.outcome == "failed"
        assert verdict.margin < 0

    def test_one_slow_one_is_enough_and_their_mean_does_not_help(self, requirement, kind, limit):
        verdict = judged(requirement, measurement(**{kind: (0.1, 0.1, 1.5 * limit)}))
        assert verdict.outcome == "failed"
        assert verdict.measured == 1.5 * limit
        assert verdict.reason == "over limit"
        assert verdict.margin == pytest.approx(-0.5)

    def test_the_detail_says_where_the_limit_comes_from(self, requirement, kind, limit):
        for seconds in (1.0, 2 * limit):
            verdict = judged(requirement, measurement(**{kind: (seconds,) * 3}))
            assert LIMITS.reason(f"{kind[:-1]}_limit_seconds") in verdict.detail

    @pytest.mark.parametrize("scale", [1 / 1000, 1 / 100, 1 / 2])
    def test_at_reduced_scale_the_bandwidth_is_judged(self, requirement, kind, limit, scale):
        size = int(FULL * scale)
        at = measurement(size=size, **{kind: (limit * scale,) * 3})
        beyond = measurement(size=size, **{kind: (limit * scale * (1 + CLOSE),) * 3})
        assert (outcome(requirement, at), outcome(requirement, beyond)) == ("met", "failed")
        assert judged(requirement, at).limit == pytest.approx(limit * scale)
        assert f"{scale:.4g} of the full size" in judged(requirement, at).detail

    def test_what_is_missed_by_a_hair_is_told_in_as_many_digits_as_show_it(self, requirement, kind, limit):
        verdict = judged(requirement, measurement(**{kind: (limit * 1.000004,) * 3}))
        times = verdict.because.partition(" (")[2].partition(" x the limit")[0]
        took = verdict.because.partition(" (")[0].rpartition(", ")[2]
        assert took not in verdict.because.replace(took, "", 1), "the limit is not written as the same figure"
        assert times == "1.000004"

    def test_too_few_operations_leave_it_undecided(self, requirement, kind, limit):
        verdict = judged(requirement, measurement(**{kind: (1.0, 1.0)}))
        assert (verdict.outcome, verdict.reason) == ("not run", "not measured")

    def test_a_slow_one_that_was_short_of_bytes_is_not_called_fast(self, requirement, kind, limit):
        good = measurement()
        short = [dataclasses.replace(o, bytes=FULL - 1) if (o.kind, o.index) == (kind[:-1], 2) else o
                 for o in good.operations]  # fmt: skip
        verdict = judged(requirement, dataclasses.replace(good, operations=tuple(short)))
        assert verdict.outcome == "failed"
        assert verdict.reason == "missing bytes"

    @pytest.mark.parametrize("how", ["error", "hung", "too slow"])
    def test_a_failure_in_it_fails_it_and_says_who_where_and_what(self, requirement, kind, limit, how):
        failure = failed_in(at(kind[:-1], 2), how, stack="state D\nin nfs_wait")
        verdict = judged(requirement, measurement(**{kind: (1.0,)}, failure=failure))
        assert verdict.outcome == "failed"
        for word in ("Rank 2 on n1", f"{SUBJECT} {kind[:-1]} 2", "fsync", "a.pt", "ENOSPC", "No space left"):
            assert word in verdict.because
        assert "in nfs_wait" in verdict.detail

    @pytest.mark.parametrize("how", ["launch", "interrupted", "killed"])
    def test_what_is_not_the_storage_s_fault_leaves_it_undecided(self, requirement, kind, limit, how):
        of = measurement(**{kind: (1.0,)}, failure=failed_in(at(kind[:-1], 2), how))
        assert outcome(requirement, of) == "not run"


BEFORE_ALL = {"integrity": None, "durability": None, "cache": None}


@pytest.mark.parametrize("how", ["error", "hung", "too slow"])
def test_a_failure_in_the_saves_fails_save_and_leaves_the_others_undecided(how):
    of = measurement(saves=(1.0,), loads=(), failure=failed_in(at("save", 2), how), **BEFORE_ALL)
    outcomes = {r: outcome(r, of) for r in ALL}
    assert outcomes.pop("SAVE") == "failed"
    assert outcomes.pop("STRAGGLER") == "met", "the one save that was made can be judged for it"
    assert outcomes == dict.fromkeys(["LOAD", "INTEGRITY", "COLD", "DURABLE-CALLS", "REPEAT"], "not run")
    assert judged("LOAD", of).reason == "run ended"


def test_a_failure_in_the_loads_leaves_save_as_it_was_measured():
    of = measurement(loads=(1.0,), failure=failed_in(at("load", 2)), cache=None)
    assert (outcome("SAVE", of), outcome("LOAD", of), outcome("DURABLE-CALLS", of)) == ("met", "failed", "met")
    assert (outcome("COLD", of), outcome("INTEGRITY", of), outcome("REPEAT", of)) == ("not run", "not run", "not run")


@pytest.mark.parametrize(("errno", "expected"), [("EIO", "failed"), ("ENOENT", "failed"), ("ECONNREFUSED", "not run")])
def test_acknowledged_bytes_that_are_lost_fail_integrity(errno, expected):
    failure = dataclasses.replace(failed_in(at("load", 2)), errno=errno, phase="read")
    of = measurement(loads=(1.0,), failure=failure, cache=None, integrity=None)
    assert outcome("INTEGRITY", of) == expected


@pytest.mark.parametrize(
    ("doing", "saves", "decided"),
    [("prepare", (), []), ("drop caches", (1.0,) * 3, ["SAVE", "DURABLE-CALLS", "STRAGGLER"])],
)
def test_a_rank_killed_between_the_operations_is_no_slow_save_or_load(doing, saves, decided):
    counts = measurement().durability if saves else None
    killed = dataclasses.replace(failed_in(at(stage=doing), "killed"), errno="")
    of = measurement(saves, (), failure=killed, **{**BEFORE_ALL, "durability": counts})
    outcomes = {r: outcome(r, of) for r in ALL}
    assert outcomes == {r: "met" if r in decided else "not run" for r in ALL}


def test_a_launch_that_did_not_start_decides_nothing():
    failure = Failure(kind="launch", message="2 of 8 ranks had not started after 60 s", rank=3)
    of = measurement(saves=(), loads=(), failure=failure, **BEFORE_ALL)
    assert {outcome(r, of) for r in ALL} == {"not run"}
    assert judged("SAVE", of).reason == "run ended"

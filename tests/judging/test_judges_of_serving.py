"""Verdicts of MODEL-LOAD (replicas load the weights) and CONSOLIDATE (one client rewrites the weights)."""

from __future__ import annotations

import pytest

from pytest_ckpt.facts.measurement import Patterns
from pytest_ckpt.sizing.limits import StatedLimits
from tests.support.synthetic_measurement import LIMITS, ByLimits, judged, outcome
from tests.support.synthetic_patterns import FAULT, FULL_WEIGHTS, REPLICAS, WEIGHTS, consolidated, loaded, served

SHARE = WEIGHTS / FULL_WEIGHTS


@pytest.mark.covers(requirements=("MODEL-LOAD",))
def test_the_slowest_cold_load_is_compared_with_the_limit_of_its_share() -> None:
    verdict = judged("MODEL-LOAD", served())
    assert (verdict.outcome, verdict.measured, verdict.unit) == ("met", 0.5, "s")
    assert verdict.limit == pytest.approx(60 * SHARE)
    assert outcome("MODEL-LOAD", served(loaded("reads", 0.4), loaded("mmap", 0.61))) == "failed"
    # The time of a warm load does not count.
    assert outcome("MODEL-LOAD", served(loaded("reads", 0.4), loaded("reads", 9.0, is_warm=True))) == "met"


@pytest.mark.parametrize(
    ("loads", "expected"),
    [
        ([loaded("reads", 0.7, stalled=0.2)], ("not run", "client too slow")),
        ([loaded("reads", 0.7, stalled=0.05)], ("failed", "over limit")),
        ([loaded("reads", 0.59, stalled=0.5)], ("met", "met")),
        # The waits of one load do not excuse another. The measured value is that of the load that the storage delayed.
        ([loaded("reads", 0.9, stalled=0.5), loaded("mmap", 0.7)], ("failed", "over limit")),
    ],
)
def test_the_comparison_time_of_the_client_does_not_fail_the_storage(loads, expected) -> None:
    verdict = judged("MODEL-LOAD", served(*loads))
    assert (verdict.outcome, verdict.reason) == expected
    if verdict.outcome == "failed":
        assert verdict.measured == 0.7


def test_without_a_limit_of_the_users_it_is_the_load_limit() -> None:
    verdict = judged("MODEL-LOAD", ByLimits(served(), StatedLimits()))
    assert verdict.limit == pytest.approx(LIMITS.load_limit_seconds * SHARE)


@pytest.mark.parametrize(
    ("load", "decided", "reason"),
    [
        (loaded("reads", 0.1, resident=WEIGHTS), "not run", "cached"),
        (loaded("reads", 0.1, resident=None), "not run", "unproven"),
        (loaded("reads", 0.1, fault_count=1, faults=(FAULT,)), "failed", "wrong bytes"),
        (loaded("reads", 0.1, checked=WEIGHTS * REPLICAS - 1), "failed", "missing bytes"),
        (loaded("reads", 0.1, is_warm=True, fault_count=1, faults=(FAULT,)), "failed", "wrong bytes"),
    ],
)
def test_a_load_without_evidence_about_the_storage_gives_no_value(load, decided, reason) -> None:
    verdict = judged("MODEL-LOAD", served(loaded("mmap", 0.1), load))
    assert (verdict.outcome, verdict.reason) == (decided, reason)


@pytest.mark.covers(requirements=("CONSOLIDATE",))
def test_a_copy_is_judged_by_its_limit_and_its_bytes_are_compared() -> None:
    assert judged("CONSOLIDATE", consolidated()).limit == pytest.approx(3600 * SHARE)
    assert outcome("CONSOLIDATE", consolidated()) == "met"
    assert outcome("CONSOLIDATE", consolidated(37.0)) == "failed"
    assert judged("CONSOLIDATE", consolidated(fault_count=1, faults=(FAULT,))).reason == "wrong bytes"
    assert judged("CONSOLIDATE", consolidated(checked=1)).reason == "missing bytes"


@pytest.mark.parametrize("requirement", ["MODEL-LOAD", "CONSOLIDATE"])
def test_unmeasured_requirements_are_not_run(requirement) -> None:
    assert outcome(requirement, served(patterns=Patterns())) == "not run"

"""ENDURE, FAILOVER and DURABLE also report NVIDIA's service levels, which change no verdict."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.analysis.acceptance import trials_for
from pytest_ckpt.facts.observation import Anomaly, Observation
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.judging.service_levels import lowest_rate, rate_level, stall_level
from pytest_ckpt.judging.verdicts import decide_observed
from tests.support.synthetic_measurement import FULL, GATES, LIMITS, ByLimits, judged
from tests.support.synthetic_patterns import attempt, endured, failed_over, trial


def levels(verdict):
    return [line for line in verdict.detail.splitlines() if line.startswith("service level of NVIDIA")]


@pytest.mark.parametrize(("seconds", "rate"), [
    ([100.0] * 3, FULL / 100), ([50.0] * 20, FULL / 50), ([10.0] * 29, None),
    # The slow saves fill half of the slowest window, or all of it.
    ([50.0] * 10 + [150.0] + [50.0] * 10, 4 * FULL / 300), ([50.0] * 10 + [600.0] * 2, FULL / 600),
])  # fmt: skip
def test_the_lowest_mean_over_5_minutes_of_saving(seconds, rate):
    assert lowest_rate(seconds, FULL) == (None if rate is None else pytest.approx(rate))


@given(seconds=st.lists(st.floats(0.5, 900), min_size=1, max_size=40), at=st.floats(0, 1))
def test_no_window_has_a_lower_mean(seconds, at):
    lowest = lowest_rate(seconds, FULL)
    total = sum(seconds)
    if lowest is None:
        assert total < 300 + 1e-6
        return
    begin = at * max(total - 300, 0)
    written, passed = 0.0, 0.0
    for save in seconds:
        inside = min(passed + save, begin + 300) - max(passed, begin)
        written += FULL * max(inside, 0.0) / save
        passed += save
    assert written / 300 >= lowest * (1 - 1e-9)


@pytest.mark.parametrize(("save", "ends"), [
    (58.0, "86.2 % of 20 MB/s: no incident"),
    (59.0, "84.7 % of 20 MB/s: an incident, if the clients of this run can write at the contracted rate"),
])  # fmt: skip
def test_an_incident_is_less_than_85_percent_for_5_minutes(save, ends):
    assert rate_level([save] * 20, FULL, 20e6).endswith(ends)


def test_without_a_contracted_rate_or_5_minutes_nothing_is_known():
    assert rate_level([58.0] * 20, FULL, 0.0).endswith(
        "no contracted rate is stated (--ckpt-suite=scaling:vendor-max-rate)"
    )
    assert rate_level([10.0] * 20, FULL, 20e6).endswith("not known, the saves took 3.33 min in total")


def test_a_share_of_999_in_1000_takes_thousands_of_operations():
    assert trials_for(0.999) == 2995
    assert trials_for(0.95) == 59
    shown = stall_level(360, 360, "took at most that long")
    assert shown.endswith("360 of 360 operations took at most that long; 2,995 without one are needed to show that "
                          "share with 95 % confidence")  # fmt: skip
    assert stall_level(359, 360, "took at most that long").endswith("359 of 360 operations took at most that long")


def test_endure_reports_both_and_its_outcome_stays():
    found = endured([59.0] * 20)
    stated = dataclasses.replace(LIMITS.stated, save_bytes_per_second=20e6)
    verdict = judged("ENDURE", ByLimits(of=found, stated=stated))
    assert verdict.outcome == judged("ENDURE", found).outcome == "met"
    rate, stall = levels(verdict)
    assert "an incident" in rate
    assert "20 of 20 operations took at most that long" in stall
    assert "no contracted rate is stated" in levels(judged("ENDURE", found))[0]


@pytest.mark.parametrize(("stall", "without"), [(10.0, "6 of 6"), (70.0, "5 of 6")])
def test_failover_reports_stalls_and_what_was_survived(stall, without):
    kinds = ("save", "save", "save", "load", "load", "load")
    trials = tuple(
        trial(kind, operations=(attempt(kind, quiet=stall if n == 0 else 1.0),)) for n, kind in enumerate(kinds)
    )
    verdict = judged("FAILOVER", failed_over(trials=trials))
    assert verdict.outcome == ("met" if stall < 60 else "failed")
    stalls, *survived = levels(verdict)
    assert f"{without} operations with a fault" in stalls
    shown = "shown for 6 faults that the command injected; not shown: faults that it does not inject"
    assert [text.partition("failure: ")[2] for text in survived] == ([shown] if stall < 60 else [])


@pytest.mark.parametrize("found", [
    failed_over(trial(lost="rank 1 on n1: ENOENT")), failed_over(resident_fraction=0.5),
    failed_over(resident_fraction=None), failed_over(bytes_checked=1),
])  # fmt: skip
def test_data_that_were_lost_or_came_from_a_cache_did_not_survive(found):
    assert not any("acknowledged data survive" in text for text in levels(judged("FAILOVER", found)))


@pytest.mark.parametrize(("subject", "failures"), [
    ("rank-killed", "a killed process (20 trials)"), ("power-cut", "a power cut of the target (20 trials)"),
])  # fmt: skip
def test_durable_names_the_failure_that_data_survived(subject, failures):
    seen = Observation(requirement="DURABLE", subject=subject, trials=20)
    verdict = decide_observed(REQUIREMENTS["DURABLE"], seen, GATES)
    (level,) = levels(verdict)
    assert f"shown for {failures}; not shown: drives, controllers and servers, which FAILOVER breaks" in level
    lost = dataclasses.replace(
        seen, anomaly_count=1, anomalies=(Anomaly(kind="lost", where="a.pt", seen="gone", expected="there"),)
    )
    assert levels(decide_observed(REQUIREMENTS["DURABLE"], lost, GATES)) == []

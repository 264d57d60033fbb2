"""Verdicts of ENDURE, STEADY and NEARFULL on constructed measurements: met, failed and not run."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.analysis.statistics import MAXIMUM_ROUNDS, steady_round, unsteadiness
from pytest_ckpt.config.gate_files import settle
from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.measurement import Patterns
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.sizing.near_full import LEVELS, Volume, unavailable_reason
from tests.support.synthetic_measurement import failed_in, judged, measurement, ref
from tests.support.synthetic_patterns import endured, filled

pytestmark = pytest.mark.covers(requirements=("ENDURE", "STEADY", "NEARFULL"))

ALL = ("ENDURE", "STEADY", "NEARFULL")
GIB = 1 << 30


@pytest.mark.parametrize("requirement", ALL)
class TestAll:
    def test_the_requirement_is_requested_only_with_its_suite(self, requirement):
        for kind in ("posix-local", "posix-shared"):
            usual, _ = settle(resolve({}, {}), kind)
            assert not REQUIREMENTS[requirement].is_requested(usual)
        assert REQUIREMENTS[requirement].is_requested(resolve({"ckpt_suite": "endurance"}, {}))

    def test_unmeasured_requirements_are_not_run(self, requirement):
        assert judged(requirement, measurement()).outcome == "not run"
        ended = judged(requirement, measurement(failure=failed_in(ref("save", 2))))
        assert ended.outcome == "not run"
        assert ended.reason == "run ended"

    def test_the_requirement_has_a_description(self, requirement):
        assert len(REQUIREMENTS[requirement].text) > 200


@pytest.mark.parametrize(("requirement", "doing"), [
    ("ENDURE", ref("save", 700, scenario="endurance")), ("NEARFULL", ref("save", 3, scenario="near_full", level=0.8)),
])  # fmt: skip
def test_an_error_of_the_storage_in_it_fails_it_and_no_save(requirement, doing):
    failed = measurement(failure=failed_in(doing))
    assert {r for r in ALL if judged(r, failed).outcome == "failed"} == {requirement}
    assert judged("SAVE", failed).outcome == "met"


# --- ENDURE ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("last", "is_met"), [(1 / 0.9 - 1e-9, True), (1 / 0.9 + 1e-9, False), (0.5, True)])
def test_the_last_quarter_may_lose_a_tenth_of_the_rate(last, is_met):
    verdict = judged("ENDURE", endured([1.0] * 30 + [last] * 10))
    assert verdict.outcome == ("met" if is_met else "failed")
    assert verdict.measured == pytest.approx(max(0.0, 1 - 1 / last))
    assert verdict.limit == 0.1


def test_slow_saves_in_the_middle_of_the_run_are_not_compared():
    assert judged("ENDURE", endured([1.0] * 10 + [50.0] * 20 + [1.0] * 10)).outcome == "met"


def test_without_a_duration_it_is_not_run():
    verdict = judged("ENDURE", endured([1.0] * 40, asked=0.0))
    assert verdict.outcome == "not run"
    assert verdict.reason == "not given"


def test_a_single_save_in_a_quarter_decides_nothing():
    verdict = judged("ENDURE", endured([1.0] * 4))
    assert (verdict.outcome, verdict.reason) == ("not run", "too few")


# --- STEADY ----------------------------------------------------------------------------------------------------------


def test_the_round_that_completed_the_first_steady_window_is_named():
    verdict = judged("STEADY", endured([9.0, 5.0, 3.0, 1.0, 1.0, 1.0, 1.0, 1.0, 7.0]))
    assert (verdict.outcome, verdict.measured, verdict.limit) == ("met", 8.0, 25.0)
    assert "Steady from round 8" in verdict.because


def test_saves_that_are_never_steady_have_failed_after_25_rounds_and_not_before():
    assert judged("STEADY", endured([1.0, 2.0] * 12)).outcome == "not run"
    assert judged("STEADY", endured([1.0, 2.0] * 13)).outcome == "failed"
    assert judged("STEADY", endured([1.0, 2.0] * 13 + [1.0] * 50)).outcome == "failed"


@pytest.mark.parametrize(
    ("window", "is_steady"),
    [
        ([90, 110, 100, 110, 90], True),
        ([89, 110, 100, 110, 91], False),
        ([95, 97.5, 100, 102.5, 105], True),
        ([94, 97, 100, 103, 106], False),
    ],
)
def test_a_window_may_range_by_a_fifth_and_drift_by_a_tenth(window, is_steady):
    assert (steady_round(window) is not None) == is_steady
    assert (steady_round(window[::-1]) is not None) == is_steady


@given(rounds=st.lists(st.floats(0.01, 100), min_size=5, max_size=60))
def test_a_steady_window_is_one_within_the_first_rounds(rounds):
    reached = steady_round(rounds)
    ends = range(5, min(len(rounds), MAXIMUM_ROUNDS) + 1)
    steady = [
        e for e in ends if unsteadiness(rounds[e - 5 : e])[0] <= 0.2 and unsteadiness(rounds[e - 5 : e])[1] <= 0.1
    ]
    assert reached == (steady[0] if steady else None)
    if reached:
        window = rounds[reached - 5 : reached]
        assert max(window) - min(window) <= 0.2 * statistics.fmean(window) * (1 + 1e-9)


# --- NEARFULL --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slow", "is_met"),
    [
        ({"at_80": 1 / 0.9 - 1e-9}, True),
        ({"at_80": 1 / 0.9 + 1e-9}, False),
        ({"at_90": 1 / 0.8 - 1e-9}, True),
        ({"at_90": 1 / 0.8 + 1e-9}, False),
        ({"at_80": 0.5, "at_90": 0.5}, True),
    ],
)
def test_the_fuller_the_volume_the_more_may_be_lost(slow, is_met):
    verdict = judged("NEARFULL", filled(**slow))
    assert verdict.outcome == ("met" if is_met else "failed")
    assert verdict.limit == (0.2 if "at_90" in slow and "at_80" not in slow else 0.1)


def test_ballast_that_did_not_fill_the_volume_decides_nothing():
    verdict = judged("NEARFULL", filled(used=(0.0, 0.5, 0.9)))
    assert verdict.outcome == "not run"
    assert "to 50 %; 80% was requested" in verdict.because


def test_a_volume_that_may_not_be_filled_is_not_run_with_that_reason():
    of = measurement(patterns=Patterns(not_run={"near_full": "The volume was not filled: others use it."}))
    assert judged("NEARFULL", of).reason == "not possible"


@given(used=st.integers(0, 1 << 50), free=st.integers(1, 1 << 50), level=st.sampled_from(LEVELS))
def test_ballast_brings_a_volume_to_its_level_and_no_further(used, free, level):
    volume = Volume(used_bytes=used, free_bytes=free)
    after = used + volume.ballast_bytes(level)
    assert after <= max(used, level * volume.capacity_bytes)
    assert math.isclose(after, max(used, level * volume.capacity_bytes), rel_tol=1e-9, abs_tol=1)
    assert volume.ballast_bytes(level) <= free


@pytest.mark.parametrize(
    ("used", "free", "checkpoint", "expected_text"),
    [
        (0, 100 * GIB, 9 * GIB, ""),
        (5 * GIB, 95 * GIB, 9 * GIB, ""),
        (6 * GIB, 94 * GIB, 9 * GIB, "6.44 GB (6 %) of the volume are in use"),
        (0, 100 * GIB, 11 * GIB, "has 10.7 GB left, and a checkpoint needs 11.8 GB"),
        (60 << 20, 200 << 20, 1 << 20, ""),
    ],
)
def test_a_volume_is_filled_where_it_holds_nobody_s_data_and_a_checkpoint_still_fits(
    used, free, checkpoint, expected_text
):
    reason = unavailable_reason(Volume(used_bytes=used, free_bytes=free), checkpoint)
    assert expected_text in reason
    assert bool(reason) == bool(expected_text)

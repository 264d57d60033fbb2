"""Saves that are not alone: met, failed and not run, at the limit and a hair beyond it, on made-up measurements."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.config.gate_files import settle
from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.measurement import Patterns
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.judging.verdicts import severity_of
from tests.support.made_measurement import FULL, LIMITS, at, failed_in, judged, measurement
from tests.support.made_patterns import with_neighbour, with_reads

pytestmark = pytest.mark.covers(requirements=("NEIGHBOUR", "MIXED"))

SAVE_LIMIT = LIMITS.save_limit_seconds


@pytest.mark.parametrize(("requirement", "name", "of"), [
    ("NEIGHBOUR", "neighbour", with_neighbour()), ("MIXED", "mixed", with_reads())
])  # fmt: skip
class TestBoth:
    def test_it_is_met_and_tells_the_buyer_what_it_is_for(self, requirement, name, of):
        verdict = judged(requirement, of)
        assert verdict.outcome == "met"
        assert verdict.because.endswith(".")
        assert verdict.detail
        assert len(REQUIREMENTS[requirement].text) > 200

    def test_it_is_reported_of_every_storage(self, requirement, name, of):
        for kind, severity in (("posix-shared", "advisory"), ("posix-local", "advisory")):
            _, gates = settle(resolve({}, {}), kind)
            assert severity_of(REQUIREMENTS[requirement], "llama3-8b-full", gates) == severity

    def test_what_was_not_measured_is_not_run(self, requirement, name, of):
        assert judged(requirement, measurement()).outcome == "not run"
        assert judged(requirement, measurement(patterns=Patterns())).outcome == "not run"

    def test_what_these_ranks_cannot_be_is_not_run_with_its_reason(self, requirement, name, of):
        verdict = judged(requirement, measurement(patterns=Patterns(not_run={name: "Two are needed."})))
        assert (verdict.outcome, verdict.reason) == ("not run", "not possible")

    def test_an_error_of_the_storage_in_it_fails_it_and_no_save(self, requirement, name, of):
        failed = measurement(failure=failed_in(at("save", 2, scenario=name)))
        assert judged(requirement, failed).outcome == "failed"
        assert judged("SAVE", failed).outcome == "met"
        elsewhere = measurement(failure=failed_in(at("load", 2, scenario="storm")))
        assert judged(requirement, elsewhere).outcome == "not run"


@pytest.mark.parametrize(("beside", "is_met"), [(1.25, True), (math.nextafter(1.25, 2), False), (0.5, True)])
def test_beside_a_neighbour_a_save_may_take_a_quarter_longer(beside, is_met):
    verdict = judged("NEIGHBOUR", with_neighbour(contended_seconds=(beside,) * 3))
    assert (verdict.outcome, verdict.measured, verdict.limit) == ("met" if is_met else "failed", beside, 1.25)


@given(alone=st.lists(st.floats(0.01, 100), min_size=3, max_size=3), growth=st.floats(0.5, 3))
def test_the_medians_are_compared(alone, growth):
    beside = tuple(s * growth for s in alone)
    verdict = judged(
        "NEIGHBOUR", with_neighbour(undisturbed_seconds=tuple(alone), contended_seconds=(*beside[:2], beside[2]))
    )
    assert verdict.measured == pytest.approx(growth)


def test_a_neighbour_that_did_nothing_is_none():
    verdict = judged("NEIGHBOUR", with_neighbour(bursts=0, neighbour_bytes=0))
    assert (verdict.outcome, verdict.measured) == ("not run", None)


@pytest.mark.parametrize(("beside", "is_met"), [(0.008, True), (math.nextafter(0.008, 1), False)])
def test_a_read_of_a_sample_may_take_twice_as_long(beside, is_met):
    verdict = judged("MIXED", with_reads(contended_p99_seconds=(beside,) * 3))
    assert verdict.outcome == ("met" if is_met else "failed")
    assert (verdict.measured, verdict.limit) == (beside / 0.004, 2.0)


@pytest.mark.parametrize("size", [FULL, FULL // 1000])
def test_a_save_beside_reads_may_take_a_quarter_longer_than_the_limit(size):
    limit = SAVE_LIMIT * 1.25 * size / FULL
    assert judged("MIXED", with_reads(size, save_seconds=(limit * 0.999,))).outcome == "met"
    verdict = judged("MIXED", with_reads(size, save_seconds=(limit * 0.5, limit * 1.001, limit * 0.5)))
    assert (verdict.outcome, verdict.unit) == ("failed", "s")
    assert verdict.limit == pytest.approx(limit)


@pytest.mark.parametrize("which", ["undisturbed_reads", "contended_reads"])
def test_of_few_reads_there_is_no_99th_percentile(which):
    verdict = judged("MIXED", with_reads(**{which: (300, 99, 300)}))
    assert verdict.outcome == "not run"
    assert verdict.reason == "too few"

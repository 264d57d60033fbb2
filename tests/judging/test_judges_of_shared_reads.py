"""Verdicts on loads in which ranks read files that other ranks wrote: met, failed, not run, and values at the limit."""

from __future__ import annotations

import dataclasses
import math

import pytest

from pytest_ckpt.config.gate_files import settle
from pytest_ckpt.config.options import resolve
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.judging.verdicts import severity_of
from tests.support.synthetic_measurement import FULL, LIMITS, failed_in, judged, measurement, ref
from tests.support.synthetic_patterns import FAULT, copies_read, pattern, with_patterns

pytestmark = pytest.mark.covers(requirements=("STORM", "RESTART", "SHIFTED", "RESHAPED"))

LOAD_LIMIT = LIMITS.load_limit_seconds
ALL = {"STORM": ("storm",), "SHIFTED": ("shifted",), "RESHAPED": ("joined", "split")}
EACH = [(requirement, name) for requirement, names in ALL.items() for name in names]


@pytest.mark.parametrize("requirement", ALL)
class TestAll:
    def test_the_requirement_is_met_and_has_a_description(self, requirement):
        verdict = judged(requirement, with_patterns())
        assert (verdict.outcome, verdict.measured, verdict.unit) == ("met", 1.0, "s")
        assert verdict.because.endswith(".")
        assert "4 ranks read" in verdict.detail
        assert len(REQUIREMENTS[requirement].text) > 200

    def test_the_requirement_is_required_on_shared_storage_and_advisory_on_a_local_disk(self, requirement):
        settings = resolve({}, {})
        for kind, severity in (("posix-shared", "required"), ("posix-local", "advisory")):
            chosen, gates = settle(settings, kind)
            assert severity_of(REQUIREMENTS[requirement], "llama3-8b-full", gates) == severity
            assert ("contention" in chosen.suites) == (kind == "posix-shared")

    def test_requirements_without_a_measurement_are_not_run(self, requirement):
        verdict = judged(requirement, measurement())
        assert (verdict.outcome, verdict.measured, verdict.reason) == ("not run", None, "not measured")

    def test_a_run_that_ended_before_gives_the_reason(self, requirement):
        verdict = judged(requirement, measurement(failure=failed_in(ref("save", 4))))
        assert verdict.outcome == "not run"
        assert verdict.reason == "run ended"

    def test_a_slow_pattern_does_not_change_the_verdict_on_loads(self, requirement):
        slow = with_patterns(**{name: pattern(9_999.0) for name in ALL[requirement]})
        assert judged(requirement, slow).outcome == "failed"
        assert judged("LOAD", slow) == judged("LOAD", measurement())


@pytest.mark.parametrize(("requirement", "name"), EACH)
class TestEachPattern:
    def test_at_its_limit_it_is_met_and_a_hair_beyond_it_has_failed(self, requirement, name):
        limit = LOAD_LIMIT * (1.5 if requirement == "STORM" else 1.0)
        assert judged(requirement, with_patterns(**{name: pattern(1.0, limit, 1.0)})).outcome == "met"
        verdict = judged(requirement, with_patterns(**{name: pattern(1.0, math.nextafter(limit, 1e9), 1.0)}))
        assert (verdict.outcome, verdict.limit) == ("failed", limit)
        assert verdict.reason == "over limit"

    def test_at_reduced_scale_the_limit_shrinks_with_the_bytes(self, requirement, name):
        small = FULL // 1000
        limit = LOAD_LIMIT / 1000 * (1.5 if requirement == "STORM" else 1.0)
        for seconds, wanted in ((limit * 0.999, "met"), (limit * 1.001, "failed")):
            found = with_patterns(
                size=small,
                **{n: pattern(1e-6, size=small) for _, n in EACH} | {name: pattern(seconds, size=small)},
            )
            assert judged(requirement, found).outcome == wanted

    def test_wrong_bytes_fail_whatever_the_time(self, requirement, name):
        verdict = judged(requirement, with_patterns(**{name: pattern(fault_count=2, faults=(FAULT,))}))
        assert (verdict.outcome, verdict.measured, verdict.unit) == ("failed", 2.0, "faults")
        assert verdict.reason == "wrong bytes"

    def test_bytes_that_did_not_arrive_fail(self, requirement, name):
        verdict = judged(requirement, with_patterns(**{name: pattern(bytes_checked=3 * FULL - 1)}))
        assert (verdict.outcome, verdict.unit) == ("failed", "bytes")

    @pytest.mark.parametrize(("resident", "reason"), [(0.0101, "cached"), (1.0, "cached"), (None, "unproven")])
    def test_a_load_that_was_not_seen_to_be_cold_is_not_run(self, requirement, name, resident, reason):
        verdict = judged(requirement, with_patterns(**{name: pattern(resident=resident)}))
        assert verdict.outcome == "not run"
        assert verdict.reason == reason

    def test_the_word_of_a_target_without_a_cache_counts_as_for_its_own_loads(self, requirement, name):
        found = with_patterns(**{name: pattern(resident=None)})
        declared = dataclasses.replace(found, cache=dataclasses.replace(found.cache, is_declared_cold=True))
        assert judged(requirement, declared).outcome == "met"

    def test_one_per_cent_may_be_resident(self, requirement, name):
        assert judged(requirement, with_patterns(**{name: pattern(resident=0.01)})).outcome == "met"

    @pytest.mark.parametrize("doing", [(1, "operation"), (3, "operation"), (2, "residency")])
    def test_an_error_of_the_storage_in_it_fails_it_and_no_other(self, requirement, name, doing):
        failure = failed_in(ref("load", *doing, scenario=name))
        of = with_patterns(**{n: None for names in ALL.values() for n in names}, failure=failure)
        assert {r: judged(r, of).outcome for r in ALL} == {r: "failed" if r == requirement else "not run" for r in ALL}
        assert judged("LOAD", of).outcome == "met"

    def test_patterns_that_are_impossible_with_these_ranks_are_not_run(self, requirement, name):
        verdict = judged(requirement, with_patterns(**{name: None}, not_run={name: "Two are needed."}))
        assert (verdict.outcome, verdict.reason) == ("not run", "not possible")


# Each of three more copies reads a quarter of the checkpoint again: 1.75 times the bytes of the storm.
ALL_COPIES = 1.75


@pytest.mark.parametrize(("read", "beyond"), [(4, "failed"), (5, "failed"), (3, "not run"), (0, "not run")])
def test_a_restart_fails_where_all_copies_were_read_and_a_projection_beyond_the_limit_decides_nothing(read, beyond):
    within, late = (LOAD_LIMIT / ALL_COPIES * share for share in (0.999, 1.001))
    for seconds, outcome in ((within, "met"), (late, beyond)):
        verdict = judged("RESTART", with_patterns(storm=pattern(1.0, seconds, 1.0, restart=copies_read(read))))
        assert (verdict.outcome, verdict.severity) == (outcome, "advisory")
        assert ("Projection at this rate" in verdict.because) == (read < 4)
        if outcome != "not run":
            assert (verdict.measured, verdict.limit) == (pytest.approx(ALL_COPIES * seconds), LOAD_LIMIT)
    assert ("The rate of more clients was not measured." in verdict.because) == (beyond == "not run")


def test_the_verdict_on_a_restart_shows_how_many_copies_were_read_and_held():
    verdict = judged("RESTART", with_patterns(storm=pattern(1.0, 2.0, 1.0, restart=copies_read(2))))
    assert verdict.because == (
        "Measured: 2 copies concurrently, 500 MB/s. Projection at this rate: a restart of 16,000 accelerators, 4 "
        "copies, takes 3.5 s; limit 111 s."
    )
    assert "a restart of 4 copies reads 1.75 GB: 15.7 MB/s are needed" in verdict.detail


def test_at_reduced_scale_a_restart_is_judged_by_the_bandwidth():
    small = FULL // 1000
    for share, outcome in ((0.999, "met"), (1.001, "failed")):
        storm = pattern(*(LOAD_LIMIT / ALL_COPIES / 1000 * share,) * 3, size=small, restart=copies_read(4))
        verdict = judged("RESTART", with_patterns(size=small, storm=storm))
        assert (verdict.outcome, verdict.measured) == (outcome, pytest.approx(share * LOAD_LIMIT))
        assert "0.001 of the full size: the time follows from the bandwidth" in verdict.detail


@pytest.mark.parametrize(
    ("storm", "reason"),
    [
        (pattern(), "not recorded"),
        (pattern(restart=copies_read(2, needed=1)), "not possible"),
        (pattern(resident=0.5, restart=copies_read(4)), "cached"),
        (pattern(resident=None, restart=copies_read(4)), "unproven"),
        (None, "not measured"),
    ],
)
def test_a_restart_is_not_judged_without_cold_loads_of_copies(storm, reason):
    verdict = judged("RESTART", with_patterns(storm=storm))
    assert (verdict.outcome, verdict.reason) == ("not run", reason)


def test_wrong_bytes_fail_a_restart():
    storm = pattern(fault_count=1, faults=(FAULT,), restart=copies_read(4))
    assert judged("RESTART", with_patterns(storm=storm)).reason == "wrong bytes"


@pytest.mark.parametrize(("slow", "is_met"), [(2.0, True), (math.nextafter(2.0, 3), False)])
def test_in_a_storm_the_slowest_rank_may_take_twice_the_median_s_time(slow, is_met):
    verdict = judged("STORM", with_patterns(storm=pattern(slow, ranks=[1.0, 1.0, 1.0, slow])))
    assert verdict.outcome == ("met" if is_met else "failed")
    if not is_met:
        assert (verdict.limit, verdict.unit, verdict.measured) == (2.0, "slowest / median", slow)
        assert verdict.reason == "uneven"


@pytest.mark.parametrize(("slow", "is_met"), [(0.25, True), (0.375, False)])
def test_a_rank_that_is_a_quarter_of_a_second_late_is_no_straggler_of_the_storage(slow, is_met):
    verdict = judged("STORM", with_patterns(storm=pattern(slow, ranks=[0.0625, 0.0625, 0.0625, slow])))
    assert verdict.outcome == ("met" if is_met else "failed")


def test_ranks_that_wait_are_no_stragglers():
    found = dataclasses.replace(pattern(ranks=[1.0, 1.0, 0.0, 0.0]), rank_bytes=(FULL // 2, FULL // 2, 0, 0))
    verdict = judged("RESHAPED", with_patterns(joined=found))
    assert verdict.outcome == "met"
    assert "slowest rank / median 1.00" in verdict.detail

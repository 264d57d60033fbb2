"""Verdicts of RETENTION (deletions), DATA (kinds of data) and REPEAT (loads that a cache may have served)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.config.options import resolve
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from tests.support.synthetic_measurement import failed_in, judged, measurement, operation, outcome, ref
from tests.support.synthetic_patterns import DATA, RETENTION, with_data, with_retention

pytestmark = pytest.mark.covers(requirements=("RETENTION", "DATA"))

BESIDE = [("RETENTION", "retention", RETENTION), ("DATA", "data", DATA)]
seconds = st.floats(0.001, 10_000)


@pytest.mark.parametrize(("requirement", "field", "found"), BESIDE)
class TestBoth:
    def test_the_requirement_is_met_and_advisory(self, requirement, field, found):
        verdict = judged(requirement, measurement(**{field: found}))
        assert (verdict.outcome, verdict.severity) == ("met", "advisory")
        assert verdict.because.endswith(".")
        assert verdict.margin == pytest.approx(1 - verdict.measured / verdict.limit)

    def test_without_an_answer_it_is_not_run(self, requirement, field, found):
        verdict = judged(requirement, measurement(**{field: None}))
        assert (verdict.outcome, verdict.measured, verdict.limit, verdict.margin) == ("not run", None, None, None)

    def test_a_run_that_ended_before_gives_the_reason_for_the_missing_answer(self, requirement, field, found):
        failed = measurement(**{field: None}, failure=failed_in(ref("save", 4)))
        verdict = judged(requirement, failed)
        assert verdict.outcome == "not run"
        assert verdict.reason == "run ended"

    def test_the_requirement_is_not_in_a_run_that_did_not_request_it(self, requirement, field, found):
        assert not REQUIREMENTS[requirement].is_requested(resolve({}, {}))
        asked = {"RETENTION": {"ckpt_keep_last": "2"}, "DATA": {"ckpt_data_pairs": "1"}}
        for name, options in asked.items():
            assert REQUIREMENTS[requirement].is_requested(resolve(options, {})) == (name == requirement)

    def test_the_requirement_is_described_as_advisory_and_has_a_source(self, requirement, field, found):
        assert "advisory" in REQUIREMENTS[requirement].text.lower()
        assert REQUIREMENTS[requirement].source


# --- RETENTION -------------------------------------------------------------------------------------------------------


def test_a_save_that_takes_a_tenth_longer_during_a_deletion_is_at_the_limit():
    verdict = judged("RETENTION", with_retention(save_seconds=1.0, save_while_deleting_seconds=1.1))
    assert (verdict.outcome, verdict.measured, verdict.limit, verdict.margin) == ("met", 1.1, 1.1, 0)


def test_a_hair_beyond_a_tenth_longer_it_has_failed_by_its_ratio():
    longer = math.nextafter(1.1, math.inf)
    verdict = judged("RETENTION", with_retention(save_seconds=1.0, save_while_deleting_seconds=longer))
    assert (verdict.outcome, verdict.measured) == ("failed", longer)
    assert verdict.margin < 0


@given(plain=seconds, deleting=seconds)
def test_retention_compares_the_save_during_a_deletion_with_the_others(plain, deleting):
    verdict = judged("RETENTION", with_retention(save_seconds=plain, save_while_deleting_seconds=deleting))
    assert verdict.measured == deleting / plain
    assert verdict.outcome == ("met" if deleting / plain <= 1.1 else "failed")


def test_retention_reports_each_deletion_and_how_many_were_kept():
    verdict = judged("RETENTION", with_retention())
    assert verdict.reason == "met"


def test_without_deletions_between_saves_retention_reports_none():
    assert "one at a time: none" in judged("RETENTION", with_retention(delete_seconds=())).detail


# --- DATA ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["save", "load"])
@pytest.mark.parametrize(("unique", "is_met"), [(1.05, True), (math.nextafter(1.05, 2), False), (0.5, True)])
def test_unique_data_may_take_a_twentieth_longer_and_no_more(kind, unique, is_met):
    even = {f"{u}_{k}_seconds": (1.0,) for u in ("unique", "constant") for k in ("save", "load")}
    verdict = judged("DATA", with_data(**{**even, f"unique_{kind}_seconds": (unique,)}))
    assert verdict.outcome == ("met" if is_met else "failed")
    assert verdict.measured == max(unique, 1.0)
    assert verdict.limit == 1.05


def test_data_names_the_ratio_of_both_kinds_and_keeps_the_result_of_unique_data():
    found = with_data(unique_save_seconds=(30.0,), constant_save_seconds=(10.0,))
    verdict = judged("DATA", found)
    assert (verdict.outcome, verdict.measured) == ("failed", 3.0)
    assert verdict.reason == "over limit"
    assert judged("SAVE", found) == judged("SAVE", measurement())


def test_data_takes_the_middle_of_the_pairs_so_that_one_slow_one_decides_nothing():
    slow = with_data(unique_save_seconds=(10.0, 10.0, 99.0), constant_save_seconds=(10.0, 10.0, 10.0))
    assert outcome("DATA", slow) == "met"


def test_data_reports_the_seconds_of_every_operation():
    detail = judged("DATA", with_data()).detail
    assert "saves: unique 10 s, 10.2 s, 11 s; constant 10 s, 10 s, 12 s" in detail
    assert "loads: unique 4 s, 4.1 s; constant 4 s, 4 s" in detail


# --- REPEAT: loads that a cache may have served ----------------------------------------------------------------------


def repeated(*loads):
    done = [operation("save", n, 1.0) for n in range(1, len(loads) + 1)]
    done += [operation("load", n, s) for n, s in enumerate(loads, 1)]
    return judged("REPEAT", measurement(operations=done, operations_planned=len(loads)))


def test_last_loads_that_take_a_third_of_the_first_fail_with_that_reason():
    verdict = repeated(3.0, 3.0, 3.0, 1.0, 0.9)
    assert verdict.outcome == "failed"
    assert verdict.because.startswith(
        "Loads 4, 5 took a third or less of the median of the first 3 loads, 3 s: a cache beyond the client may have"
    )
    assert "Coefficient of variation" in verdict.because


def test_exactly_a_third_is_much_faster_and_a_hair_more_is_not():
    assert repeated(3.0, 3.0, 1.0).reason == "cached"
    assert repeated(3.0, 3.0, math.nextafter(1.0, 2)).reason != "cached"


@given(loads=st.lists(st.floats(1.0, 1.1), min_size=2, max_size=12))
def test_loads_that_are_alike_give_no_such_reason(loads):
    verdict = repeated(*loads)
    assert verdict.outcome == "met"
    assert verdict.reason != "cached"


ALIKE = st.lists(st.floats(1.0, 1.1), min_size=2, max_size=29)
ANYWHERE = st.floats(0, 1, exclude_max=True)


@given(alike=ALIKE, outlier=st.floats(3.5, 1000.0), place=ANYWHERE)
def test_one_slow_load_at_any_position_does_not_make_the_others_look_cached(alike, outlier, place):
    loads = list(alike)
    loads.insert(int(place * (len(alike) + 1)), outlier)
    verdict = repeated(*loads)
    assert verdict.reason != "cached"
    assert (verdict.outcome == "failed") == (verdict.measured > verdict.limit)


@given(alike=ALIKE, outlier=st.floats(0.001, 0.33), place=ANYWHERE)
def test_one_fast_load_is_named_at_any_position(alike, outlier, place):
    loads = list(alike)
    index = int(place * (len(alike) + 1))
    loads.insert(index, outlier)
    verdict = repeated(*loads)
    assert verdict.outcome == "failed"
    assert verdict.because.startswith(f"Load {index + 1} took a third or less of the median of ")


@given(cold=st.lists(st.floats(9.0, 9.9), min_size=2, max_size=9), data=st.data())
def test_loads_that_turn_three_times_faster_are_all_named_and_no_other(cold, data):
    """If the later loads take at most a third of the time of the first loads, REPEAT names exactly the later loads.

    In published results, the first loads fill a cache, which then serves the later loads.
    """
    maximum = 2 * len(cold) if len(cold) > 2 else 1
    warm = data.draw(st.lists(st.floats(1.0, 3.0), min_size=1, max_size=maximum))
    verdict = repeated(*cold, *warm)
    assert verdict.outcome == "failed"
    numbers = ", ".join(str(len(cold) + n) for n in range(1, len(warm) + 1))
    assert verdict.because.startswith(f"Load{'s' if len(warm) > 1 else ''} {numbers} took a third or less of the ")


def test_the_published_case_of_five_cold_loads_and_five_cached_ones():
    verdict = repeated(*[9.0] * 5, *[3.0] * 5)
    assert verdict.because.startswith(
        "Loads 6, 7, 8, 9, 10 took a third or less of the median of the first 3 loads, 9 s:"
    )


def test_among_a_thousand_loads_a_much_faster_one_fails_too():
    verdict = repeated(3.0, 1.0, *[3.0] * 998)
    assert verdict.because.startswith("Load 2 took a third or less of the median of the first 333 loads, 3 s:")
    assert verdict.outcome == "failed"


@pytest.mark.parametrize("loads", [(3.0, 1.0), (1.0, 3.0)])
def test_neither_of_two_loads_is_identified_as_the_outlier(loads):
    verdict = repeated(*loads)
    assert verdict.outcome == "failed"
    assert verdict.reason != "cached"


def test_saves_that_become_faster_are_no_evidence_about_caches():
    done = [operation("save", n, s) for n, s in enumerate((3.0, 1.0), 1)]
    done += [operation("load", n, 1.0) for n in (1, 2)]
    verdict = judged("REPEAT", measurement(operations=done, operations_planned=2))
    assert verdict.outcome == "failed"
    assert verdict.reason != "cached"

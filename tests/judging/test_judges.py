"""Verdicts of every requirement on constructed measurements: met, failed, not run, at the limit and just over it."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.facts.proofs import CacheFacts, CacheReading, Fault, Integrity
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.judging.verdicts import not_run
from tests.support.end_to_end import REQUIRED
from tests.support.limit_margins import ADVISORY, ALL, CLOSE
from tests.support.synthetic_measurement import (
    FULL,
    GATES,
    SUBJECT,
    failed_in,
    judged,
    measurement,
    operation,
    outcome,
    ref,
)

pytestmark = pytest.mark.covers(requirements=ALL)


def test_a_good_measurement_meets_everything():
    assert {r: outcome(r, measurement()) for r in ALL} == dict.fromkeys(ALL, "met")


def test_each_verdict_has_the_severity_of_the_catalogue_and_a_sentence():
    for requirement in map(REQUIREMENTS.get, ALL):
        verdict = judged(requirement.id, measurement())
        assert (verdict.id, verdict.subject, verdict.severity) == (requirement.id, str(SUBJECT), requirement.severity)
        assert verdict.because.endswith(".")


def test_the_catalogue_marks_required_requirements():
    assert {r: REQUIREMENTS[r].severity for r in ALL} == dict.fromkeys(REQUIRED, "required") | dict.fromkeys(
        ADVISORY, "advisory"
    )


def test_every_requirement_has_a_text_for_the_buyer_and_a_source():
    for requirement in REQUIREMENTS.values():
        assert len(requirement.text) > 100
        assert requirement.source


def test_unjudged_requirements_have_no_numbers():
    verdict = not_run(REQUIREMENTS["SAVE"], str(SUBJECT), "no test", "it was deselected.", GATES)
    assert (verdict.outcome, verdict.measured, verdict.limit, verdict.margin) == ("not run", None, None, None)


# --- INTEGRITY -------------------------------------------------------------------------------------------------------

FAULT = Fault(kind="flipped", rank=2, host="n1", checkpoint=3, file="a.pt", tensor="layer_1/0", offset=8192, bytes=4096,
              detail="1 bit differs in 1 byte, the first at byte 9000")  # fmt: skip


def test_one_fault_fails_integrity_and_is_named():
    integrity = Integrity(bytes_expected=3 * FULL, bytes_checked=3 * FULL, fault_count=1, faults=(FAULT,))
    verdict = judged("INTEGRITY", measurement(integrity=integrity))
    assert (verdict.outcome, verdict.measured, verdict.limit) == ("failed", 1.0, 0.0)
    for word in ("flipped", "checkpoint 3", "rank 2 on n1", "a.pt", "tensor layer_1/0", "offset 8,192"):
        assert word in verdict.because


def test_a_fault_counts_even_when_the_run_ended_early():
    integrity = Integrity(bytes_expected=3 * FULL, bytes_checked=FULL, fault_count=7, faults=(FAULT,))
    of = measurement(loads=(1.0,), integrity=integrity, failure=failed_in(ref("load", 2)))
    assert outcome("INTEGRITY", of) == "failed"


def test_one_byte_that_was_not_compared_fails_integrity():
    integrity = Integrity(bytes_expected=3 * FULL, bytes_checked=3 * FULL - 1, fault_count=0, faults=())
    verdict = judged("INTEGRITY", measurement(integrity=integrity))
    assert verdict.outcome == "failed"
    assert verdict.reason == "missing bytes"


def test_loads_that_were_not_made_leave_integrity_undecided():
    assert outcome("INTEGRITY", measurement(loads=(1.0, 1.0))) == "not run"
    assert outcome("INTEGRITY", measurement(integrity=None)) == "not run"


# --- COLD ------------------------------------------------------------------------------------------------------------


def test_exactly_one_percent_resident_is_still_cold():
    verdict = judged("COLD", measurement(resident=0.01))
    assert (verdict.outcome, verdict.measured, verdict.limit, verdict.unit) == ("met", 0.01, 0.01, "fraction")


def test_a_byte_more_is_not():
    of = measurement()
    last = dataclasses.replace(of.operations[-1], resident_bytes=FULL // 100 + 1)
    verdict = judged("COLD", dataclasses.replace(of, operations=(*of.operations[:-1], last)))
    assert verdict.outcome == "failed"
    assert verdict.reason == "cached"


def test_one_load_with_unknown_cached_share_leaves_cold_undecided():
    of = measurement()
    last = dataclasses.replace(of.operations[-1], resident_bytes=None)
    of = dataclasses.replace(of, operations=(*of.operations[:-1], last))
    found = judged("COLD", of)
    assert (found.outcome, found.because) == ("not run", "The cached share before load 3 was not measured.")
    warm = dataclasses.replace(of.operations[-2], resident_bytes=FULL)
    of = dataclasses.replace(of, operations=(*of.operations[:-2], warm, last))
    assert judged("COLD", of).outcome == "failed"


def test_cold_is_not_run_if_no_cache_probe_works():
    blind = CacheFacts(required=True, readings=(), policy="auto", method="none", probe="", resident_fraction=None,
                       detail="neither call saw the file")  # fmt: skip
    verdict = judged("COLD", measurement(resident=None, cache=blind))
    assert verdict.outcome == "not run"
    assert verdict.because.startswith("Cannot prove uncached reads: neither call saw the file. Besides, ")


def test_a_warm_load_fails_although_others_were_not_made():
    assert outcome("COLD", measurement(loads=(1.0,), resident=0.5)) == "failed"
    assert outcome("COLD", measurement(loads=(1.0,), resident=0.0)) == "not run"
    assert outcome("COLD", measurement(loads=())) == "not run"


def test_both_readings_of_the_cache_rule_are_reported():
    readings = tuple(
        CacheReading(rule=f"rule {n}", host="n1", memory_bytes=1 << 34, bytes_compared=1 << 33, requires_drop=n == 1)
        for n in (1, 2)
    )
    cache = dataclasses.replace(measurement().cache, readings=readings)
    detail = judged("COLD", measurement(cache=cache)).detail
    assert "n1: rule 1: 8.59 GB against 17.2 GB of memory, caches must be dropped" in detail
    assert "n1: rule 2: 8.59 GB against 17.2 GB of memory, no drop needed" in detail


# --- DURABLE-CALLS ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("short", "expected_text"), [({"files_synced": 23}, "Of 24 files only 23"),
                                             ({"directories_synced": 14}, "Of 15 directories only 14"),
                                             ({"commits": 2}, "Of 3 commits only 2"),
                                             ({"files": 0, "files_synced": 0}, "Of 0 files only 0")])  # fmt: skip
def test_one_call_too_few_fails(short, expected_text):
    durability = dataclasses.replace(measurement().durability, **short)
    verdict = judged("DURABLE-CALLS", measurement(durability=durability))
    assert verdict.outcome == "failed"
    assert expected_text in verdict.because


def test_without_the_counts_durability_is_not_run():
    assert outcome("DURABLE-CALLS", measurement(durability=None)) == "not run"


# --- STRAGGLER -------------------------------------------------------------------------------------------------------


def with_ranks(seconds, rank_bytes=None):
    operations = (operation("save", 1, max(seconds), ranks=seconds),)
    sizes = tuple(rank_bytes or [FULL // len(seconds)] * len(seconds))
    return measurement(operations=operations, processes=len(seconds), rank_bytes=sizes)


def test_a_slowest_rank_of_exactly_the_limit_is_no_straggler():
    """STRAGGLER is met if the slowest rank is exactly at the limit, and fails above it.

    One of 200 ranks is slow, so the slowest rank decides and not the 99th percentile.
    """
    verdict = judged("STRAGGLER", with_ranks([1.0] * 199 + [1.5]))
    assert (verdict.outcome, verdict.measured, verdict.limit, verdict.margin) == ("met", 1.5, 1.5, 0)
    assert outcome("STRAGGLER", with_ranks([1.0] * 199 + [1.5001])) == "failed"


def test_a_tail_of_exactly_the_limit_is_met_and_beyond_it_fails():
    """STRAGGLER is met if the 99th percentile is exactly at the limit, and fails above it.

    Three of 200 ranks are slow, so the 99th percentile is the time of a slow rank.
    """
    verdict = judged("STRAGGLER", with_ranks([1.0] * 197 + [1.3] * 3))
    assert (verdict.outcome, verdict.measured, verdict.unit) == ("met", 1.3, "p99 / p50")
    verdict = judged("STRAGGLER", with_ranks([1.0] * 197 + [1.31] * 3))
    assert (verdict.outcome, verdict.severity) == ("failed", "advisory")
    assert verdict.reason == "over limit"


def test_fewer_than_a_hundred_ranks_have_no_99th_percentile():
    verdict = judged("STRAGGLER", with_ranks([1.0] * 7 + [1.4]))
    assert (verdict.outcome, verdict.unit) == ("met", "slowest / median")
    assert "p99" not in verdict.because + verdict.detail


def test_a_rank_that_has_more_to_write_is_no_straggler():
    even = with_ranks([1.0, 1.0, 1.0, 3.0], [100, 100, 100, 300])
    assert outcome("STRAGGLER", even) == "met"
    assert judged("STRAGGLER", even).measured == pytest.approx(1.0)
    assert outcome("STRAGGLER", with_ranks([1.0, 1.0, 1.0, 1.0], [300, 300, 300, 100])) == "failed"


def test_a_rank_that_writes_nothing_is_left_out():
    assert outcome("STRAGGLER", with_ranks([1.0, 1.0, 1.0, 9.0], [100, 100, 100, 0])) == "met"


def test_two_ranks_are_too_few_to_identify_a_straggler():
    assert outcome("STRAGGLER", with_ranks([1.0, 9.0])) == "not run"


def test_times_of_ranks_that_wait_for_each_other_in_a_library_identify_no_straggler():
    together = dataclasses.replace(with_ranks([1.0, 1.0, 1.0, 9.0]), engine="dcp")
    verdict = judged("STRAGGLER", together)
    assert (verdict.outcome, verdict.reason) == ("not run", "not possible")
    assert "engine dcp wait for each other" in verdict.because


# --- REPEAT ----------------------------------------------------------------------------------------------------------


def test_times_that_scatter_by_exactly_ten_percent_are_met():
    """REPEAT is met if the standard deviation is just under 10 % of the mean, and fails if it is just over 10 %.

    The values 1 - d, 1 and 1 + d have a mean of 1 and a sample standard deviation of d.
    """
    assert outcome("REPEAT", measurement(saves=(0.9, 1.0, 1.1 - CLOSE))) == "met"
    verdict = judged("REPEAT", measurement(loads=(0.9, 1.0, 1.1 + 1e-6)))
    assert (verdict.outcome, verdict.unit) == ("failed", "fraction")
    assert verdict.measured == pytest.approx(0.1, rel=1e-5)


def test_one_operation_of_a_kind_cannot_vary():
    verdict = judged("REPEAT", measurement(saves=(1.0,), loads=(1.0,), operations_planned=1))
    assert (verdict.outcome, verdict.because) == ("not run", "Variation needs at least two operations of a kind.")


# --- all of them -----------------------------------------------------------------------------------------------------

some_seconds = st.floats(min_value=1e-3, max_value=1e4)
failures = st.none() | st.builds(
    failed_in,
    st.sampled_from([None, ref("save", 1), ref("load", 2), ref(stage="drop caches")]),
    st.sampled_from(["error", "killed", "hung", "too slow", "launch", "interrupted", "replaced"]),
)


@given(
    saves=st.lists(some_seconds, max_size=3),
    loads=st.lists(some_seconds, max_size=3),
    failure=failures,
    missing=st.sets(st.sampled_from(["integrity", "durability", "cache"])),
    resident=st.none() | st.floats(0, 1),
)
def test_every_judge_answers_whatever_was_measured(saves, loads, failure, missing, resident):
    of = measurement(saves, loads, resident=resident, failure=failure, **dict.fromkeys(missing))
    for requirement in ALL:
        verdict = judged(requirement, of)
        assert verdict.outcome in {"met", "failed", "not run"}
        assert verdict.because.endswith(".")
        if verdict.margin is not None and requirement in {"SAVE", "LOAD", "COLD", "REPEAT"}:
            assert (verdict.margin >= 0) == (verdict.outcome == "met")


@given(seconds=some_seconds, more=st.floats(min_value=1.0, max_value=10.0))
def test_a_slower_storage_never_does_better(seconds, more):
    ranking = {"met": 0, "failed": 1}
    for requirement in ("SAVE", "LOAD"):
        fast = outcome(requirement, measurement((seconds,) * 3, (seconds,) * 3))
        slow = outcome(requirement, measurement((seconds * more,) * 3, (seconds * more,) * 3))
        assert ranking[fast] <= ranking[slow]


# --- LOAD: reads that waited for the client ---------------------------------------------------------------------------


def stalled(took, waited):
    """Return a measurement whose second load took ``took`` times the limit.

    ``waited`` is the part of this time in which reads waited for the comparison, as a multiple of the limit.
    """
    limit = judged("LOAD", measurement()).limit
    slow = dataclasses.replace(operation("load", 2, took * limit), stalled_seconds=waited * limit)
    of = measurement()
    return dataclasses.replace(
        of, operations=tuple(slow if (o.kind, o.index) == ("load", 2) else o for o in of.operations)
    )


def test_a_miss_that_the_comparison_explains_is_not_the_storages():
    verdict = judged("LOAD", stalled(1.5, 0.5))
    assert (verdict.outcome, verdict.reason) == ("not run", "client too slow")
    assert verdict.because.startswith("The client compared too slowly: load 2 took ")


def test_a_miss_that_the_comparison_does_not_explain_fails():
    verdict = judged("LOAD", stalled(1.5, 0.49))
    assert (verdict.outcome, verdict.reason) == ("failed", "over limit")
    assert verdict.measured == pytest.approx(1.5 * verdict.limit)
    assert "of it reads waited for the client to compare." in verdict.because


@pytest.mark.parametrize("kind", ["save", "load"])
@pytest.mark.parametrize(("took", "outcome"), [(0.9, "met"), (1.5, "failed")])
@pytest.mark.parametrize(("share", "is_told"), [(0.09, False), (0.11, True), (1.0, True)])
def test_waits_for_a_cpu_are_reported_and_decide_nothing(kind, took, outcome, share, is_told):
    seconds = took * judged(kind.upper(), measurement()).limit
    slow = dataclasses.replace(operation(kind, 2, seconds), starved_seconds=share * seconds)
    of = measurement()
    of = dataclasses.replace(of, operations=tuple(slow if (o.kind, o.index) == (kind, 2) else o for o in of.operations))
    verdict = judged(kind.upper(), of)
    assert verdict.outcome == outcome
    assert ("of it a rank waited for a CPU." in verdict.because) == is_told


def test_the_slow_load_that_the_storage_caused_is_named():
    of = stalled(3.0, 2.5)
    limit = judged("LOAD", measurement()).limit
    slow = operation("load", 3, 1.25 * limit)
    of = dataclasses.replace(
        of, operations=tuple(slow if (o.kind, o.index) == ("load", 3) else o for o in of.operations)
    )
    verdict = judged("LOAD", of)
    assert (verdict.outcome, verdict.measured) == ("failed", pytest.approx(1.25 * limit))
    assert verdict.because.startswith("1 of 3 loads exceeded the limit")
    assert "slowest: load 3" in verdict.because


@pytest.mark.parametrize(("waited", "is_told"), [(0.5, True), (0.0, False)])
def test_a_load_within_the_limit_is_met_in_spite_of_stalls(waited, is_told):
    verdict = judged("LOAD", stalled(0.9, waited))
    assert verdict.outcome == "met"
    assert ("waited for the client" in verdict.because) is is_told

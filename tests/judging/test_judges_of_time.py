"""Verdicts of SAVE and LOAD on constructed measurements: met, failed, not run, at the limit and just over it."""

from __future__ import annotations

import dataclasses
import math

import pytest

from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.facts.settings import Assurance
from pytest_ckpt.judging.speed import HOW_SURE
from pytest_ckpt.sizing.limits import StatedLimits
from pytest_ckpt.support.units import format_seconds
from tests.support.limit_margins import ALL, CLOSE
from tests.support.synthetic_measurement import (
    FULL,
    LIMITS,
    SUBJECT,
    ByLimits,
    failed_in,
    judged,
    measurement,
    operation,
    outcome,
    ref,
)

pytestmark = pytest.mark.covers(requirements=("SAVE", "LOAD"))
TIMES = [("SAVE", "saves", LIMITS.save_limit_seconds), ("LOAD", "loads", LIMITS.load_limit_seconds)]


def with_seconds(kind, seconds, **changes):
    """Return a measurement in which save number n and load number n take the n-th value of ``seconds``.

    ``changes`` are further fields of the operations. If ``kind`` is "saves", they apply to the saves. If ``kind`` is
    "loads", they apply to the loads.
    """
    operations = [
        dataclasses.replace(operation(of, n, s), **(changes if of == kind[:-1] else {}))
        for of in ("save", "load")
        for n, s in enumerate(seconds, 1)
    ]
    return measurement(operations=operations, operations_planned=len(seconds))


def confidence_lines(requirement, kind, seconds, **changes):
    """Return the lines of a verdict that state how likely later operations are to meet the limit."""
    lines = judged(requirement, with_seconds(kind, seconds, **changes)).detail.splitlines()
    return [line.removeprefix(HOW_SURE) for line in lines if line.startswith(HOW_SURE)]


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

    def test_one_slow_operation_fails_whatever_the_mean(self, requirement, kind, limit):
        verdict = judged(requirement, measurement(**{kind: (0.1, 0.1, 1.5 * limit)}))
        assert verdict.outcome == "failed"
        assert verdict.measured == 1.5 * limit
        assert verdict.reason == "over limit"
        assert verdict.margin == pytest.approx(-0.5)

    def test_the_detail_names_the_origin_of_the_limit(self, requirement, kind, limit):
        for seconds in (1.0, 2 * limit):
            verdict = judged(requirement, measurement(**{kind: (seconds,) * 3}))
            assert LIMITS.reason(f"{kind[:-1]}_limit_seconds") in verdict.detail

    def test_the_detail_shows_what_the_operations_imply_about_all_others(self, requirement, kind, limit):
        seconds = [limit * share for share in (0.5, 0.6, 0.7, 0.8, 0.9, 0.55, 0.65, 0.75, 0.85, 0.95)]
        all_met = confidence_lines(requirement, kind, seconds)
        assert all_met[0].startswith(f"10 of 10 {kind} met the limit. With 95 % confidence, at least 74.1 % of")
        assert all_met[1].startswith(f"Estimate: with 95 % confidence, 99 % of {kind} take at most ")
        one_missed = confidence_lines(requirement, kind, [*seconds[:-1], 1.1 * limit])
        assert one_missed[0].startswith(f"9 of 10 {kind} met the limit. With 95 % confidence, at least 60.5 % of")
        assert not confidence_lines(requirement, kind, [1.1 * limit] * 10), (
            "no time met, and no spread: nothing is shown"
        )

    def test_the_share_that_is_shown_appears_in_the_verdict(self, requirement, kind, limit):
        seconds = [0.5 * limit] * 9
        bounds = [judged(requirement, with_seconds(kind, [*seconds, last * limit])).bound for last in (0.5, 1.1)]
        assert [(b.trials, b.met, b.share, b.confidence) for b in bounds] == [
            (10, 10, 0.741, 0.95),
            (10, 9, 0.605, 0.95),
        ]
        assert judged(requirement, with_seconds(kind, [1.1 * limit] * 3)).bound is None

    def test_the_verdict_states_the_confidence_only_if_it_was_requested_and_reached(self, requirement, kind, limit):
        wanted = StatedLimits(assurance=Assurance(confidence=0.95, share=0.95))
        enough, few = (with_seconds(kind, [limit / 2] * count) for count in (59, 58))
        shown = judged(requirement, ByLimits(enough, wanted))
        assert shown.because.endswith(
            f" 95 % confident that 95 % of {kind} take at most {format_seconds(limit)}, if {kind} are independent."
        )
        for lacks in (ByLimits(few, wanted), enough):
            assert "confident" not in judged(requirement, lacks).because
        missed = judged(requirement, ByLimits(with_seconds(kind, [limit / 2] * 58 + [1.1 * limit]), wanted))
        assert (missed.outcome, "confident" in missed.because) == ("failed", False)

    def test_planned_misses_are_allowed_and_counted_and_one_more_fails(self, requirement, kind, limit):
        wanted = StatedLimits(assurance=Assurance(confidence=0.95, share=0.95, misses=1))
        quick, late = [limit / 2] * 91, [1.2 * limit, 3 * limit]
        met = judged(requirement, ByLimits(with_seconds(kind, [*quick, limit, late[1]]), wanted))
        assert (met.outcome, met.measured, met.margin) == ("met", limit, 0), "the slowest that must meet it decides"
        took, allowed = format_seconds(3 * limit), format_seconds(limit)
        assert (
            f"1 of 93 {kind} missed the limit of {allowed}, 1 allowed; slowest: {kind[:-1]} 93, {took}" in met.because
        )
        assert met.because.endswith(
            f" 95 % confident that 95 % of {kind} take at most {allowed} (1 of 93 missed, 1 allowed), if {kind} are "
            "independent."
        )
        assert (met.bound.trials, met.bound.met, met.bound.misses_allowed) == (93, 92, 1)
        assert met.bound.share >= 0.95
        assert f"{HOW_SURE}92 of 93 {kind} met the limit; 1 may miss it. With 95 % confidence" in met.detail
        failed = judged(requirement, ByLimits(with_seconds(kind, quick + late), wanted))
        assert (failed.outcome, failed.reason, failed.measured) == ("failed", "over limit", 1.2 * limit)
        assert f"2 of 93 {kind} exceeded the limit of {allowed}, 1 allowed; slowest: {kind[:-1]} 93" in failed.because
        assert "confident" not in failed.because

    def test_without_a_miss_the_verdict_shows_how_many_were_allowed(self, requirement, kind, limit):
        wanted = StatedLimits(assurance=Assurance(confidence=0.95, share=0.95, misses=1))
        met = judged(requirement, ByLimits(with_seconds(kind, [limit / 2] * 93), wanted))
        assert met.because.startswith(f"Slowest of 93 {kind}: ")
        assert "(0 of 93 missed, 1 allowed)" in met.because

    def test_a_plan_that_is_not_complete_allows_no_miss(self, requirement, kind, limit):
        wanted = StatedLimits(assurance=Assurance(confidence=0.95, share=0.95, misses=1))
        verdict = judged(requirement, ByLimits(with_seconds(kind, [limit / 2] * 91 + [1.1 * limit]), wanted))
        assert (verdict.outcome, verdict.bound.misses_allowed) == ("failed", 0)

    def test_a_time_that_the_client_delayed_counts_as_a_miss_and_never_as_the_storages(self, requirement, kind, limit):
        wanted = StatedLimits(assurance=Assurance(confidence=0.95, share=0.95, misses=1))
        field = "stalled_seconds" if kind == "loads" else "copying_seconds"

        def of(*late):
            """Return the verdict on 93 operations, of which the last ``len(late)`` exceed the limit.

            ``late`` has one value for each late operation: true if the client delayed the operation.
            """
            made = with_seconds(kind, [limit / 2] * (93 - len(late)) + [1.1 * limit] * len(late))
            delayed = {(kind[:-1], 94 - n) for n, is_delayed in enumerate(late, 1) if is_delayed}
            operations = tuple(
                dataclasses.replace(o, **{field: 0.2 * limit}) if (o.kind, o.index) in delayed else o
                for o in made.operations
            )
            return judged(requirement, ByLimits(dataclasses.replace(made, operations=operations), wanted))

        assert (of(True).outcome, of(True).bound.met) == ("met", 92)
        assert (of(True, False).outcome, of(True, False).reason) == ("not run", "client too slow")
        assert of(False, False, True).outcome == "failed"

    def test_the_detail_is_about_the_confidence_and_share_that_were_requested(self, requirement, kind, limit):
        seconds = [limit * (0.3 + 0.01 * n) for n in range(44)]
        wanted = StatedLimits(assurance=Assurance(confidence=0.99, share=0.9))
        lines = judged(requirement, ByLimits(with_seconds(kind, seconds), wanted)).detail.splitlines()
        share, estimate = (line for line in lines if line.startswith(HOW_SURE))
        assert "44 of 44" in share
        assert "With 99 % confidence, at least 90 % of" in share
        assert f"with 99 % confidence, 90 % of {kind} take at most" in estimate

    def test_lower_bounds_and_times_delayed_by_the_client_give_weaker_statements(self, requirement, kind, limit):
        seconds = [limit * share for share in (0.5, 0.6, 0.7, 0.8, 0.9)]
        (share,) = confidence_lines(requirement, kind, seconds, at_least_seconds=0.1)
        assert share.startswith("5 of 5")
        late = [1.1 * limit, 3.0 * limit, *seconds]
        (estimate,) = confidence_lines(requirement, kind, late, stalled_seconds=0.2 * limit)
        assert estimate.startswith("Estimate")

    def test_no_time_is_estimated_from_different_amounts_of_data(self, requirement, kind, limit):
        made = with_seconds(kind, [limit * share for share in (0.5, 0.6, 0.7, 0.8, 0.9)])
        sizes = (FULL, *(FULL // 2,) * 4)
        operations = tuple(
            dataclasses.replace(o, bytes=sizes[o.index - 1], checkpoint=o.index) for o in made.operations
        )
        deltas = dataclasses.replace(made, operations=operations, save_bytes=sizes, load_bytes=sizes)
        lines = judged(requirement, deltas).detail.splitlines()
        assert [line.split()[2] for line in lines if line.startswith(HOW_SURE)] == ["5"]

    @pytest.mark.parametrize("scale", [1 / 1000, 1 / 100, 1 / 2])
    def test_at_reduced_scale_the_bandwidth_is_judged(self, requirement, kind, limit, scale):
        size = int(FULL * scale)
        at_limit = measurement(size=size, **{kind: (limit * scale,) * 3})
        beyond = measurement(size=size, **{kind: (limit * scale * (1 + CLOSE),) * 3})
        assert (outcome(requirement, at_limit), outcome(requirement, beyond)) == ("met", "failed")
        assert judged(requirement, at_limit).limit == pytest.approx(limit * scale)
        assert f"{scale:.4g} of the full size" in judged(requirement, at_limit).detail

    def test_a_narrow_failure_is_reported_with_enough_digits_to_show_it(self, requirement, kind, limit):
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
        failure = failed_in(ref(kind[:-1], 2), how, stack="state D\nin nfs_wait")
        verdict = judged(requirement, measurement(**{kind: (1.0,)}, failure=failure))
        assert verdict.outcome == "failed"
        for word in ("Rank 2 on n1", f"{SUBJECT} {kind[:-1]} 2", "fsync", "a.pt", "ENOSPC", "No space left"):
            assert word in verdict.because
        assert "in nfs_wait" in verdict.detail

    @pytest.mark.parametrize("how", ["launch", "interrupted", "killed"])
    def test_a_failure_that_is_not_the_storage_s_fault_leaves_the_requirement_undecided(
        self, requirement, kind, limit, how
    ):
        of = measurement(**{kind: (1.0,)}, failure=failed_in(ref(kind[:-1], 2), how))
        assert outcome(requirement, of) == "not run"


BEFORE_ALL = {"integrity": None, "durability": None, "cache": None}


@pytest.mark.parametrize("how", ["error", "hung", "too slow"])
def test_a_failure_in_the_saves_fails_save_and_leaves_the_others_undecided(how):
    of = measurement(saves=(1.0,), loads=(), failure=failed_in(ref("save", 2), how), **BEFORE_ALL)
    outcomes = {r: outcome(r, of) for r in ALL}
    assert outcomes.pop("SAVE") == "failed"
    assert outcomes.pop("STRAGGLER") == "met", "the one save that was made can be judged for it"
    assert outcomes == dict.fromkeys(["LOAD", "INTEGRITY", "COLD", "DURABLE-CALLS", "REPEAT"], "not run")
    assert judged("LOAD", of).reason == "run ended"


def test_a_failure_in_the_loads_leaves_save_as_it_was_measured():
    of = measurement(loads=(1.0,), failure=failed_in(ref("load", 2)), cache=None)
    assert (outcome("SAVE", of), outcome("LOAD", of), outcome("DURABLE-CALLS", of)) == ("met", "failed", "met")
    assert (outcome("COLD", of), outcome("INTEGRITY", of), outcome("REPEAT", of)) == ("not run", "not run", "not run")


@pytest.mark.parametrize(("errno", "expected"), [("EIO", "failed"), ("ENOENT", "failed"), ("ECONNREFUSED", "not run")])
def test_acknowledged_bytes_that_are_lost_fail_integrity(errno, expected):
    failure = dataclasses.replace(failed_in(ref("load", 2)), errno=errno, phase="read")
    of = measurement(loads=(1.0,), failure=failure, cache=None, integrity=None)
    assert outcome("INTEGRITY", of) == expected


@pytest.mark.parametrize(
    ("doing", "saves", "decided"),
    [("prepare", (), []), ("drop caches", (1.0,) * 3, ["SAVE", "DURABLE-CALLS", "STRAGGLER"])],
)
def test_a_rank_killed_between_the_operations_is_no_slow_save_or_load(doing, saves, decided):
    counts = measurement().durability if saves else None
    killed = dataclasses.replace(failed_in(ref(stage=doing), "killed"), errno="")
    of = measurement(saves, (), failure=killed, **{**BEFORE_ALL, "durability": counts})
    outcomes = {r: outcome(r, of) for r in ALL}
    assert outcomes == {r: "met" if r in decided else "not run" for r in ALL}


def test_a_launch_that_did_not_start_decides_nothing():
    failure = Failure(kind="launch", message="2 of 8 ranks had not started after 60 s", rank=3)
    of = measurement(saves=(), loads=(), failure=failure, **BEFORE_ALL)
    assert {outcome(r, of) for r in ALL} == {"not run"}
    assert judged("SAVE", of).reason == "run ended"

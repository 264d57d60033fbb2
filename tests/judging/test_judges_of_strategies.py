"""Verdicts on save strategies in which the job continues during a save.

The limits follow from the cluster. The tests also check which facts change a verdict.
"""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_ckpt.facts.measurement import Patterns
from pytest_ckpt.facts.strategies import STRATEGY_OF
from pytest_ckpt.facts.strategy_results import BACKGROUND
from pytest_ckpt.judging.save_costs import SaveCost, save_costs
from pytest_ckpt.sizing.limits import cluster_limits, sufficient_up_to_accelerators
from pytest_ckpt.sizing.reliability import parse_failure_model
from tests.support.synthetic_measurement import FULL, LIMITS, failed_in, judged, measurement, ref
from tests.support.synthetic_patterns import FAULT
from tests.support.synthetic_training import EARLY, LATE, SIX, STEP, crashed, in_background, on_notice

SAVE, INTERVAL = LIMITS.save_limit_seconds, LIMITS.interval_seconds
K = LIMITS.checkpoints_per_failure
THREE = ("BLOCKING", "BACKGROUND", "LOST-WORK")
SECONDS = st.floats(0.001, 1000.0)


def outcomes(found):
    return [judged(requirement, found).outcome for requirement in THREE]


def test_a_save_that_blocks_a_little_and_is_committed_early_meets_all():
    found = in_background()
    assert outcomes(found) == ["met"] * 3
    assert judged("BLOCKING", found).measured == pytest.approx(0.5)
    assert judged("BACKGROUND", found).measured == pytest.approx(20.0)
    assert judged("LOST-WORK", found).measured == pytest.approx(0.5 + 19.5 / K)


@pytest.mark.covers(requirements=("BACKGROUND",))
def test_storage_that_drains_too_slowly_fails_the_background_and_not_the_blocking():
    found = in_background(20.0, 1.01 * INTERVAL, 20.0)
    assert outcomes(found) == ["met", "failed", "failed"]
    assert "1 of 3 saves exceeded the limit" in judged("BACKGROUND", found).because


@pytest.mark.covers(requirements=("LOST-WORK",))
def test_a_save_may_be_committed_in_time_and_risk_too_much():
    # Training loses 5 s at 16,000 accelerators, so the work at risk may be about 456 s.
    assert outcomes(in_background(*[5.0 + 455.0] * 3, blocked=5.0)) == ["met"] * 3
    assert outcomes(in_background(*[5.0 + 457.0] * 3, blocked=5.0)) == ["met", "met", "failed"]


def test_a_copy_that_takes_too_long_is_attributed_to_the_client_and_fails_nothing():
    found = in_background(2 * SAVE, 2 * SAVE, 2 * SAVE, blocked=1.1 * SAVE, copying=1.05 * SAVE)
    assert outcomes(found) == ["met", "met", "met"]
    blocking = judged("BLOCKING", found)
    assert blocking.measured == pytest.approx(0.05 * SAVE)
    assert "the client's memory, not of the storage" in blocking.because


def test_a_save_that_waits_for_more_than_its_copy_fails_blocking():
    found = in_background(2 * SAVE, 2 * SAVE, 2 * SAVE, blocked=1.1 * SAVE, copying=0.05 * SAVE)
    assert outcomes(found) == ["failed", "met", "failed"]
    assert judged("BLOCKING", found).measured == pytest.approx(1.05 * SAVE)


@pytest.mark.parametrize(("copying", "outcome"), [(0.02, "not run"), (0.005, "failed")])
def test_a_save_that_is_late_by_its_copy_alone_is_not_the_storages(copying, outcome):
    found = in_background(*[1.01 * INTERVAL] * 3, blocked=0.03 * INTERVAL, copying=copying * INTERVAL)
    assert judged("BACKGROUND", found).outcome == outcome


@pytest.mark.covers(requirements=("BLOCKING",))
def test_slow_steps_count_as_what_training_loses():
    # 80 steps run during each save.
    late = in_background(beside=STEP + (SAVE + 1) / 80)
    assert outcomes(late) == ["failed", "met", "failed"]
    assert "client's memory" not in judged("BLOCKING", late).because


def test_steps_that_became_faster_give_nothing_back():
    (cost, *_) = save_costs(in_background(beside=0.9 * STEP))
    assert cost.extra_seconds < 0
    assert cost.lost_seconds == 0.5


@pytest.mark.covers(requirements=("SLOWDOWN",))
@pytest.mark.parametrize(
    ("beside", "scatter", "outcome", "reason"),
    [
        (1.01 * STEP, 0.0, "met", "met"),
        (1.20 * STEP, 0.0, "failed", "over limit"),
        (1.05 * STEP, 0.2 * STEP, "not run", "perhaps late"),
    ],
)
def test_steps_during_a_save_are_judged_with_their_scatter(beside, scatter, outcome, reason):
    found = judged("SLOWDOWN", in_background(beside=beside, scatter=scatter))
    assert (found.outcome, found.reason, found.severity) == (outcome, reason, "advisory")


@pytest.mark.parametrize("batches", [0, 1])
def test_too_few_steps_leave_slowdown_not_run(batches):
    found = judged("SLOWDOWN", in_background(batches=batches))
    assert (found.outcome, found.reason) == ("not run", "too few")


def test_a_failure_in_the_background_is_the_backgrounds():
    failure = failed_in(ref("save", 2), lane=BACKGROUND)
    found = in_background(20.0, patterns=None, failure=failure, operations_planned=3)
    assert outcomes(found) == ["not run", "failed", "not run"]


def test_a_failure_during_the_copy_of_the_state_fails_all_requirements():
    found = in_background(20.0, patterns=None, failure=failed_in(ref("save", 2)))
    assert outcomes(found) == ["failed", "failed", "failed"]


def test_without_steps_no_loss_of_training_is_reported():
    found = in_background(patterns=Patterns())
    assert outcomes(found) == ["not run", "met", "not run"]


def test_a_save_that_brought_too_few_bytes_is_none():
    found = in_background()
    short = dataclasses.replace(found.operations[0], bytes=FULL - 1)
    found = dataclasses.replace(found, operations=(short, *found.operations[1:]))
    assert judged("BACKGROUND", found).reason == "missing bytes"


@given(scale=st.floats(0.001, 1.0), committed=st.floats(1.0, 500.0), blocked=st.floats(0.01, 1.0))
def test_a_smaller_run_at_the_same_speed_is_judged_alike(scale, committed, blocked):
    assume(all(abs(x - 1) > 1e-6 for x in (committed / INTERVAL, (blocked + (committed - blocked) / K) / SAVE)))
    small = int(scale * FULL)
    share = small / FULL
    whole = in_background(*[committed] * 3, blocked=blocked)
    part = in_background(*[committed * share] * 3, blocked=blocked * share, size=small)
    assert outcomes(whole) == outcomes(part)


@given(blocked=SECONDS, copied=st.floats(0.0, 1.0), extra=st.floats(-10.0, 100.0), background=SECONDS)
def test_the_cluster_of_a_save_is_the_largest_that_meets_all_three(blocked, copied, extra, background):
    cost = SaveCost(
        index=1,
        blocked_seconds=blocked,
        copying_seconds=copied * blocked,
        extra_seconds=extra,
        seconds=blocked + background,
    )
    accelerators = sufficient_up_to_accelerators("save", cost.as_blocking_seconds(LIMITS), LIMITS)

    def meets(count):
        limits = cluster_limits(count, failures=parse_failure_model("llama3"))
        loses = cost.added_seconds <= limits.save_limit_seconds
        in_time = cost.seconds <= limits.interval_seconds
        return loses and in_time and cost.with_risk_seconds(limits) <= limits.save_limit_seconds

    assert not accelerators or meets(accelerators)
    assert not meets(accelerators + 1)


def test_the_cost_of_a_blocking_save_is_its_duration():
    (cost, *_) = save_costs(measurement(saves=(3.0, 3.0, 3.0)))
    assert (cost.lost_seconds, cost.at_risk_seconds(1.0), cost.as_blocking_seconds(LIMITS)) == (3.0, 0.0, 3.0)


def test_the_storage_may_take_an_interval_for_a_save_in_the_background():
    assert LIMITS.save_seconds(STRATEGY_OF["sync"]) == LIMITS.save_limit_seconds
    assert LIMITS.save_seconds(STRATEGY_OF["async"]) == pytest.approx(LIMITS.interval_seconds)
    hard = cluster_limits(16_000, failures=parse_failure_model("llama3"), save_budget=0.01)
    # With 20 checkpoints per failure and a budget of 1 %, the work at risk may be a fifth of an interval.
    assert hard.save_seconds(STRATEGY_OF["async"]) == pytest.approx(0.2 * hard.interval_seconds)


def test_kills_of_which_enough_come_before_the_commit_decide():
    assert judged("CRASH-ASYNC", crashed()).outcome == "met"
    for kills in ([LATE] * 6, [EARLY, *[LATE] * 10]):
        found = judged("CRASH-ASYNC", crashed(*kills))
        assert (found.outcome, found.reason) == ("not run", "too few")
    assert judged("CRASH-ASYNC", crashed(EARLY, *[LATE] * 9)).outcome == "met"


@pytest.mark.covers(requirements=("CRASH-ASYNC",))
@pytest.mark.parametrize(
    ("kill", "reason"),
    [
        (dataclasses.replace(EARLY, lost="0 of 16 bytes came back"), "missing bytes"),
        (dataclasses.replace(LATE, is_committed=False), "missing bytes"),
        (dataclasses.replace(EARLY, is_committed=True, is_commit_withheld=True), "anomaly"),
    ],
)
def test_a_single_lost_checkpoint_fails(kill, reason):
    found = judged("CRASH-ASYNC", crashed(*SIX[:5], kill))
    assert (found.outcome, found.reason) == ("failed", reason)


def test_wrong_bytes_after_a_kill_fail():
    assert judged("CRASH-ASYNC", crashed(fault_count=1, faults=(FAULT,))).reason == "wrong bytes"
    assert judged("CRASH-ASYNC", crashed(bytes_checked=1)).reason == "missing bytes"


def test_kills_that_were_not_all_made_decide_nothing():
    found = crashed(*SIX[:3], failure=failed_in(ref("save", 2, scenario="mixed")))
    assert judged("CRASH-ASYNC", found).reason == "run ended"
    failed = in_background(patterns=None, failure=failed_in(ref("load", 2, scenario="crashes")))
    assert judged("CRASH-ASYNC", failed).outcome == "failed"


@pytest.mark.covers(requirements=("RETAIN-COMMITTED",))
def test_files_that_retention_damages_are_found():
    assert judged("RETAIN-COMMITTED", crashed()).outcome == "met"
    torn = dataclasses.replace(EARLY, lost="1 of 2 bytes came back")
    found = judged("RETAIN-COMMITTED", crashed(*SIX[:5], torn))
    assert (found.outcome, found.reason) == ("failed", "missing bytes")
    # If nothing was deleted during the save, only CRASH-ASYNC judges it.
    alone = dataclasses.replace(torn, deletes_older=False)
    assert judged("RETAIN-COMMITTED", crashed(*SIX[:5], alone)).outcome == "met"
    assert judged("RETAIN-COMMITTED", crashed(*[LATE] * 6)).reason == "too few"


@pytest.mark.covers(requirements=("PREEMPT",))
def test_a_save_at_notice_must_commit_within_the_notice():
    assert judged("PREEMPT", on_notice(100.0, 119.9)).outcome == "met"
    late = judged("PREEMPT", on_notice(100.0, 120.1))
    assert (late.outcome, late.reason, late.severity) == ("failed", "over limit", "advisory")
    # A tenth of the size gets a tenth of the time.
    assert judged("PREEMPT", on_notice(12.1, size=FULL // 10)).outcome == "failed"
    assert judged("PREEMPT", in_background()).outcome == "not run"

"""Verdicts on saves to a local tier that drains (copies) its files to the target: drain times and restore times."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_ckpt.facts.strategy_results import BACKGROUND, LOCAL_TIER, DrainRule
from tests.support.synthetic_measurement import LIMITS, failed_in, judged, ref
from tests.support.synthetic_patterns import FAULT
from tests.support.synthetic_training import host_lost, restored, tiered, two_tiers

INTERVAL, SAVE = LIMITS.interval_seconds, LIMITS.save_limit_seconds
BLOCKED = 0.5


def drained_in(seconds, **changes):
    return tiered(*[BLOCKED + seconds] * 3, **changes)


@pytest.mark.covers(requirements=("DRAIN",))
def test_the_limit_is_what_the_work_at_risk_leaves():
    # The limit is k / p x (b I - lost) - (n - 1) I / 2, with b I = 0.05 I.
    limit = 20 / 0.1 * (SAVE - BLOCKED) - 4.5 * INTERVAL
    assert judged("DRAIN", drained_in(0.999 * limit)).outcome == "met"
    assert judged("DRAIN", drained_in(0.999 * limit)).limit == pytest.approx(limit)
    late = judged("DRAIN", drained_in(1.001 * limit))
    assert (late.outcome, late.reason) == ("failed", "over limit")


def test_a_drain_ends_before_the_next_begins_however_little_is_at_risk():
    rule = DrainRule(every=2, target_share=0.01)
    assert judged("DRAIN", drained_in(1.99 * INTERVAL, rule=rule)).outcome == "met"
    assert judged("DRAIN", drained_in(2.01 * INTERVAL, rule=rule)).reason == "over limit"


def test_saves_that_take_what_drains_need_leave_no_time_for_one():
    verdict = judged("DRAIN", tiered(blocked=0.6 * SAVE))
    assert (verdict.outcome, verdict.reason, verdict.limit) == ("failed", "over limit", 0.0)
    assert judged("BLOCKING", tiered(blocked=0.6 * SAVE)).outcome == "met"


def test_saves_during_drains_may_be_slower_by_a_tenth_or_by_their_scatter_within_the_limit():
    assert judged("DRAIN", tiered(found=two_tiers(beside=(1.2, 1.2, 1.05)))).outcome == "met"
    alone = (0.95 * SAVE,) * 3
    slow = judged("DRAIN", tiered(found=two_tiers(alone=alone, beside=(1.05 * SAVE,) * 3)))
    assert (slow.outcome, slow.unit) == ("failed", "during drains / without")
    # A save that meets the save limit takes no more from training than it may.
    assert judged("DRAIN", tiered(found=two_tiers(beside=(1.25, 1.25, 1.25)))).outcome == "met"


def test_a_failure_in_the_local_tier_is_not_attributed_to_the_target():
    of_target = tiered(operations=(), patterns=None, failure=failed_in(ref("save", 2), lane=BACKGROUND))
    of_tier = tiered(operations=(), patterns=None, failure=failed_in(ref("save", 2), lane=LOCAL_TIER))
    assert [judged(name, of_target).outcome for name in ("DRAIN", "BLOCKING")] == ["failed", "not run"]
    assert [judged(name, of_tier).outcome for name in ("DRAIN", "BLOCKING")] == ["not run", "failed"]


@pytest.mark.covers(requirements=("TIER-ORDER",))
def test_loading_a_checkpoint_other_than_the_newest_complete_one_fails():
    assert judged("TIER-ORDER", tiered()).outcome == "met"
    for found in (
        two_tiers(complete=restored("local", 169, tier="target", number=168)),
        two_tiers(incomplete=restored("target", 168, tier="local", number=169)),
        two_tiers(incomplete=restored("target", 168, tier="", number=0)),
    ):
        verdict = judged("TIER-ORDER", tiered(found=found))
        assert (verdict.outcome, verdict.reason) == ("failed", "missing bytes")


def test_wrong_and_missing_bytes_of_either_restore_fail():
    for tier, number, place in (("local", 169, "complete"), ("target", 168, "incomplete")):
        wrong = two_tiers(**{place: restored(tier, number, fault_count=1, faults=(FAULT,))})
        assert judged("TIER-ORDER", tiered(found=wrong)).reason == "wrong bytes"
        short = two_tiers(**{place: restored(tier, number, checked=1)})
        assert judged("TIER-ORDER", tiered(found=short)).reason == "missing bytes"


def test_at_a_tenth_of_the_size_a_drain_has_a_tenth_of_the_time():
    limit = judged("DRAIN", tiered()).limit
    made = tiered()
    small = dataclasses.replace(made, bytes=made.bytes // 10)
    # The small saves took as long, so at full size they would take ten times that from training.
    assert judged("DRAIN", small).limit == pytest.approx((limit - 20 / 0.1 * 9 * BLOCKED) / 10, rel=1e-3)


@pytest.mark.covers(requirements=("NODE-LOSS",))
def test_no_host_is_lost_where_there_is_one():
    assert judged("NODE-LOSS", tiered()).reason == "not possible"
    assert judged("NODE-LOSS", tiered(patterns=None, failure=failed_in(ref("save", 2)))).reason == "run ended"


def test_copies_load_completely_within_the_limit_or_the_loss_of_a_host_fails():
    def outcome(**changes):
        verdict = judged("NODE-LOSS", tiered(found=two_tiers(node_loss=host_lost(**changes))))
        return verdict.outcome, verdict.reason

    load = LIMITS.load_limit_seconds
    assert outcome(seconds=0.999 * load)[0] == "met"
    assert outcome(seconds=1.001 * load) == ("failed", "over limit")
    assert outcome(missing=2) == ("failed", "missing bytes")
    assert outcome(checked=1) == ("failed", "missing bytes")
    assert outcome(fault_count=1, faults=(FAULT,)) == ("failed", "wrong bytes")

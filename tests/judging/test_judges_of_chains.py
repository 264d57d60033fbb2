"""Verdicts on incremental saves: loads of a full save with its deltas, and files that remain after deletions."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_ckpt.facts.measurement import Patterns
from tests.support.synthetic_measurement import LIMITS, failed_in, judged, measurement, ref
from tests.support.synthetic_patterns import FAULT
from tests.support.synthetic_training import DELTA, INCREMENTAL, RESTORES, chained, outlived

LOAD = LIMITS.load_limit_seconds
ENDED = failed_in(ref("save", 2))


def chain_measurement(**changes):
    return chained(patterns=Patterns(chains=outlived(**changes)))


@pytest.mark.covers(requirements=("CHAIN",))
def test_the_longest_chain_counts_whatever_others_took():
    assert judged("CHAIN", chained()).outcome == "met"
    assert judged("CHAIN", chained()).measured == pytest.approx(12.0)
    slow = judged("CHAIN", chained(10.0, 11.0, 1.01 * LOAD))
    assert (slow.outcome, slow.reason) == ("failed", "over limit")
    # If a load of a shorter chain is late, LOAD fails instead.
    assert judged("CHAIN", chained(1.01 * LOAD, 11.0, 12.0)).outcome == "met"
    assert judged("LOAD", chained(1.01 * LOAD, 11.0, 12.0)).outcome == "failed"


def test_a_save_or_restore_that_moved_too_little_is_none():
    found = chained()
    for index, requirement in ((1, "SAVE"), (5, "LOAD"), (5, "CHAIN")):
        operations = list(found.operations)
        operations[index] = dataclasses.replace(operations[index], bytes=operations[index].bytes - 1)
        changed = dataclasses.replace(found, operations=tuple(operations))
        verdict = judged(requirement, changed)
        assert (verdict.outcome, verdict.reason) == ("failed", "missing bytes"), requirement


def test_a_delta_that_was_deleted_and_is_still_served_fails_the_chain():
    verdict = judged("CHAIN", chain_measurement(misses=False))
    assert (verdict.outcome, verdict.reason) == ("failed", "missing bytes")


def test_a_restore_that_failed_or_never_came_decides_the_chain():
    failed = chained(10.0, patterns=None, failure=failed_in(ref("load", 2)))
    assert judged("CHAIN", failed).outcome == "failed"
    ended = measurement(failure=ENDED, loads=(), subject=INCREMENTAL)
    assert judged("CHAIN", ended).reason == "run ended"
    assert judged("CHAIN", chained(patterns=None)).outcome == "not run"


@pytest.mark.covers(requirements=("RETAIN-CHAIN",))
def test_damage_by_a_deletion_is_found():
    assert judged("RETAIN-CHAIN", chained()).outcome == "met"
    assert judged("RETAIN-CHAIN", chain_measurement(fault_count=1, faults=(FAULT,))).reason == "wrong bytes"
    assert judged("RETAIN-CHAIN", chain_measurement(checked=RESTORES[2] - DELTA)).reason == "missing bytes"


def test_space_must_be_freed_if_the_target_reports_space():
    assert judged("RETAIN-CHAIN", chain_measurement(freed=0.6)).outcome == "met"
    assert judged("RETAIN-CHAIN", chain_measurement(freed=0.4)).reason == "over limit"
    assert judged("RETAIN-CHAIN", chain_measurement(freed=-1.0)).outcome == "failed"
    assert judged("RETAIN-CHAIN", chain_measurement(freed=None)).outcome == "met"
    # Other clients may have written as much during this time.
    assert judged("RETAIN-CHAIN", chain_measurement(freed=0.0, deleted_bytes=900_000_000)).outcome == "met"


def test_an_error_while_the_chain_is_loaded_is_the_chain_s():
    failure = failed_in(ref("load", 131, scenario="chains"))
    assert judged("RETAIN-CHAIN", chained(patterns=None, failure=failure)).outcome == "failed"
    assert judged("RETAIN-CHAIN", chained(patterns=None, failure=ENDED)).reason == "run ended"

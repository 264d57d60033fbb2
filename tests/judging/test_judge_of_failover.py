"""Verdicts of FAILOVER (a component of the storage fails during saves and loads) on constructed measurements."""

from __future__ import annotations

import pytest

from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.commands import CommandRun
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from tests.support.synthetic_measurement import LIMITS, failed_in, judged, measurement, ref
from tests.support.synthetic_patterns import FAULT, REFUSED, attempt, failed_over, trial

pytestmark = pytest.mark.covers(requirements=("FAILOVER",))
LIMIT = 1.5 * LIMITS.save_limit_seconds


def outcome(of):
    verdict = judged("FAILOVER", of)
    return verdict.outcome, verdict.reason


def test_failover_is_requested_only_with_its_commands():
    assert not REQUIREMENTS["FAILOVER"].is_requested(resolve({}, {}))
    assert REQUIREMENTS["FAILOVER"].is_requested(resolve({"ckpt_fault_command": "a", "ckpt_repair_command": "b"}, {}))


def test_failover_is_met_if_all_went_well():
    verdict = judged("FAILOVER", failed_over())
    assert (verdict.outcome, verdict.measured, verdict.limit) == ("met", 0.25, 60.0)


@pytest.mark.parametrize(("quiet", "is_met"), [(60.24, True), (60.26, False)])
def test_a_stall_counts_from_what_is_usual(quiet, is_met):
    found = outcome(failed_over(trial(operations=(attempt("save", quiet=quiet),))))
    assert found == (("met", "met") if is_met else ("failed", "over limit"))


def test_the_stall_of_a_load_is_not_compared_with_that_of_a_save():
    undisturbed = (attempt("save", quiet=50.0), attempt("load", quiet=0.0))
    slow_load = trial("load", operations=(attempt("load", quiet=61.0),))
    assert outcome(failed_over(slow_load, undisturbed=undisturbed)) == ("failed", "over limit")


@pytest.mark.parametrize(("seconds", "is_met"), [(LIMIT * 0.99, True), (LIMIT * 1.01, False)])
def test_the_save_while_the_storage_rebuilds_has_a_limit(seconds, is_met):
    found = outcome(failed_over(trial(after=attempt("save", seconds=seconds))))
    assert found == (("met", "met") if is_met else ("failed", "over limit"))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # An error alone is not a failure, because the job saves again.
        ({"operations": (attempt("save", error="rank 1 on n1: EIO"),)}, ("met", "met")),
        (
            {"operations": (attempt("save", error="EIO"),), "committed_in_error": True},
            ("failed", "missing bytes"),
        ),
        # If only the answer to a commit was lost, the checkpoint counts as committed.
        ({"operations": (attempt("save", error="EIO"),), "commit_answer_lost": True}, ("met", "met")),
        (
            {
                "operations": (attempt("save", error="EIO"),),
                "commit_answer_lost": True,
                "lost": "rank 1 on n1: ENOENT",
            },
            ("failed", "missing bytes"),
        ),
        ({"lost": "rank 1 on n1: ENOENT"}, ("failed", "missing bytes")),
        ({"after": attempt("save", error="rank 1 on n1: EIO")}, ("failed", "error")),
    ],
)
def test_an_error_must_be_clean(changes, expected):
    assert outcome(failed_over(trial(**changes))) == expected


def test_wrong_and_missing_bytes_fail_it():
    assert outcome(failed_over(fault_count=1, faults=(FAULT,))) == ("failed", "wrong bytes")
    assert outcome(failed_over(bytes_checked=1)) == ("failed", "missing bytes")


def test_wrong_bytes_fail_it_also_where_a_command_failed_or_a_rank_hung():
    hung = failed_in(ref("save", 2, scenario="failover"), "hung")
    assert outcome(failed_over(fault_count=1, faults=(FAULT,), failure=hung)) == ("failed", "wrong bytes")
    assert outcome(failed_over(fault_count=1, faults=(FAULT,), not_run="It failed.")) == ("failed", "wrong bytes")


@pytest.mark.parametrize(("how", "reason"), [("error", "error"), ("hung", "hung"), ("too slow", "over limit")])
def test_a_rank_that_ends_in_it_fails_it_and_nothing_else(how, reason):
    ended = failed_over(trials=(), failure=failed_in(ref("save", 2, scenario="failover"), how))
    assert outcome(ended) == ("failed", reason)
    assert judged("SAVE", ended).outcome == "met"


def test_failover_that_ended_for_another_reason_is_not_run():
    # Storage does not kill processes, even during a fault or an upgrade.
    killed = failed_over(trials=(), failure=failed_in(ref("save", 2, scenario="failover"), "killed"))
    assert outcome(killed) == ("not run", "killed")
    assert outcome(failed_over(trials=(), failure=failed_in(kind="launch"))) == ("not run", "run ended")
    assert outcome(failed_over(trials=(), failure=failed_in(kind="interrupted"))) == ("not run", "run ended")
    assert outcome(measurement(failure=failed_in(ref("save", 2)))) == ("not run", "run ended")
    assert outcome(measurement()) == ("not run", "not measured")


def test_a_command_that_failed_decides_nothing():
    assert outcome(failed_over(trials=(trial(fault=REFUSED),), not_run=REFUSED.sentence)) == (
        "not run",
        "command failed",
    )


def test_a_repair_command_that_failed_after_the_ranks_is_reported():
    left = CommandRun(command="repair", seconds=1.0, exit_code=None, output="it was killed")
    hung = failed_in(ref("save", 2, scenario="failover"), "hung")
    assert "repair it by hand" in judged("FAILOVER", failed_over(failure=hung, repaired_after=left)).detail


@pytest.mark.parametrize(
    ("resident", "declared", "expected"),
    [
        (0.5, False, ("not run", "cached")),
        (None, False, ("not run", "unproven")),
        (None, True, ("met", "met")),
        (0.01, False, ("met", "met")),
    ],
)
def test_bytes_of_a_cache_prove_nothing(resident, declared, expected):
    assert outcome(failed_over(resident_fraction=resident, is_declared_cold=declared)) == expected


def test_too_few_breaks_decide_nothing():
    assert outcome(failed_over(trials=(trial(),) * 5)) == ("not run", "not measured")

"""Verdicts on saves that write at a given pace during other work: met, failed, not run, and values at the limit."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ckpt.config.gate_files import settle
from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.measurement import Patterns
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.judging.verdicts import decide, severity_of
from pytest_ckpt.sizing.limits import cluster_limits
from pytest_ckpt.sizing.reliability import parse_failure_model
from tests.support.synthetic_measurement import FULL, GATES, LIMITS, failed_in, judged, measurement, ref
from tests.support.synthetic_patterns import PACE, paced, with_neighbour, with_reads

pytestmark = pytest.mark.covers(requirements=("NEIGHBOUR", "MIXED"))

SAVE_LIMIT = LIMITS.save_limit_seconds


def limits_of_cluster(accelerators):
    return cluster_limits(accelerators, failures=parse_failure_model("llama3"))


@pytest.mark.parametrize(("requirement", "name", "of"), [
    ("NEIGHBOUR", "neighbour", with_neighbour()), ("MIXED", "mixed", with_reads())
])  # fmt: skip
class TestBoth:
    def test_the_requirement_is_met_and_has_a_description(self, requirement, name, of):
        verdict = judged(requirement, of)
        assert verdict.outcome == "met"
        assert verdict.because.endswith(".")
        assert verdict.detail
        assert len(REQUIREMENTS[requirement].text) > 200

    def test_a_save_that_other_work_delays_beyond_its_limit_fails(self, requirement, name, of):
        late = dataclasses.replace(
            of.patterns.result_of(name), save_seconds=(1.0, math.nextafter(SAVE_LIMIT, 100), 1.0)
        )
        verdict = judged(requirement, dataclasses.replace(of, patterns=Patterns(**{name: late})))
        assert (verdict.outcome, verdict.unit) == ("failed", "s")
        in_time = dataclasses.replace(late, save_seconds=(1.0, SAVE_LIMIT, 1.0))
        assert judged(requirement, dataclasses.replace(of, patterns=Patterns(**{name: in_time}))).outcome == "met"

    def test_a_larger_cluster_needs_a_faster_pace(self, requirement, name, of):
        larger = limits_of_cluster(16_001)
        verdict = decide(REQUIREMENTS[requirement], of, larger, GATES)
        assert (verdict.outcome, verdict.reason) == ("not run", "not measured")
        assert "paced for 16,000 accelerators" in verdict.because
        assert decide(REQUIREMENTS[requirement], of, limits_of_cluster(8_000), GATES).outcome == "met"

    def test_saves_of_an_earlier_version_had_no_pace_and_are_not_judged(self, requirement, name, of):
        without = dataclasses.replace(of.patterns.result_of(name), pace=None)
        verdict = judged(requirement, dataclasses.replace(of, patterns=Patterns(**{name: without})))
        assert (verdict.outcome, verdict.reason) == ("not run", "not measured")

    @pytest.mark.parametrize("share", [0.5, 0.01])
    def test_a_smaller_checkpoint_has_its_share_of_the_limit_and_the_time_of_fixed_costs(
        self, requirement, name, of, share
    ):
        limit = SAVE_LIMIT * share + min(1.0, 0.2 * SAVE_LIMIT * (1 - share))
        small = dataclasses.replace(of.patterns.result_of(name), pace=paced(share), save_seconds=(limit * 0.999,))
        if name == "neighbour":
            small = dataclasses.replace(small, neighbour_save_seconds=(0.1,))
        assert judged(requirement, dataclasses.replace(of, patterns=Patterns(**{name: small}))).outcome == "met"
        late = dataclasses.replace(small, save_seconds=(limit * 1.001,))
        assert judged(requirement, dataclasses.replace(of, patterns=Patterns(**{name: late}))).outcome == "failed"

    def test_unmeasured_requirements_are_not_run(self, requirement, name, of):
        assert judged(requirement, measurement()).outcome == "not run"
        assert judged(requirement, measurement(patterns=Patterns())).outcome == "not run"

    def test_patterns_that_are_impossible_with_these_ranks_are_not_run(self, requirement, name, of):
        verdict = judged(requirement, measurement(patterns=Patterns(not_run={name: "Two are needed."})))
        assert (verdict.outcome, verdict.reason) == ("not run", "not possible")

    def test_an_error_of_the_storage_in_it_fails_it_and_no_save(self, requirement, name, of):
        failed = measurement(failure=failed_in(ref("save", 2, scenario=name)))
        assert judged(requirement, failed).outcome == "failed"
        assert judged("SAVE", failed).outcome == "met"
        elsewhere = measurement(failure=failed_in(ref("load", 2, scenario="storm")))
        assert judged(requirement, elsewhere).outcome == "not run"


@pytest.mark.parametrize(("requirement", "kind", "severity"), [
    ("NEIGHBOUR", "posix-shared", "required"), ("NEIGHBOUR", "object", "advisory"),
    ("NEIGHBOUR", "serving", "required"),
    ("NEIGHBOUR", "posix-local", "advisory"), ("NEIGHBOUR", "gateway", "advisory"),
    ("MIXED", "posix-shared", "advisory"), ("MIXED", "object", "advisory"),
])  # fmt: skip
def test_a_limit_that_follows_from_the_cluster_is_required_and_a_default_of_this_program_is_not(
    requirement, kind, severity
):
    _, gates = settle(resolve({}, {}), kind)
    assert severity_of(REQUIREMENTS[requirement], "llama3-8b-full", gates) == severity


def test_the_second_job_counts_as_the_first():
    late = math.nextafter(SAVE_LIMIT, 100)
    verdict = judged("NEIGHBOUR", with_neighbour(neighbour_save_seconds=(1.0, late)))
    assert (verdict.outcome, verdict.measured, verdict.limit) == ("failed", late, SAVE_LIMIT)
    assert "by the second job" in verdict.because


def test_without_another_job_nothing_is_shown():
    verdict = judged("NEIGHBOUR", with_neighbour(concurrent_bytes=0))
    assert (verdict.outcome, verdict.reason) == ("not run", "too few")


def test_an_empty_queue_fails_and_the_percentile_of_reads_does_not():
    assert judged("MIXED", with_reads(contended_p99_seconds=(30.0,) * 3)).outcome == "met"
    verdict = judged("MIXED", with_reads(empty_queue_seconds=(0.0, 0.001, 0.0)))
    assert (verdict.outcome, verdict.measured, verdict.limit) == ("failed", 0.001, 0.0)


def test_a_client_that_cannot_read_so_fast_is_no_failure_of_the_storage():
    busy = with_reads(empty_queue_seconds=(0.0, 0.5, 0.0), client_busy=0.8)
    assert (judged("MIXED", busy).outcome, judged("MIXED", busy).reason) == ("not run", "client too slow")
    assert judged("MIXED", with_reads(client_busy=1.0)).outcome == "met"


def test_without_a_read_during_saves_nothing_is_shown():
    verdict = judged("MIXED", with_reads(contended_reads=(300, 0, 300)))
    assert (verdict.outcome, verdict.reason) == ("not run", "too few")


# --- clients of a fair array -----------------------------------------------------------------------------------------

_STEP = SAVE_LIMIT / 4000


def seconds_of_two_jobs(ranks, client_rate, array_rate):
    """Simulate two jobs that save at the same time; return the seconds of one save of the first job.

    Each job has half of the ranks. A rank writes its share of ``FULL`` bytes on a schedule, at most at ``client_rate``
    bytes per second. The array serves ``array_rate`` bytes per second in total. It shares this rate evenly among the
    ranks that have bytes to write.
    """
    size, pace = FULL / ranks, FULL / ranks / PACE.seconds
    written, began = [0.0] * ranks, [0.0] * ranks
    now = 0.0
    while min(written[: ranks // 2]) < size and now < 4 * SAVE_LIMIT:
        now += _STEP
        for rank in range(ranks // 2, ranks):
            if written[rank] >= size:
                written[rank], began[rank] = 0.0, now
        due = [min(size, (now - begin) * pace) - done for begin, done in zip(began, written, strict=True)]
        wanted = {rank: min(missing, client_rate * _STEP) for rank, missing in enumerate(due) if missing > 0}
        left = array_rate * _STEP
        for index, rank in enumerate(sorted(wanted, key=wanted.__getitem__)):
            given = min(wanted[rank], left / (len(wanted) - index))
            written[rank] += given
            left -= given
    return now


@given(
    array=st.floats(0.3, 4.0).filter(lambda rate: abs(rate - 1) > 0.02),
    ranks=st.sampled_from([2, 4, 8]),
    speed=st.floats(1.3, 10.0),
)
@settings(deadline=None, max_examples=20)
def test_more_or_faster_clients_of_a_fair_array_change_no_verdict(array, ranks, speed):
    """More or faster clients do not change the verdict of NEIGHBOUR (saves while another job saves)."""
    needed = FULL / SAVE_LIMIT

    def outcome(count, rate):
        took = seconds_of_two_jobs(count, rate, array * needed)
        return judged("NEIGHBOUR", with_neighbour(save_seconds=(took,), neighbour_save_seconds=(took,))).outcome

    client = speed * needed / ranks
    clients = [(ranks, client), (2 * ranks, client), (ranks, 2 * client)]
    assert {outcome(*each) for each in clients} == {"met" if array > 1 else "failed"}

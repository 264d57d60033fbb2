"""Verdicts of SCALING: growth of the throughput with the number of clients, and the maximum that the vendor states."""

from __future__ import annotations

import dataclasses

import pytest

from pytest_ckpt.facts.measurement import Patterns
from pytest_ckpt.facts.proofs import CacheFacts, CanaryReads
from tests.support.synthetic_measurement import judged, outcome
from tests.support.synthetic_patterns import FAULT, LINEAR, SATURATED, scaled, up_to


@pytest.mark.covers(requirements=("SCALING",))
def test_twice_the_clients_must_get_nearly_twice_as_much() -> None:
    verdict = judged("SCALING", scaled())
    assert (verdict.outcome, verdict.measured, verdict.limit, verdict.severity) == ("met", 0.0, 0.1, "advisory")
    assert outcome("SCALING", scaled({1: 1e9, 2: 1.81e9})) == "met"
    assert outcome("SCALING", scaled({1: 1e9, 2: 1.79e9})) == "failed"


@pytest.mark.parametrize("kind", ["save", "load"])
def test_the_worst_step_of_saves_and_of_loads_counts(kind) -> None:
    rates = (SATURATED, LINEAR) if kind == "save" else (LINEAR, SATURATED)
    verdict = judged("SCALING", scaled(*rates))
    assert verdict.outcome == "failed"
    assert verdict.measured == pytest.approx(1 - 3.1 / 3 / 2)
    assert f"From 4 to 8 ranks {kind}s grew 1.03 x, to 3.1 GB/s (at least 1.8 x)" in verdict.because


def test_fewer_than_twice_the_clients_must_get_as_much_less() -> None:
    # From 4 to 6 clients, the rate must grow by 1.8 to the power of log2(1.5), which is 1.41.
    assert outcome("SCALING", scaled({1: 1e9, 2: 2e9, 4: 4e9, 6: 5.66e9}, {1: 1e9, 2: 2e9, 4: 4e9, 6: 6e9})) == "met"
    assert outcome("SCALING", scaled({1: 1e9, 2: 2e9, 4: 4e9, 6: 5.6e9}, {1: 1e9, 2: 2e9, 4: 4e9, 6: 6e9})) == "failed"


def test_at_the_given_ceiling_no_more_ranks_are_requested() -> None:
    assert outcome("SCALING", up_to(scaled(SATURATED, SATURATED), 3e9, 3e9)) == "met"
    # If the stated maximum is 4 GB/s, the measured rate is too low.
    verdict = judged("SCALING", up_to(scaled(SATURATED, SATURATED), 4e9, 4e9))
    assert verdict.outcome == "failed"
    assert "up to the ceiling of 4 GB/s" in verdict.because
    # The maximum of loads does not apply to saves.
    assert outcome("SCALING", up_to(scaled(SATURATED, SATURATED), 0.0, 3e9)) == "failed"


def test_clients_that_get_less_together_have_lost_more_than_half() -> None:
    verdict = judged("SCALING", scaled({1: 2e9, 2: 1e9}, {1: 1e9, 2: 2e9}))
    assert (verdict.outcome, verdict.measured) == ("failed", 0.75)


@pytest.mark.parametrize(
    ("found", "decided", "reason"),
    [
        (scaled(resident=10**9), "not run", "cached"),
        (scaled(resident=None), "not run", "unproven"),
        (scaled(faults=(FAULT,)), "failed", "wrong bytes"),
        (scaled(checked=1), "failed", "missing bytes"),
        (scaled(patterns=Patterns(not_run={"scaling": "One client."})), "not run", "not possible"),
        (scaled(patterns=None), "not run", "not measured"),
    ],
)
def test_a_failure_without_evidence_about_the_storage_gives_no_value(found, decided, reason) -> None:
    verdict = judged("SCALING", found)
    assert (verdict.outcome, verdict.reason) == (decided, reason)


def test_timed_reads_prove_the_drop_if_the_kernel_counts_no_pages() -> None:
    saturated = {"saves": SATURATED, "loads": SATURATED, "resident": None}
    reads = {"first_read": 0.5, "reread": 0.1, "dropped_read": 0.5, "dropped_reread": 0.1}
    timed = CanaryReads(host="n1", bytes=64 << 20, **{f"{name}_seconds": (s,) * 10 for name, s in reads.items()})
    none = CanaryReads(host="n2", bytes=64 << 20, not_read_reason="the checkpoints are small")
    unknown = CacheFacts(required=True, readings=(), policy="auto", method="command", probe="", resident_fraction=None,
                         canaries=(none,))  # fmt: skip
    proven = dataclasses.replace(unknown, canaries=(timed,))
    assert judged("SCALING", scaled(**saturated, cache=proven)).reason == "over limit"
    assert outcome("SCALING", scaled(resident=None, cache=proven)) == "met"
    # If one host lacks the proof, nothing is proven.
    for canaries in ((), unknown.canaries, (*proven.canaries, *unknown.canaries)):
        cache = dataclasses.replace(unknown, canaries=canaries)
        assert judged("SCALING", scaled(**saturated, cache=cache)).reason == "unproven"
    # Timed reads cannot outweigh cached pages that the kernel counted.
    counted = dataclasses.replace(proven, probe="cachestat")
    assert judged("SCALING", scaled(resident=10**9, cache=counted)).reason == "cached"
    assert judged("SCALING", scaled(**saturated, cache=counted)).reason == "unproven"

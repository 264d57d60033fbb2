"""Verdicts on runs during which other programs used a host.

Limits in seconds decide as usual. Ratios of times do not decide.
"""

from __future__ import annotations

import dataclasses

import pytest

from pytest_ckpt.facts.commands import PAIRS
from pytest_ckpt.facts.host_load import MAXIMUM_OTHERS, MAXIMUM_STEAL, MINIMUM_IDLE
from pytest_ckpt.facts.measurement import Patterns, with_patterns_of
from pytest_ckpt.grading.catalogue import REQUIREMENTS
from pytest_ckpt.judging.host_load import BOUNDS, spans_of
from tests.support.synthetic_measurement import BUSY_HOST, IDLE_HOST, judged, measurement, on_busy_host, operation
from tests.support.synthetic_patterns import (
    FAULT,
    attempt,
    failed_over,
    pattern,
    snapshot,
    snapshotted,
    upgraded,
    with_data,
    with_patterns,
)

UNEVEN = measurement(operations=[operation("save", 1, 4.0, ranks=[1.0, 1.0, 4.0, 1.0])])


@pytest.mark.parametrize(
    ("idle", "others", "steal", "is_busy"),
    [
        (0.5, 0.4, 0.0, False),
        (MINIMUM_IDLE, 0.9, 0.0, False),
        (0.0, MAXIMUM_OTHERS, 0.0, True),
        (0.0, MAXIMUM_OTHERS - 0.01, 0.0, False),
        (0.0, MAXIMUM_OTHERS - 0.01, 0.02, True),
        (0.9, 0.0, MAXIMUM_STEAL, True),
        (0.9, 0.0, MAXIMUM_STEAL - 0.01, False),
    ],
)
def test_a_host_is_busy_from_the_bounds_on(idle: float, others: float, steal: float, is_busy: bool) -> None:
    load = dataclasses.replace(IDLE_HOST, idle_share=idle, others_share=others, steal_share=steal, load_average=99.0)
    assert load.is_busy == is_busy
    verdict = judged("STRAGGLER", dataclasses.replace(UNEVEN, host_loads=(load,)))
    assert (verdict.outcome, verdict.reason) == (("not run", "host busy") if is_busy else ("failed", "over limit"))


def test_a_ratio_names_the_load_and_what_was_measured() -> None:
    verdict = judged("STRAGGLER", on_busy_host(UNEVEN))
    assert verdict.because == (
        "The host was busy (n1 during save 2, 4 s: other processes used 60 % of 8 processors, other virtual machines "
        "0 %, 2 % was idle; load average 14.0): a ratio of times does not decide. "
        + judged("STRAGGLER", UNEVEN).because
    )
    assert BOUNDS in verdict.detail


def test_the_busiest_host_is_named() -> None:
    busier = dataclasses.replace(BUSY_HOST, host="n2", others_share=0.9)
    verdict = judged("STRAGGLER", dataclasses.replace(UNEVEN, host_loads=(BUSY_HOST, busier)))
    assert "(n2 during save 2" in verdict.because


@pytest.mark.parametrize("requirement", ["SAVE", "LOAD", "INTEGRITY", "COLD", "DURABLE-CALLS"])
def test_absolute_requirements_have_the_same_verdict_on_a_busy_host(requirement: str) -> None:
    for of in (measurement(), measurement(saves=(1.0, 2.0, 900.0), loads=(1.0, 2.0, 900.0), resident=0.5)):
        quiet, busy = judged(requirement, of), judged(requirement, on_busy_host(of))
        assert (busy.outcome, busy.because, busy.measured) == (quiet.outcome, quiet.because, quiet.measured)
        assert "busy host: n1 during save 2, 4 s: other processes used 60 %" in busy.detail


def test_only_load_in_its_own_span_counts() -> None:
    uneven = with_patterns(storm=pattern(3.0, ranks=[1.0, 1.0, 1.0, 3.0]))
    assert judged("STORM", on_busy_host(uneven, "storm")).reason == "host busy"
    assert judged("STORM", on_busy_host(uneven, "shifted")).reason == "uneven"
    assert judged("DATA", on_busy_host(with_data(), "operations")).outcome == "met"


def test_a_pass_stays_if_other_work_can_only_add_to_the_figure() -> None:
    assert judged("REPEAT", on_busy_host(measurement())).outcome == "met"
    assert judged("REPEAT", on_busy_host(measurement(saves=(1.0, 2.0, 1.0)))).reason == "host busy"
    assert judged("STRAGGLER", on_busy_host(measurement())).reason == "host busy"


def test_wrong_bytes_fail_on_any_host() -> None:
    assert judged("DATA", on_busy_host(with_data(fault_count=1), "data")).reason == "wrong bytes"


def test_every_unit_of_a_ratio_is_a_unit_of_its_requirement() -> None:
    for requirement in REQUIREMENTS.values():
        assert set(requirement.ratios) <= set(requirement.units), requirement.id
        assert not requirement.hidden_by_load or requirement.ratios, requirement.id
    assert spans_of(REQUIREMENTS["STORM"]) == ("storm",)
    assert spans_of(REQUIREMENTS["DRAIN"]) == ("operations", "tiers")
    assert spans_of(REQUIREMENTS["SAVE"]) == ("operations",)


def test_an_added_pattern_brings_the_load_of_its_own_span() -> None:
    added = dataclasses.replace(
        with_patterns(storm=pattern(1.0)),
        host_loads=(dataclasses.replace(BUSY_HOST, span="storm"), dataclasses.replace(BUSY_HOST, span="operations")),
    )
    own = dataclasses.replace(measurement(patterns=Patterns()), host_loads=(IDLE_HOST,))
    joined = with_patterns_of(own, added)
    assert [(load.span, load.is_busy) for load in joined.host_loads] == [("operations", False), ("storm", True)]


def loaded_in(of, name):
    """Return the measurement ``of``, changed so that other programs use a host during the scenario ``name``."""
    found = dataclasses.replace(of.patterns.result_of(name), host_loads=(dataclasses.replace(BUSY_HOST, span=name),))
    return dataclasses.replace(of, patterns=dataclasses.replace(of.patterns, **{name: found}))


def test_the_cost_of_a_snapshot_does_not_decide_on_a_busy_host() -> None:
    costly = snapshotted(trials=[snapshot(snapshotted=attempt("save", seconds=20.0))] * PAIRS)
    for of in (snapshotted(), costly):
        assert judged("SNAPSHOT", of).reason != "host busy"
        verdict = judged("SNAPSHOT", loaded_in(of, "snapshots"))
        assert (verdict.outcome, verdict.reason) == ("not run", "host busy")
    assert (
        judged("SNAPSHOT", loaded_in(snapshotted(fault_count=1, faults=(FAULT,)), "snapshots")).reason == "wrong bytes"
    )


@pytest.mark.parametrize(("requirement", "name", "of"), [
    ("FAILOVER", "failover", failed_over()),
    ("UPGRADE", "upgrade", upgraded()),
])  # fmt: skip
def test_limits_in_seconds_during_commands_are_judged_and_show_the_load(requirement, name, of) -> None:
    quiet, busy = judged(requirement, of), judged(requirement, loaded_in(of, name))
    assert (busy.outcome, busy.because) == (quiet.outcome, quiet.because)
    assert f"busy host: n1 during save 2 of {name}" in busy.detail

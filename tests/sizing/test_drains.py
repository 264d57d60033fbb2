"""The time limit of a drain (the copy from a local tier to the target), for all clusters, save budgets and rules."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_ckpt.facts.strategies import STRATEGY_OF
from pytest_ckpt.facts.strategy_results import DrainRule
from pytest_ckpt.sizing.drains import (
    as_blocking_seconds,
    at_risk_seconds,
    drain_buffers_bytes,
    drain_depth,
    drain_limit_seconds,
    with_drains,
)
from pytest_ckpt.sizing.limits import cluster_limits, demand
from pytest_ckpt.sizing.models import layout
from pytest_ckpt.sizing.reliability import parse_failure_model

RULES = st.builds(DrainRule, every=st.integers(1, 50), target_share=st.floats(0.001, 0.999))
LLAMA = parse_failure_model("llama3")


def limits_of(accelerators, **given):
    return cluster_limits(accelerators, failures=LLAMA, **given)


def test_the_design_s_figure():
    # With n = 10, p = 10 %, k = 20, b = 5 % and nothing else lost: 5.5 intervals.
    for accelerators, interval, rate in ((16_000, 556.8, 1.9e9), (100_000, 89.1, 11.6e9)):
        limits = limits_of(accelerators)
        limit = drain_limit_seconds(DrainRule(every=10, target_share=0.1), limits)
        assert limit == pytest.approx(5.5 * limits.interval_seconds)
        assert limits.interval_seconds == pytest.approx(interval, rel=1e-3)
        assert layout("llama3-405b", mode="full").bytes / limit == pytest.approx(rate, rel=0.03)


@given(rule=RULES, accelerators=st.integers(1, 200_000), share=st.floats(0, 1.5))
def test_a_drain_within_its_limit_costs_no_more_than_a_save_that_just_blocks(rule, accelerators, share):
    limits = limits_of(accelerators)
    lost = share * limits.save_limit_seconds
    limit = drain_limit_seconds(rule, limits, lost)
    assert 0 <= limit <= rule.every * limits.interval_seconds
    if limit:
        risk = at_risk_seconds(rule, limits.interval_seconds, limit) / limits.checkpoints_per_failure
        assert lost + risk <= limits.save_limit_seconds * (1 + 1e-9)


@given(rule=RULES, accelerators=st.integers(1, 200_000), lost=st.floats(0.001, 100), drain=st.floats(0.01, 10_000))
def test_the_blocking_save_it_stands_for_meets_its_limit_at_the_same_clusters(rule, accelerators, lost, drain):
    limits = limits_of(accelerators)
    stands_for = as_blocking_seconds(rule, limits, lost, drain)
    limit = drain_limit_seconds(rule, limits, lost)
    # Exactly at a limit, rounding decides.
    assume(not math.isclose(stands_for, limits.save_limit_seconds, rel_tol=1e-6))
    met = lost <= limits.save_limit_seconds and limit > 0 and drain <= limit
    assert met is (stands_for <= limits.save_limit_seconds)


def test_drains_reduce_the_demand_on_the_target_by_their_time_and_number():
    limits = limits_of(16_000)
    asked = demand(layout("llama3-405b", mode="full"), limits, STRATEGY_OF["tiered"])
    tiered = with_drains(asked, limits, STRATEGY_OF["tiered"], DrainRule(every=10, target_share=0.1))
    assert tiered.save_limit_seconds == pytest.approx(5.5 * asked.save_limit_seconds)
    assert tiered.save_bytes_per_second == pytest.approx(asked.save_bytes_per_second / 5.5)
    assert tiered.bytes_per_day == pytest.approx(asked.bytes_per_day / 10)
    assert with_drains(asked, limits, STRATEGY_OF["tiered"], None) == asked
    same = {"load_limit_seconds", "load_bytes_per_second", "copies", "writers"}
    assert all(getattr(tiered, name) == getattr(asked, name) for name in same)
    assert dataclasses.asdict(tiered).keys() == dataclasses.asdict(asked).keys()


@pytest.mark.parametrize(("save_budget", "checkpoints_per_failure"), [(0.05, 20), (0.02, 20), (0.05, 10)])
def test_the_planned_time_of_a_drain_is_its_limit_whatever_the_budget(save_budget, checkpoints_per_failure):
    limits = limits_of(16_000, save_budget=save_budget, checkpoints_per_failure=checkpoints_per_failure)
    rule = DrainRule(every=2, target_share=0.1)
    shards = layout("llama3-405b", mode="full")
    strategy = STRATEGY_OF["tiered"]
    tiered = with_drains(demand(shards, limits, strategy), limits, strategy, rule)
    assert tiered.save_limit_seconds == pytest.approx(drain_limit_seconds(rule, limits))
    assert tiered.cluster_save_bytes_per_second == pytest.approx(
        shards.cluster_bytes / drain_limit_seconds(rule, limits)
    )


@given(piece=st.integers(1, 1 << 30), request=st.integers(4096, 64 << 20), depth=st.integers(1, 256))
def test_a_drain_has_as_much_in_flight_as_its_memory_takes(piece, request, depth):
    in_flight, bound = drain_depth(piece, request, depth), drain_buffers_bytes(request, depth)
    assert 1 <= in_flight <= depth
    assert in_flight == 1 or 2 * in_flight * piece <= bound
    assert in_flight == depth or 2 * (in_flight + 1) * piece > bound
    assert drain_depth(request, request, depth) == depth

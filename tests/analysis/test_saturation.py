"""Projections of throughput to more clients, for simulated arrays. Some measured rates allow no projection."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ckpt.analysis.client_counts import Projection
from pytest_ckpt.analysis.saturation import project
from tests.support.selection import examples

COUNTS = (1, 2, 4, 8, 16, 32)
SHAPES = {
    "linear": lambda n: n,
    "ceiling": lambda n: min(n, 12.0),
    "contention": lambda n: n / (1 + 0.2 * (n - 1)),
    "coherency": lambda n: n / (1 + 0.02 * (n - 1) + 0.003 * n * (n - 1)),
}


def measured(shape: str, scatter: float = 0.02, seed: int = 1, counts=COUNTS) -> dict[int, list[float]]:
    chance = random.Random(seed)
    return {n: [2e9 * SHAPES[shape](n) * chance.lognormvariate(0, scatter) for _ in range(10)] for n in counts}


@pytest.mark.parametrize("shape", ["ceiling", "contention", "coherency"])
def test_an_array_that_saturates_is_projected(shape: str) -> None:
    found = project(measured(shape), 128)
    truth = 2e9 * SHAPES[shape](128)
    assert not found.unavailable_reason
    assert found.low <= truth <= found.high
    assert found.median
    assert found.low <= found.median <= found.high
    assert found.high < 2 * found.low
    assert found.model in {shape, "coherency"}


def test_without_a_sign_of_a_ceiling_there_are_bounds_alone() -> None:
    found = project(measured("linear"), 128)
    assert found.median is None
    assert "no ceiling shows" in found.unavailable_reason
    assert found.low <= 2e9 * 32 * 1.05
    assert found.high >= 2e9 * 128 * 0.95
    bounded = project(measured("linear"), 128, bound=100e9)
    assert bounded.high == 100e9


def test_models_that_fit_and_go_elsewhere_are_no_projection() -> None:
    found = project(measured("contention", scatter=0.15, counts=(1, 2, 4, 8)), 1024)
    assert found.median is None
    assert "differ by more than a factor 2" in found.unavailable_reason
    assert found.low < 2e9 * SHAPES["contention"](1024) < found.high


def test_too_few_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="3 counts of clients: 4 are needed"):
        project({1: [1.0], 2: [2.0], 4: [4.0]}, 128)


def test_intervals_hold_the_truth() -> None:
    """At least 88 % of the projected intervals contain the true rate.

    ``benchmarks/projection.py`` repeats this test with 1,000 arrays.
    """
    shapes = ("ceiling", "contention", "coherency")
    found = [(shape, project(measured(shape, 0.05, seed), 128)) for seed in range(examples(40)) for shape in shapes]
    held = [p.low <= 2e9 * SHAPES[shape](128) <= p.high for shape, p in found]
    assert sum(held) >= 0.88 * len(held)


@given(
    rates=st.dictionaries(
        st.integers(1, 64), st.lists(st.floats(1e3, 1e12), min_size=1, max_size=3), min_size=4, max_size=5
    ),
    clients=st.integers(1, 10_000),
    bound=st.none() | st.floats(1e3, 1e12),
)
@settings(deadline=None, max_examples=examples(50))
def test_any_rates_give_an_interval(rates, clients, bound) -> None:
    found: Projection = project(rates, clients, bound)
    assert 0 < found.low <= found.high
    assert bound is None or found.high <= bound
    assert found.median is None or found.low * 0.999 <= found.median <= found.high * 1.001
    assert found == project(rates, clients, bound)

"""By how much steps take longer beside saves, with an interval that the same numbers give again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.analysis.statistics import slowdown
from pytest_ckpt.facts.strategy_results import Training
from tests.support.made_training import STEP, steps_of


def trained(*saves):
    return Training(step_seconds=STEP, cpu_share=0.1, saves=saves)


@given(share=st.floats(-0.5, 3.0), scatter=st.floats(0.0, 0.4))
def test_the_share_is_within_its_interval(share, scatter):
    found = slowdown(trained(steps_of(1, beside=STEP * (1 + share), scatter=scatter * STEP)))
    assert abs(found.share - share) < 1e-9
    assert found.low - 1e-9 <= found.share <= found.high + 1e-9


def test_the_same_steps_give_the_same_interval():
    steps = trained(steps_of(1, scatter=0.01), steps_of(2, beside=0.07, scatter=0.02))
    assert slowdown(steps) == slowdown(steps)


def test_few_batches_give_no_interval_and_none_give_nothing():
    assert slowdown(trained(steps_of(1, batches=2))).low is None
    assert slowdown(trained(steps_of(1, batches=0))) is None
    assert slowdown(trained()) is None

"""Acceptance sampling: bounds and sampling plans are compared with published tables and with their definitions."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.analysis.acceptance import (
    k_factor,
    largest_share,
    least_share,
    shown_share,
    shows_ten_of_ten,
    tolerance,
    trials_for,
)


@pytest.mark.parametrize(
    ("trials", "met", "share"),
    [(10, 10, 0.7411), (3, 3, 0.3684), (59, 59, 0.9505), (10, 9, 0.6058), (20, 18, 0.7174), (10, 1, 0.0051), (7, 0, 0)],
)
def test_shares_are_those_of_published_tables(trials, met, share):
    assert least_share(trials, met) == pytest.approx(share, abs=0.00006)


@given(st.integers(1, 300), st.data())
def test_the_least_share_is_where_such_a_result_has_a_probability_of_five_percent(trials, data):
    met = data.draw(st.integers(1, trials))
    share = least_share(trials, met)
    probability = sum(math.comb(trials, i) * share**i * (1 - share) ** (trials - i) for i in range(met, trials + 1))
    assert probability == pytest.approx(0.05, rel=1e-6)
    assert least_share(trials, met - 1) < share < met / trials or met == trials


@pytest.mark.parametrize(("trials", "met"), [(0, 0), (3, 4), (3, -1)])
def test_counts_that_cannot_be_are_refused(trials, met):
    with pytest.raises(ValueError, match="trials"):
        least_share(trials, met)


def test_trials_without_a_miss():
    assert [trials_for(share) for share in (0.95, 0.99)] == [59, 299]
    assert [largest_share(cuts) for cuts in (3, 59)] == pytest.approx([0.632, 0.05]), "rounded up"
    assert largest_share(298) > 0.0101 > largest_share(299)


@pytest.mark.parametrize(
    ("confidence", "share", "trials"),
    [(0.95, 0.99, [299, 473, 628, 773]), (0.95, 0.95, [59, 93, 124, 153]), (0.95, 0.90, [29, 46, 61, 76])],
)
def test_sampling_plans_with_misses_are_those_of_published_tables(confidence, share, trials):
    assert [trials_for(share, confidence, misses) for misses in range(4)] == trials


def at_most(misses, trials, missed):
    """Return the exact probability of at most ``misses`` misses in ``trials`` trials.

    ``missed`` is the probability that one trial misses.
    """
    return sum(math.comb(trials, i) * missed**i * (1 - missed) ** (trials - i) for i in range(misses + 1))


@given(st.integers(500, 999), st.integers(500, 999), st.integers(0, 12))
def test_a_sampling_plan_is_the_smallest_that_shows_it_by_the_exact_binomial(confidence, share, misses):
    """A sampling plan has the smallest number of trials whose risk of a wrong pass is at most 1 - ``confidence``.

    A wrong pass is the pass of storage that completes only ``share`` of its operations within the limit. ``share`` and
    ``confidence`` are in thousandths.
    """
    trials = trials_for(share / 1000, confidence / 1000, misses)
    missed, risk = Fraction(1000 - share, 1000), Fraction(1000 - confidence, 1000)
    assert at_most(misses, trials, missed) <= risk
    assert trials == misses + 1 or at_most(misses, trials - 1, missed) > risk
    assert least_share(trials, trials - misses, confidence / 1000) >= share / 1000 - 1e-9


@given(st.integers(500, 990), st.integers(500, 990), st.integers(0, 20))
def test_each_planned_miss_takes_more_trials(confidence, share, misses):
    fewer, more = (trials_for(share / 1000, confidence / 1000, count) for count in (misses, misses + 1))
    assert fewer < more


def test_a_plan_that_shows_less_than_ten_of_ten_is_marked():
    assert shows_ten_of_ten(0.99, 0.95, 1)
    assert shows_ten_of_ten(0.75, 0.95, 1)
    assert not shows_ten_of_ten(0.5, 0.5, 1)
    assert not shows_ten_of_ten(0.7, 0.9, 1)


@given(st.integers(1, 2_000), st.data())
def test_a_printed_share_never_exceeds_the_exact_share(trials, data):
    met = data.draw(st.integers(0, trials))
    exact, shown = least_share(trials, met), shown_share(trials, met)
    assert shown <= exact < shown + 0.001
    assert largest_share(trials) >= 1 - least_share(trials, trials) - 1e-12


@pytest.mark.parametrize(
    ("count", "share", "confidence", "k"),
    [(5, 0.95, 0.95, 4.203), (5, 0.99, 0.95, 5.741), (10, 0.95, 0.95, 2.911), (10, 0.99, 0.95, 3.981),
     (10, 0.90, 0.90, 2.066), (20, 0.99, 0.95, 3.295), (50, 0.95, 0.95, 2.065)],
)  # fmt: skip
def test_k_factors_are_those_of_published_tables(count, share, confidence, k):
    assert k_factor(count, share, confidence) == pytest.approx(k, abs=0.0015)


def test_the_95_percent_bound_holds_in_95_percent_of_draws_of_log_normal_times():
    """In 95 % of 2,000 draws, the bound from ten log-normal times is above the true 99 % quantile, exp(2.33).

    The test accepts a deviation of 1.5 percentage points, which is three standard deviations.
    """
    draw = random.Random(1)
    true = math.exp(2.3263478740408408)
    held = sum(tolerance([draw.lognormvariate(0, 1) for _ in range(10)]).seconds >= true for _ in range(2_000))
    assert held / 2_000 == pytest.approx(0.95, abs=0.015)


def test_one_outlier_among_log_normal_times_makes_the_fit_doubtful():
    steady = [math.exp(0.1 * z) for z in (-1.5, -1.0, -0.6, -0.3, -0.1, 0.1, 0.3, 0.6, 1.0, 1.5)]
    assert tolerance(steady).fit > 0.99
    assert not tolerance(steady).is_doubtful
    assert tolerance([*steady[:-1], 50.0]).is_doubtful
    assert tolerance([*steady[:-1], 50.0]).fit < 0.7


@pytest.mark.parametrize("seconds", [[1.0, 2.0, 3.0, 4.0], [1.0] * 10, [0.0, 1.0, 2.0, 3.0, 4.0]])
def test_no_bound_where_times_show_none(seconds):
    assert tolerance(seconds) is None

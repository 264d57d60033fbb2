"""Statistics: known values, and simulations that count false alarms and missed changes."""

from __future__ import annotations

import itertools
import math
import random
from statistics import fmean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.analysis.statistics import (
    ALARM_PROBABILITY,
    MINIMUM_RUNS,
    MINIMUM_TIMES,
    find_change,
    rank_test,
    ratio_of_medians,
    slowdown,
    slowest_of,
)
from pytest_ckpt.facts.strategy_results import Training
from tests.support.synthetic_training import STEP, steps_of

SERIES = 1_000

DRAWN = {
    "log-normal": lambda chance: chance.lognormvariate(0.0, 0.1),
    "gamma": lambda chance: chance.gammavariate(50.0, 1 / 50),
    "exponential tail": lambda chance: 1 + chance.expovariate(20.0),
}


def noisy(rng, count, *, spread=0.05, slow=1.0):
    """Return ``count`` random times that resemble the times of real runs: skewed, with 5 % outliers."""
    return [slow * rng.lognormvariate(0.0, spread) * (rng.uniform(1.5, 4) if rng.random() < 0.05 else 1)
            for _ in range(count)]  # fmt: skip


def by_enumeration(before, after):
    """Return the two-sided probability of the rank test, by enumerating all assignments of values to the two groups."""
    whole = sorted([*before, *after])
    seen = sum(a > b for a in after for b in before)
    pairs = len(before) * len(after)
    extreme = min(seen, pairs - seen)
    ways = [
        sum(a > b for a in chosen for b in set(whole) - set(chosen))
        for chosen in itertools.combinations(whole, len(after))
    ]
    return min(1.0, 2 * sum(way <= extreme for way in ways) / len(ways))


@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=9, unique=True), st.integers(1, 8))
def test_the_rank_test_is_exact(values, cut):
    cut = min(cut, len(values) - 1)
    assert rank_test(values[:cut], values[cut:]) == pytest.approx(by_enumeration(values[:cut], values[cut:]))


def test_a_published_value():
    """In Mann and Whitney's own table, n = 3, m = 3 and U = 0 have a one-sided probability of 0.05.

    `rank_test` returns the two-sided probability, which is twice as large.
    """
    assert rank_test([1, 2, 3], [4, 5, 6]) == pytest.approx(0.1)
    assert rank_test(range(10), range(10, 20)) == pytest.approx(2 / math.comb(20, 10))


def test_ties_are_no_evidence():
    assert rank_test([1.0] * 20, [1.0] * 5) == 1.0
    assert find_change([1.0] * 60) is None


@pytest.mark.parametrize("spread", [0.005, 0.05, 0.3])
def test_an_unchanged_noisy_series_raises_fewer_false_alarms_than_promised(spread):
    """Of noisy series without a change, fewer than 1 % raise an alarm, at each level of noise. The seed is fixed."""
    rng = random.Random(f"unchanged {spread}")
    alarms = sum(find_change(noisy(rng, 61, spread=spread)) is not None for _ in range(SERIES))
    assert alarms / SERIES < 0.01
    assert ALARM_PROBABILITY < 0.01


@pytest.mark.parametrize("before", [1, 5, 9, 13, 21, 30])
def test_a_short_series_raises_no_more_of_them(before):
    rng = random.Random(before)
    assert sum(find_change(noisy(rng, before + 8)) is not None for _ in range(SERIES)) / SERIES < 0.01


@pytest.mark.thorough
@pytest.mark.parametrize("spread", [0.02, 0.05])
def test_daily_runs_over_a_year_rarely_give_a_false_alarm(spread):
    """Of 60 simulated years without a change, evaluated on each of 365 days, at most three years raise an alarm.

    No alarm reports a slowdown of 10 % or more. The seed is fixed.
    """
    rng = random.Random(f"years {spread}")
    found = slower = 0
    for _ in range(60):
        nights = noisy(rng, 40 + 365, spread=spread)
        changes = [find_change(nights[:count]) for count in range(41, len(nights) + 1)]
        found += any(changes)
        slower += any(c is not None and c.ratio >= 1.10 for c in changes)
    assert found <= 3
    assert slower == 0


@pytest.mark.parametrize(("before", "runs"), [(22, 5), (12, 8), (8, 13), (6, 21)])
def test_a_clear_change_shows_as_soon_as_it_can(before, runs):
    """A change is reported if there are ``before`` runs before it and ``runs`` runs after it, as documented.

    With one run fewer before or after the change, the change is not reported.
    """
    quiet = [1.0 + i * 7 % 11 / 1000 + i / 1e6 for i in range(before + runs)]
    series = quiet[:before] + [1.2 * v for v in quiet[before:]]
    found = find_change(series)
    assert found is not None
    assert found.ratio == pytest.approx(1.2, abs=0.01)
    assert find_change(series[:-1]) is None
    assert find_change(series[1:]) is None


def test_a_series_that_is_too_short_shows_nothing_and_one_that_is_just_not_does():
    for runs in range(1, MINIMUM_RUNS):
        assert all(find_change([1.0 + i / 1e6 for i in range(runs - n)] + [9.0] * n) is None for n in range(1, runs))
    assert find_change([1.0 + i / 1e6 for i in range(MINIMUM_RUNS - 8)] + [9.0 + i / 1e6 for i in range(8)]) is not None


@pytest.mark.parametrize(
    ("spread", "slow", "runs", "share"),
    [
        (0.02, 1.10, 8, 0.6), (0.02, 1.10, 13, 0.95), (0.05, 1.10, 21, 0.8),
        (0.02, 1.15, 8, 0.6), (0.02, 1.15, 13, 0.95), (0.05, 1.15, 13, 0.8), (0.05, 1.15, 21, 0.95),
        (0.10, 1.30, 21, 0.9),
    ],
)  # fmt: skip
def test_a_real_slowdown_is_found_through_noise(spread, slow, runs, share):
    """In at least ``share`` of 300 noisy series, a slowdown is reported ``runs`` nights after its start."""
    rng = random.Random(5)
    found = [
        find_change(noisy(rng, 40, spread=spread) + noisy(rng, runs, spread=spread, slow=slow)) for _ in range(300)
    ]
    assert sum(c is not None and c.ratio > 1.05 for c in found) / len(found) >= share


def test_an_old_speedup_does_not_hide_a_later_slowdown():
    quiet = [1.0 + i * 7 % 11 / 1000 + i / 1e6 for i in range(60)]
    series = quiet[:31] + [v / 2 for v in quiet[31:52]] + [v * 0.6 for v in quiet[52:]]
    found = find_change(series)
    assert found is not None
    assert (found.runs, found.before) == (8, 21)
    assert found.ratio == pytest.approx(1.2, abs=0.01)


def test_a_faster_series_is_a_change_too():
    found = find_change([1.0 + i / 1000 for i in range(30)] + [0.8 + i / 1000 for i in range(5)])
    assert found is not None
    assert found.ratio < 0.85


def test_the_interval_holds_the_ratio_and_is_always_the_same():
    rng = random.Random(2)
    one, other = noisy(rng, 10), noisy(rng, 10, slow=1.5)
    found = ratio_of_medians(one, other)
    assert found == ratio_of_medians(one, other)
    assert found.low < found.ratio < found.high
    assert found.is_change
    assert not ratio_of_medians(one, one).is_change


@pytest.mark.thorough
def test_the_interval_covers_what_it_promises_about():
    """At least 90 % of the intervals contain the true ratio.

    The nominal share is 95 %; an estimate from ten values reaches slightly less.
    """
    rng = random.Random(3)
    found = [ratio_of_medians(noisy(rng, 10), noisy(rng, 10, slow=1.2)) for _ in range(60)]
    assert sum(f.low <= 1.2 <= f.high for f in found) / len(found) >= 0.9


def test_too_few_values_give_no_interval():
    found = ratio_of_medians([1.0, 1.1, 1.2], [2.0, 2.1, 2.2])
    assert (found.low, found.high, found.is_change) == (None, None, False)


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


@pytest.mark.parametrize("name", DRAWN)
def test_the_slowest_of_512_is_foretold_by_ten_operations_of_16(name) -> None:
    draw, chance = DRAWN[name], random.Random(f"slowest {name}")
    held, ratios = 0, []
    for _ in range(100):
        times = [draw(chance) for _ in range(160)]
        middle = median(times)
        found = slowest_of([time / middle for time in times], 512)
        assert found is not None
        truth = max(draw(chance) for _ in range(512))
        held += found.low <= truth / middle <= found.high
        ratios.append(found.expected * middle / truth)
    assert fmean(ratios) == pytest.approx(1.0, abs=0.05)
    assert held >= 85


def test_the_expected_slowest_time_grows_with_the_logarithm_of_the_ranks() -> None:
    chance = random.Random("grows")
    times = [1 + chance.expovariate(20.0) for _ in range(400)]
    each = [slowest_of(times, ranks).expected for ranks in (100, 1_000, 10_000)]
    assert each[2] - each[1] == pytest.approx(each[1] - each[0])
    assert each[1] - each[0] == pytest.approx(math.log(10) / 20, rel=0.3)


def test_equal_ranks_give_equal_bounds_and_too_few_times_give_none() -> None:
    found = slowest_of([1.0] * MINIMUM_TIMES, 1_000)
    assert found is not None
    assert (found.low, found.expected, found.high) == (1.0, 1.0, 1.0)
    assert slowest_of([1.0] * (MINIMUM_TIMES - 1), 1_000) is None


def test_few_slow_ranks_widen_the_interval_and_one_slow_rank_gives_none() -> None:
    """Two slow ranks of eight give a wider interval than eight slow ranks. One slow rank gives no interval."""
    chance = random.Random("slow server")

    def found(slow: int):
        times = [(1.2 if rank < slow else 1.0) + chance.expovariate(200.0) for _ in range(20) for rank in range(8)]
        return slowest_of(times, 512, [*range(8)] * 20)

    assert found(1) is None
    assert found(2).high - found(2).low > found(8).high - found(8).low
    assert slowest_of([1.0] * 160, 512, [*range(8)] * 20).expected == 1.0

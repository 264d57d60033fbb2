"""Simulated training runs agree with the closed formula, their times add up, and the same seed repeats the result."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ckpt.analysis.training_runs import FailureArrivals, MeasuredTimes, SimulatedRuns, quantiles, simulate_runs
from pytest_ckpt.sizing.reliability import effective_training_time_ratio, parse_failure_model

MONTH = 30 * 86_400.0
FAILURES = parse_failure_model("llama3")


def simulated(times: MeasuredTimes, mttf: float, interval: float, **more) -> SimulatedRuns:
    rules = {"restart_seconds": 0.0, "seconds": MONTH, "runs": 1000, "arrivals": FailureArrivals(), "seed": 1} | more
    return simulate_runs(times, interval_seconds=interval, mttf_seconds=mttf, **rules)


def constant(save: float, load: float, **more) -> MeasuredTimes:
    return MeasuredTimes(lost_seconds=(save,), background_seconds=(0.0,), load_seconds=(load,), **more)


@pytest.mark.parametrize("accelerators", [1_000, 4_000, 16_000, 64_000, 100_000])
@pytest.mark.parametrize(
    ("save_budget", "restore", "per_failure"), [(0.05, 0.01, 20), (0.01, 0.002, 20), (0.05, 0.01, 10)]
)
def test_goodput_is_that_of_the_closed_form(accelerators, save_budget, restore, per_failure) -> None:
    mttf = FAILURES.mttf_seconds(accelerators)
    interval = mttf / per_failure
    save, load = save_budget * interval, restore * mttf
    found = simulated(constant(save, load), mttf, interval)
    first_order = effective_training_time_ratio(
        save_seconds=save, load_seconds=load, interval_seconds=interval, mttf_seconds=mttf
    )
    # Daly 2006, equation 20: a cycle takes M e^(R/M) (e^(I/M) - 1), including failures and restores.
    exact = (interval - save) / (mttf * math.exp(load / mttf) * math.expm1(interval / mttf))
    # The closed form is a mean. With few failures, the median differs a little from it.
    assert found.goodput.mean() == pytest.approx(first_order, abs=0.005)
    assert quantiles(found.goodput)[0] == pytest.approx(first_order, abs=0.0075)
    assert found.goodput.mean() == pytest.approx(exact, abs=0.001)


def test_background_saves_put_more_work_at_risk() -> None:
    mttf = FAILURES.mttf_seconds(16_000)
    interval = mttf / 20
    times = MeasuredTimes(lost_seconds=(2.0,), background_seconds=(interval / 2,), load_seconds=(60.0,))
    expected = effective_training_time_ratio(
        save_seconds=2.0, load_seconds=60.0, interval_seconds=interval, mttf_seconds=mttf, at_risk_seconds=interval / 2
    )
    found = simulated(times, mttf, interval)
    assert found.goodput.mean() == pytest.approx(expected, abs=0.005)
    # A save is in flight during half of the time.
    assert found.met_save.sum() / found.failures.sum() == pytest.approx(0.5, abs=0.03)


def test_rare_drains_lose_more_training_time_if_only_the_target_survives() -> None:
    mttf = FAILURES.mttf_seconds(16_000)
    interval, every, share, drain = mttf / 20, 10, 0.2, mttf / 10
    times = MeasuredTimes(lost_seconds=(2.0,), background_seconds=(drain,), load_seconds=(60.0,), every=every,
                          target_share=share)  # fmt: skip
    at_risk = share * ((every - 1) * interval / 2 + drain)
    expected = effective_training_time_ratio(
        save_seconds=2.0, load_seconds=60.0, interval_seconds=interval, mttf_seconds=mttf, at_risk_seconds=at_risk
    )
    assert simulated(times, mttf, interval).goodput.mean() == pytest.approx(expected, abs=0.015)
    sure = MeasuredTimes(lost_seconds=(2.0,), background_seconds=(drain,), load_seconds=(60.0,), every=every,
                         target_share=1e-9)  # fmt: skip
    assert simulated(sure, mttf, interval).goodput.mean() > simulated(times, mttf, interval).goodput.mean()


def test_times_that_scatter_cost_what_their_mean_costs() -> None:
    mttf, interval = 10_000.0, 500.0
    scattered = MeasuredTimes(lost_seconds=(10.0, 40.0), background_seconds=(0.0,), load_seconds=(50.0, 150.0))
    same = simulated(constant(25.0, 100.0), mttf, interval).goodput.mean()
    assert simulated(scattered, mttf, interval).goodput.mean() == pytest.approx(same, abs=0.001)


@pytest.mark.parametrize(
    "arrivals", [FailureArrivals(kind="weibull", shape=0.6), FailureArrivals(kind="bursts", shape=0.3)]
)
def test_failures_that_come_together_keep_their_mean(arrivals) -> None:
    chance = np.random.RandomState(1)
    assert arrivals.draw(100.0, 400_000, chance).mean() == pytest.approx(100.0, rel=0.02)


def test_failures_that_come_together_lose_less_work() -> None:
    """At the same mean time between failures, bursts of failures lose less work than independent failures.

    A failure shortly after another failure loses little work.
    """
    mttf, interval = 10_000.0, 2_000.0
    alone = simulated(constant(20.0, 10.0), mttf, interval)
    together = simulated(constant(20.0, 10.0), mttf, interval, arrivals=FailureArrivals(kind="bursts", shape=0.5))
    assert together.lost_work.mean() < alone.lost_work.mean()


@given(
    save=st.floats(0.1, 90.0),
    background=st.floats(0.0, 200.0),
    load=st.floats(0.0, 5_000.0),
    mttf=st.floats(200.0, 1e8),
    every=st.sampled_from([1, 3]),
    share=st.sampled_from([1.0, 0.25]),
    kind=st.sampled_from(
        [FailureArrivals(), FailureArrivals(kind="weibull", shape=0.7), FailureArrivals(kind="bursts", shape=0.2)]
    ),
    seed=st.integers(0, 99),
)
@settings(deadline=None)
def test_parts_are_shares_of_the_whole_and_a_seed_gives_the_same(
    save, background, load, mttf, every, share, kind, seed
) -> None:
    times = MeasuredTimes(
        lost_seconds=(save, save / 2),
        background_seconds=(background,),
        load_seconds=(load, load / 3),
        every=every,
        target_share=share,
    )
    how = {"seconds": 100_000.0, "runs": 20, "arrivals": kind, "seed": seed, "restart_seconds": 30.0}
    found = simulated(times, mttf, 100.0, **how)
    for part in (found.goodput, found.saving, found.lost_work, found.restoring):
        assert part.min() > -1e-9
        assert part.max() < 1 + 1e-9
    assert np.all(found.met_save <= found.failures)
    assert np.array_equal(found.goodput, simulated(times, mttf, 100.0, **how).goodput)


def test_a_run_without_failures_loses_its_saves_alone() -> None:
    found = simulated(constant(5.0, 60.0), 1e12, 100.0)
    assert found.failures.sum() == 0
    assert found.goodput == pytest.approx(0.95, abs=1e-6)

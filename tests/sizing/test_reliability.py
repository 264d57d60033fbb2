"""Failure rates of clusters, checkpoint intervals, and the training time that failures and checkpoints cost."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytest_ckpt.sizing.reliability import (
    SECONDS_PER_DAY,
    FailureModel,
    daly_interval_seconds,
    effective_training_time_ratio,
    parse_failure_model,
    save_overhead,
    young_interval_seconds,
)

LLAMA3 = parse_failure_model("llama3")

positive_seconds = st.floats(min_value=1e-3, max_value=1e7)


@pytest.mark.parametrize(
    ("spec", "per_accelerator_day", "because"),
    [
        ("llama3", 419 / 54 / 16_000, "419 unexpected interruptions in 54 days on 16,000 accelerators"),
        ("mttf:50000h", 24 / 50_000, "one accelerator fails every 50000h"),
        ("mttf:1d", 1.0, "every 1d"),
        ("node-days:6.5", 6.5 / 8000, "6.5 failures per 1,000 days of a node of 8"),
        ("node-days:2.34", 2.34 / 8000, "2.34 failures"),
        ("observed:419/54d@16000", 419 / 54 / 16_000, "419 failures were observed in 54d on 16,000 accelerators"),
        ("observed:12/36h@512", 12 / 1.5 / 512, "12 failures"),
        (" llama3 ", 419 / 54 / 16_000, "Llama 3 405B"),
    ],
)
def test_specs_give_a_rate_and_its_reason(spec: str, per_accelerator_day: float, because: str):
    model = parse_failure_model(spec)
    assert model.failures_per_accelerator_day == pytest.approx(per_accelerator_day, rel=1e-12)
    assert because in model.because
    assert model.spec == spec.strip()


@pytest.mark.parametrize(
    "spec",
    [
        "", "llama3:", "llama3:5", "mttf", "mttf:", "mttf:0h", "mttf:fast", "mttf:5m", "mttf:-5h", "node-days:",
        "node-days:0", "node-days:nan", "node-days:inf", "observed:419/54@16000", "observed:419/54d",
        "observed:0/54d@16000", "observed:419/0d@16000", "observed:419/54d@0", "observed:419/54d@16000@2",
        "Llama3", "never",
    ],
)  # fmt: skip
def test_other_specs_are_refused_with_what_is_accepted(spec: str):
    with pytest.raises(ValueError, match="expected"):
        parse_failure_model(spec)


def test_the_nearest_word_is_offered():
    with pytest.raises(ValueError, match="did you mean 'llama3'"):
        parse_failure_model("lama3")
    with pytest.raises(ValueError, match="did you mean 'node-days'"):
        parse_failure_model("nodedays:6.5")


def test_the_rate_per_node_of_llama_3_depends_on_which_count_of_accelerators_is_taken():
    per_thousand_node_days = [419 / 54 / n * 8 * 1000 for n in (16_000, 16_384)]
    assert per_thousand_node_days == pytest.approx([3.88, 3.79], rel=0.001)


@pytest.mark.parametrize(
    ("slot_seconds", "deviation"), [(10, -0.003), (300, -0.08), (3600, -0.57)], ids=["10 s", "5 min", "1 h"]
)
def test_the_slot_form_falls_below_the_linear_form_as_published(slot_seconds: float, deviation: float):
    in_slots = LLAMA3.failures_per_day_in_slots(100_000, slot_seconds)
    assert in_slots / LLAMA3.failures_per_day(100_000) - 1 == pytest.approx(deviation, rel=0.07)


def test_the_slot_form_is_one_minus_r_to_the_n():
    survival = math.exp(-LLAMA3.failures_per_accelerator_day * 300 / SECONDS_PER_DAY)
    assert LLAMA3.slot_failure_probability(16_000, 300) == pytest.approx(1 - survival**16_000, rel=1e-6)


@given(accelerators=st.integers(min_value=1, max_value=10**7), slot=positive_seconds)
@settings(deadline=None)
def test_the_slot_form_never_exceeds_the_linear_form(accelerators: int, slot: float):
    assert 0 <= LLAMA3.slot_failure_probability(accelerators, slot) <= 1
    assert LLAMA3.failures_per_day_in_slots(accelerators, slot) <= LLAMA3.failures_per_day(accelerators) * (1 + 1e-12)


@given(st.floats(min_value=1e-9, max_value=1e3), st.integers(min_value=1, max_value=10**6))
@settings(deadline=None)
def test_the_rate_is_linear_in_the_cluster(rate: float, accelerators: int):
    model = FailureModel(failures_per_accelerator_day=rate, spec="", because="")
    assert model.failures_per_day(2 * accelerators) == pytest.approx(2 * model.failures_per_day(accelerators))
    assert model.mttf_seconds(accelerators) * model.failures_per_day(accelerators) == pytest.approx(SECONDS_PER_DAY)


def test_intervals_of_a_known_case():
    assert young_interval_seconds(28, 11_136) == pytest.approx(789.7, abs=0.1)
    # x = sqrt(28 / 22,272) = 0.035457: 789.69 * (1 + x/3 + x^2/9) - 28
    assert daly_interval_seconds(28, 11_136) == pytest.approx(771.13, abs=0.05)


def test_daly_gives_up_where_a_save_takes_twice_the_time_between_failures():
    assert daly_interval_seconds(200, 100) == 100
    assert daly_interval_seconds(1000, 100) == 100


@given(save=positive_seconds, mttf=positive_seconds)
@settings(deadline=None)
def test_young_is_never_below_daly(save: float, mttf: float):
    assume(save < 2 * mttf)
    assert 0 < daly_interval_seconds(save, mttf) <= young_interval_seconds(save, mttf)


@given(save=positive_seconds, mttf=positive_seconds, factor=st.floats(min_value=0.01, max_value=100))
@settings(deadline=None)
def test_no_interval_gives_a_better_ratio_than_youngs(save: float, mttf: float, factor: float):
    def ratio(interval: float) -> float:
        return effective_training_time_ratio(
            save_seconds=save, load_seconds=0, interval_seconds=interval, mttf_seconds=mttf
        )

    young = young_interval_seconds(save, mttf)
    assert ratio(young) >= ratio(young * factor) - 1e-12


def test_fifty_seconds_every_four_hours_is_a_third_of_a_percent():
    assert save_overhead(50, 4 * 3600) == pytest.approx(0.0035, rel=0.015)
    without_failures = effective_training_time_ratio(
        save_seconds=50, load_seconds=50, interval_seconds=4 * 3600, mttf_seconds=math.inf
    )
    assert 1 - without_failures == pytest.approx(0.0035, rel=0.015)


def test_the_five_percent_rule_costs_the_save_the_lost_work_and_the_load():
    mttf = LLAMA3.mttf_seconds(16_000)
    ratio = effective_training_time_ratio(
        save_seconds=0.05 * mttf / 20, load_seconds=0.01 * mttf, interval_seconds=mttf / 20, mttf_seconds=mttf
    )
    assert ratio == pytest.approx(1 - 0.05 - 0.025 - 0.01)
    with_restart = effective_training_time_ratio(
        save_seconds=0.05 * mttf / 20,
        load_seconds=0.01 * mttf,
        interval_seconds=mttf / 20,
        mttf_seconds=mttf,
        restart_seconds=0.02 * mttf,
    )
    assert ratio - with_restart == pytest.approx(0.02)


def test_a_cluster_that_makes_no_progress_has_ratio_zero():
    ratio = effective_training_time_ratio(save_seconds=10, load_seconds=500, interval_seconds=20, mttf_seconds=100)
    assert ratio == 0

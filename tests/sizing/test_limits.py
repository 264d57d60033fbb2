"""Published numbers that follow from the size of a cluster, and properties that hold for every size."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ckpt.sizing import limits as sizing
from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.sizing.limits import ClusterLimits, cluster_limits, demand
from pytest_ckpt.sizing.models import layout
from pytest_ckpt.sizing.reliability import parse_failure_model
from pytest_ckpt.support.errors import UsageError

LLAMA3 = parse_failure_model("llama3")
MINUTE = 60.0

clusters = st.integers(min_value=1, max_value=10**7)


def _limits(accelerators: int, **budgets: float) -> ClusterLimits:
    return cluster_limits(accelerators, failures=LLAMA3, **budgets)


PUBLISHED = [
    (16_000, "failures_per_day", 7.76),
    (16_000, "failures_per_day", 7.67),
    (16_000, "mttf_seconds", 185.6 * MINUTE),
    (16_000, "checkpoints_per_day", 155),
    (16_000, "interval_seconds", 9.3 * MINUTE),
    (16_000, "save_limit_seconds", 28),
    (24_000, "failures_per_day", 11.64),
    (24_000, "mttf_seconds", 124 * MINUTE),
    (24_000, "checkpoints_per_day", 233),
    (24_000, "interval_seconds", 6.2 * MINUTE),
    (24_000, "save_limit_seconds", 18.6),
    (100_000, "failures_per_day", 48.5),
    (100_000, "mttf_seconds", 29.7 * MINUTE),
    (100_000, "checkpoints_per_day", 967),
    (100_000, "interval_seconds", 1.5 * MINUTE),
    (100_000, "save_limit_seconds", 4.4),
    (100_000, "save_limit_seconds", 4.45),
]


@pytest.mark.parametrize(("accelerators", "quantity", "figure"), PUBLISHED)
def test_published_figures_follow_from_the_model(accelerators: int, quantity: str, figure: float):
    assert getattr(_limits(accelerators), quantity) == pytest.approx(figure, rel=0.015)


def test_7_67_a_day_and_967_checkpoints_contradict_each_other():
    """The published 7.67 failures a day and 967 checkpoints a day contradict each other.

    The first number is for 16,000 accelerators, the second for 100,000, a ratio of 6.25. With 20 checkpoints per
    failure, failures grow by a factor of 967 / 20 / 7.67 = 6.30. In the model, failures grow by at most 6.25.
    """
    published_growth = 967 / 20 / 7.67
    assert published_growth == pytest.approx(6.30, abs=0.005)
    assert published_growth > 100_000 / 16_000
    ours = _limits(100_000).failures_per_day / _limits(16_000).failures_per_day
    assert ours == pytest.approx(100_000 / 16_000)


TRAFFIC = [
    # The published numbers are cut, not rounded: 1.165 PB and 13.5 GB/s.
    ("5 TB x 233 a day", sizing.bytes_per_day(5e12, 233), 1.1e15, 0.06),
    ("5 TB x 233 a day, sustained", sizing.sustained_bytes_per_second(5e12, 233), 13e9, 0.04),
    ("15 TB x 967 a day", sizing.bytes_per_day(15e12, 967), 14.5e15, 0.015),
    ("15 TB x 967 a day, sustained", sizing.sustained_bytes_per_second(15e12, 967), 168e9, 0.015),
    ("15 TB while saving", 15e12 / _limits(100_000).save_limit_seconds, 3.4e12, 0.015),
    ("13.8 TB at 273 GB/s", 13.8e12 / 273e9, 50.5, 0.015),
    ("one of 512 writers", sizing.per_writer_bytes_per_second(273e9, 512), 0.53e9, 0.015),
    ("a node of 8 writers", sizing.per_node_bytes_per_second(273e9, 512), 4.3e9, 0.015),
    ("six copies restore", sizing.restore_all_bytes_per_second(6, 273e9), 1.638e12, 1e-12),
]


@pytest.mark.parametrize(("ours", "figure", "tolerance"), [case[1:] for case in TRAFFIC], ids=[c[0] for c in TRAFFIC])
def test_published_traffic(ours: float, figure: float, tolerance: float):
    assert ours == pytest.approx(figure, rel=tolerance)


def test_the_load_limit_is_a_hundredth_of_the_time_between_failures():
    limits = _limits(16_000)
    assert limits.load_limit_seconds == pytest.approx(111.4, rel=0.001)
    assert _limits(16_000, load_budget=0.02).load_limit_seconds == pytest.approx(2 * limits.load_limit_seconds)


def test_plain_form_holds_what_scripts_rely_on():
    limits = _limits(16_000)
    plain = json.loads(json.dumps(limits.to_plain()))
    assert set(plain) == {
        "accelerators", "failures_per_day", "mttf_seconds", "checkpoints_per_failure", "interval_seconds",
        "save_budget", "load_budget", "save_limit_seconds", "load_limit_seconds",
        "failure_model", "checkpoints_per_day", "failures_per_day_in_slots", "reasons", "inputs",
    }  # fmt: skip
    assert plain["accelerators"] == 16_000
    assert plain["failures_per_day"] == pytest.approx(7.759, abs=0.0005)
    assert plain["failure_model"] == "llama3"
    assert plain["save_limit_seconds"] == limits.save_limit_seconds


def test_every_derived_quantity_has_its_reason_with_numbers():
    limits = _limits(16_000)
    assert {key for key, _ in limits.reasons} == set(limits.to_plain()) - {"failure_model", "reasons", "inputs"}
    assert limits.reason("failures_per_day") == (
        "Llama 3 405B had 419 unexpected interruptions in 54 days on 16,000 accelerators: 0.000485 failures a day and "
        "accelerator, times 16,000 accelerators = 7.759 a day."
    )
    assert limits.reason("save_limit_seconds") == ("One checkpoint every 9.28 min: 9.28 min x 5 % = 27.8 s per save.")
    assert limits.reason("load_limit_seconds") == (
        "One load per failure, so every 3.093 h: 3.093 h x 1 % = 111 s per load."
    )


@pytest.mark.parametrize("accelerators", [64, 16_000, 100_000])
def test_the_failure_rate_in_slots_is_reported_and_decides_no_limit(accelerators):
    """The failure rate by the formula with slots (1 - R^N) is reported, but no limit is computed from it.

    R is the probability that one accelerator survives a slot, and N is the number of accelerators. A slot is one
    checkpoint interval, 1/20 of the MTTF. A cluster of any size therefore fails in a slot with the probability
    1 - exp(-1/20) = 4.88 %. The linear formula decides the limits.
    """
    limits = _limits(accelerators)
    one_lives_on = math.exp(-LLAMA3.failures_per_accelerator_day * limits.interval_seconds / 86_400)
    in_slot = 1 - one_lives_on**accelerators
    assert in_slot == pytest.approx(1 - math.exp(-1 / 20))
    assert limits.failures_per_day_in_slots == pytest.approx(in_slot * 86_400 / limits.interval_seconds)
    assert limits.interval_seconds * 20 * limits.failures_per_day == pytest.approx(86_400)
    found = limits.reason("failures_per_day_in_slots")
    assert "1 - R^N" in found
    assert "probability of 4.88 %" in found
    assert "That is 2.46 % below" in found


@pytest.mark.parametrize(
    ("accelerators", "budgets", "what"),
    [
        (0, {}, "a cluster of 0"),
        (-5, {}, "a cluster of -5"),
        (16_000, {"save_budget": 0.0}, "save budget of 0 %"),
        (16_000, {"save_budget": 5.0}, "save budget of 500 %"),
        (16_000, {"save_budget": float("nan")}, "save budget of nan %"),
        (16_000, {"load_budget": -0.1}, "load budget of -10 %"),
        (16_000, {"checkpoints_per_failure": 0}, "0 checkpoints per failure"),
    ],
)
def test_bad_values_are_refused_with_a_remedy(accelerators: int, budgets: dict, what: str):
    with pytest.raises(UsageError) as error:
        _limits(accelerators, **budgets)
    assert what in error.value.what
    assert error.value.remedy


@given(st.lists(clusters, min_size=2, max_size=2, unique=True).map(sorted))
@settings(deadline=None)
def test_limits_fall_as_the_cluster_grows(sizes: list[int]):
    small, large = map(_limits, sizes)
    assert small.save_limit_seconds > large.save_limit_seconds
    assert small.load_limit_seconds > large.load_limit_seconds
    assert small.interval_seconds > large.interval_seconds
    assert small.checkpoints_per_day < large.checkpoints_per_day


@given(
    accelerators=clusters,
    save_budget=st.floats(min_value=0.001, max_value=1),
    restore=st.floats(min_value=0.001, max_value=1),
    per_failure=st.integers(min_value=1, max_value=1000),
)
@settings(deadline=None)
def test_the_largest_cluster_inverts_the_limit(accelerators: int, save_budget: float, restore: float, per_failure: int):
    limits = _limits(accelerators, save_budget=save_budget, load_budget=restore, checkpoints_per_failure=per_failure)
    assert sizing.sufficient_up_to_accelerators("save", limits.save_limit_seconds, limits) == accelerators
    assert sizing.sufficient_up_to_accelerators("load", limits.load_limit_seconds, limits) == accelerators
    just_over = math.nextafter(limits.save_limit_seconds, math.inf)
    assert sizing.sufficient_up_to_accelerators("save", just_over, limits) == accelerators - 1


@given(seconds=st.floats(min_value=1e-3, max_value=1e8))
@settings(deadline=None)
def test_a_time_meets_the_limit_of_the_cluster_it_certifies_and_of_no_larger(seconds: float):
    basis = _limits(1)
    saved = sizing.sufficient_up_to_accelerators("save", seconds, basis)
    loaded = sizing.sufficient_up_to_accelerators("load", seconds, basis)
    assert _limits(saved + 1).save_limit_seconds < seconds
    assert _limits(loaded + 1).load_limit_seconds < seconds
    assert saved == 0 or seconds <= _limits(saved).save_limit_seconds
    assert loaded == 0 or seconds <= _limits(loaded).load_limit_seconds


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_no_cluster_follows_from_an_impossible_time(seconds: float):
    with pytest.raises(ValueError, match="not a valid time of a save or load"):
        sizing.sufficient_up_to_accelerators("save", seconds, _limits(16_000))


def test_demand_of_the_largest_model_on_100_000_accelerators():
    limits = _limits(100_000)
    asked = demand(layout("llama3-1t", mode="full"), limits)
    assert asked.layout == "llama3-1t-full"
    assert asked.save_limit_seconds == limits.save_limit_seconds
    assert asked.save_bytes_per_second == asked.cluster_save_bytes_per_second
    assert asked.save_bytes_per_second == pytest.approx(16_564_174_094_592 / limits.save_limit_seconds)
    assert asked.bytes_per_day == pytest.approx(asked.sustained_bytes_per_second * 86_400)
    assert (asked.writers, asked.nodes, asked.copies) == (1024, 128, 195)
    assert asked.per_node_bytes_per_second == pytest.approx(asked.save_bytes_per_second / 128)
    assert asked.restore_all_bytes_per_second == pytest.approx(195 * asked.cluster_save_bytes_per_second)


def test_a_subset_requires_one_nodes_part():
    limits = _limits(16_000)
    asked = demand(layout("llama3-70b", mode="subset"), limits)
    assert asked.save_bytes_per_second == pytest.approx(122_300_821_504 / limits.save_limit_seconds)
    assert asked.load_bytes_per_second == pytest.approx(122_300_821_504 / limits.load_limit_seconds)
    assert asked.cluster_bytes == 978_406_572_032
    assert (asked.writers, asked.nodes) == (64, 8)
    assert asked.per_node_bytes_per_second == pytest.approx(asked.save_bytes_per_second)


def test_a_cluster_smaller_than_a_copy_still_restores_one():
    assert demand(layout("llama3-405b", mode="subset"), _limits(8)).copies == 1


def test_fewer_writers_than_a_node_has_accelerators_write_all():
    asked = demand(layout("llama3-8b", mode="open", processes=3), _limits(16_000))
    assert (asked.writers, asked.nodes) == (3, 1)
    assert asked.per_node_bytes_per_second == pytest.approx(asked.cluster_save_bytes_per_second)


@given(name=st.sampled_from(list(MODELS)), scale=st.floats(min_value=1e-4, max_value=1.0), accelerators=clusters)
@settings(max_examples=50, deadline=None)
def test_at_reduced_scale_the_rates_stay(name: str, scale: float, accelerators: int):
    limits = _limits(accelerators)
    reduced = layout(name, mode="subset", scale=scale)
    asked, full = demand(reduced, limits), demand(layout(name, mode="subset"), limits)
    assert asked.save_bytes_per_second == full.save_bytes_per_second
    assert asked.cluster_save_bytes_per_second == full.cluster_save_bytes_per_second
    assert reduced.bytes / asked.save_limit_seconds == pytest.approx(full.save_bytes_per_second)
    assert reduced.bytes / asked.load_limit_seconds == pytest.approx(full.load_bytes_per_second)

"""The knee of a ramp over request depths: the smallest depth whose rates are close to the highest rates."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.facts.request_depth import RampStep, RequestDepth
from pytest_ckpt.sizing.ramp import NEARLY, knee

rates = st.floats(1.0, 1e12)


def steps_of(rates_by_depth):
    return [
        RampStep(depth=depth, save_bytes_per_second=save, load_bytes_per_second=load)
        for depth, (save, load) in rates_by_depth.items()
    ]


ramps = st.dictionaries(st.integers(1, 64), st.tuples(rates, rates), min_size=1, max_size=7).map(steps_of)


@pytest.mark.parametrize(
    ("rates_by_depth", "depth"),
    [
        ({1: (1.0, 1.0), 2: (2.0, 2.0), 4: (4.0, 4.0), 8: (4.1, 4.1)}, 4),
        ({1: (1.0, 1.0), 2: (2.0, 2.0), 4: (4.0, 4.0), 8: (4.3, 4.3)}, 8),
        ({1: (1.0, 1.0), 2: (1.0, 1.0), 4: (1.0, 1.0)}, 1),
        # Saves reach their best rate with one request in flight, loads with four.
        ({1: (5.0, 1.0), 2: (5.0, 2.0), 4: (5.0, 4.0), 8: (5.0, 4.0)}, 4),
        # More requests slow the saves and speed up the loads: neither rate may be far below its best.
        ({1: (10.0, 4.0), 2: (8.0, 8.0), 4: (2.0, 10.0)}, 2),
        ({16: (1.0, 1.0)}, 16),
        ({1: (0.0, 0.0), 2: (0.0, 0.0)}, 1),
    ],
)
def test_the_smallest_depth_that_is_nearly_the_best(rates_by_depth, depth):
    assert knee(steps_of(rates_by_depth)) == depth


def test_a_ramp_without_steps_is_refused():
    with pytest.raises(ValueError, match="no knee"):
        knee([])


@given(ramps)
def test_the_chosen_depth_is_the_smallest_within_five_percent_of_the_best(steps):
    alike = steps_of({s.depth: (s.save_bytes_per_second,) * 2 for s in steps})
    best = max(s.save_bytes_per_second for s in alike)
    near = [s.depth for s in alike if s.save_bytes_per_second >= NEARLY * best]
    assert knee(alike) == min(near)


@given(ramps, st.randoms(use_true_random=False))
def test_the_order_of_the_steps_does_not_matter(steps, chance: random.Random):
    mixed = list(steps)
    chance.shuffle(mixed)
    assert knee(mixed) == knee(steps)


@given(ramps, st.sampled_from([2.0, 1024.0, 2.0**-20]))
def test_the_unit_of_the_rates_does_not_matter(steps, factor):
    scaled = steps_of({s.depth: (s.save_bytes_per_second * factor, s.load_bytes_per_second * factor) for s in steps})
    assert knee(scaled) == knee(steps)


@given(ramps)
def test_a_depth_that_is_worse_than_all_others_changes_nothing(steps):
    worse = RampStep(
        depth=65,
        save_bytes_per_second=min(s.save_bytes_per_second for s in steps) / 2,
        load_bytes_per_second=min(s.load_bytes_per_second for s in steps) / 2,
    )
    assert knee([*steps, worse]) == knee(steps)


def test_the_higher_rate_of_two_tries_counts():
    (first,), (second,) = steps_of({4: (3.0, 1.0)}), steps_of({4: (2.0, 5.0)})
    assert first.faster(None) == first
    assert first.faster(second) == second.faster(first) == steps_of({4: (3.0, 5.0)})[0]


def test_the_sentence_names_the_origin_of_the_number():
    assert RequestDepth(requests=16, origin="set").sentence == "depth 16, set"
    default = RequestDepth(requests=2, origin="default", because="files are small")
    assert default.sentence == "depth 2, default of this program; files are small"
    found = RequestDepth(
        requests=2,
        origin="ramp",
        steps=tuple(steps_of({1: (4e8, 5e8), 2: (8e8, 1e9)})),
        step_bytes=64_000_000,
        seconds=2.5,
        because="ended after 3 of 4 tries",
    )
    assert found.sentence == (
        "depth 2, found by a ramp. Saves and loads of 64 MB, by depth: 1: 400 MB/s and 500 MB/s, 2: 800 MB/s and "
        "1 GB/s (the faster of two tries each, 2.5 s; ended after 3 of 4 tries)"
    )

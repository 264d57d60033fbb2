"""Published loads that are much faster than other loads of the result are named. Usual variations are not named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.published.results import signs_of_cached_reads


def signs(seconds):
    return signs_of_cached_reads(list(enumerate(seconds, start=1)))


@pytest.mark.parametrize(
    ("seconds", "expected_text"),
    [
        ([9.0, 9.1, 8.9, 3.1, 3.0, 3.2, 3.1], "Loads 4 to 7 took at most 3.2 s, loads 1 to 3 at least 8.9 s"),
        ([9.0, 9.1, 3.0, 3.1, 3.0, 3.2], "Loads 3 to 6 took at most 3.2 s, loads 1, 2 at least 9 s: 2.81 x faster"),
        ([6.0, 6.1, 6.2, 3.9], "Load 4 took at most 3.9 s"),
        ([9.0, 3.0, 9.1, 3.1, 9.2, 9.0], "two speeds: loads 2, 4 took 3 s to 3.1 s, the others 9 s to 9.2 s"),
        ([9.0, 9.1, 2.9, 9.2, 9.0], "Load 3 took a third or less of the median load, 9 s."),
    ],
)  # fmt: skip
def test_cached_loads_are_named(seconds, expected_text):
    (sign,) = signs(seconds)
    assert expected_text in sign


@pytest.mark.parametrize(
    "seconds",
    [
        [],
        [3.0],
        [5.0, 5.1, 4.9, 5.2],
        # Neither steadily slower loads nor one slow load in the middle is the sign of a cache.
        [3.0, 5.0, 7.0, 9.0, 11.0],
        [4.0, 4.1, 9.0, 4.2, 4.0],
        [4.0, 4.1, 14.0, 4.2, 4.0],
        # One slow load, in any place, does not make the others suspicious.
        [9.0, 3.0, 3.1, 3.0, 3.2],
        [90.0, 3.0, 3.1, 3.0, 3.2],
        [3.1, 3.0, 3.2, 3.0, 90.0],
        [9.0, 3.0],
        # Each load is a little faster, without a step.
        [8.0, 7.5, 7.0, 6.5, 6.0, 5.5],
    ],
)
def test_others_are_not(seconds):
    assert signs(seconds) == ()


@given(st.lists(st.floats(1.0, 1.49), max_size=30), st.floats(0.1, 1000))
def test_loads_that_vary_by_less_than_half_are_never_suspected(seconds, unit):
    assert signs([s * unit for s in seconds]) == ()


@given(st.lists(st.floats(1.0, 1.49), min_size=1, max_size=30), st.floats(1, 1000), st.integers(0, 30))
def test_one_slow_load_never_makes_others_suspect(others, factor, place):
    place = min(place, len(others))
    assert signs([*others[:place], 1.49 * factor, *others[place:]]) == ()


@given(
    cold=st.lists(st.floats(10, 14), min_size=2, max_size=9),
    cached=st.lists(st.floats(1, 6), min_size=1, max_size=9),
)
def test_a_step_down_is_always_found(cold, cached):
    assert len(signs([*cold, *cached])) == 1

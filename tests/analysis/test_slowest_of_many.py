"""The slowest of more ranks than were measured, against drawn truth."""

from __future__ import annotations

import math
import random
from statistics import fmean, median

import pytest

from pytest_ckpt.analysis.statistics import MINIMUM_TIMES, slowest_of

DRAWN = {
    "log-normal": lambda chance: chance.lognormvariate(0.0, 0.1),
    "gamma": lambda chance: chance.gammavariate(50.0, 1 / 50),
    "exponential tail": lambda chance: 1 + chance.expovariate(20.0),
}


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


def test_it_grows_with_the_logarithm_of_the_ranks() -> None:
    chance = random.Random("grows")
    times = [1 + chance.expovariate(20.0) for _ in range(400)]
    each = [slowest_of(times, ranks).expected for ranks in (100, 1_000, 10_000)]
    assert each[2] - each[1] == pytest.approx(each[1] - each[0])
    assert each[1] - each[0] == pytest.approx(math.log(10) / 20, rel=0.3)


def test_ranks_that_are_all_alike_stay_so_and_few_times_say_nothing() -> None:
    found = slowest_of([1.0] * MINIMUM_TIMES, 1_000)
    assert found is not None
    assert (found.low, found.expected, found.high) == (1.0, 1.0, 1.0)
    assert slowest_of([1.0] * (MINIMUM_TIMES - 1), 1_000) is None


def test_a_tail_that_few_ranks_make_is_less_sure_and_that_of_one_says_nothing_of_others() -> None:
    """Twenty operations of 8 ranks, of which some stand behind a slow server."""
    chance = random.Random("slow server")

    def found(slow: int):
        times = [(1.2 if rank < slow else 1.0) + chance.expovariate(200.0) for _ in range(20) for rank in range(8)]
        return slowest_of(times, 512, [*range(8)] * 20)

    assert found(1) is None
    assert found(2).high - found(2).low > found(8).high - found(8).low
    assert slowest_of([1.0] * 160, 512, [*range(8)] * 20).expected == 1.0

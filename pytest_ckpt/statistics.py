"""Comparing two sets of times without assumptions on their distribution. Pure; same numbers give the same answer."""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

RESAMPLES = 4_000
CONFIDENCE = 0.95
FEWEST = 5
"""Fewer values than these say nothing about their own spread: no interval is given."""

_SEED = 20_250_101

WINDOWS = (3, 5, 8, 13, 21)
MOST_BEFORE = 40
ALARM_PROBABILITY = 0.005


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
    """How two sets of times compare: median of the second over that of the first, and its confidence interval.

    ``low`` and ``high`` are None where there are too few values for one.
    """

    ratio: float
    low: float | None
    high: float | None

    @property
    def is_change(self) -> bool:
        """Whether the interval leaves out that nothing changed."""
        return self.low is not None and self.high is not None and not self.low <= 1.0 <= self.high


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """The newest ``runs`` values differ from the ``before`` values ahead of them; ``ratio`` is of their medians."""

    runs: int
    before: int
    ratio: float
    probability: float


def ratio_of_medians(before: Sequence[float], after: Sequence[float]) -> Ratio:
    """Compare two sets of times by their medians, with a 95 % percentile bootstrap interval of the ratio.

    Both sets are resampled 4,000 times, each by itself, from a fixed seed (Efron and Tibshirani, An Introduction to
    the Bootstrap, chapter 13). The operations of one run share its conditions: the interval is about these two runs,
    not about all runs that could have been made.
    """
    ratio = median(after) / median(before)
    if min(len(before), len(after)) < FEWEST:
        return Ratio(ratio=ratio, low=None, high=None)
    rng = random.Random(_SEED)
    found = sorted(
        median(rng.choices(after, k=len(after))) / median(rng.choices(before, k=len(before))) for _ in range(RESAMPLES)
    )
    tail = round((1 - CONFIDENCE) / 2 * RESAMPLES)
    return Ratio(ratio=ratio, low=found[tail], high=found[-tail - 1])


def find_change(values: Sequence[float]) -> Change | None:
    """Say whether the newest values of a series differ from those before them; None where nothing shows.

    The newest 3, 5, 8, 13 and 21 values are each compared with the up to 40 before them by the exact two-sided rank
    test of Mann and Whitney, each at a fifth of 0.5 %. So on a series whose values come in no particular order, a look
    raises a false alarm in at most 0.5 % of all cases, whatever the distribution of the noise. The price: a change
    shows after 3 runs only when at least 21 came before, after 5 when 9 did, after 8 when 6 did.
    Of several windows that show a change the least probable one is told.
    """
    found = None
    for runs in WINDOWS:
        after, before = values[-runs:], values[-runs - MOST_BEFORE : -runs]
        if len(after) < runs or not before:
            continue
        probability = rank_test(before, after)
        if probability <= ALARM_PROBABILITY / len(WINDOWS) and (found is None or probability < found.probability):
            found = Change(runs=runs, before=len(before), ratio=median(after) / median(before), probability=probability)
    return found


def rank_test(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the exact two-sided probability of a difference in ranks as large as this, if there is none.

    Mann and Whitney, On a test of whether one of two random variables is stochastically larger than the other (1947).
    A tie counts against a difference, so that the probability is never too small.
    """
    wins = sum(a > b for a in after for b in before)
    losses = sum(a < b for a in after for b in before)
    pairs = len(before) * len(after)
    # At least so many pairs would have to go the other way: ties go that way too.
    extreme = pairs - max(wins, losses)
    counts = _counts(len(after), len(before))
    return min(1.0, 2 * sum(counts[: extreme + 1]) / sum(counts))


@functools.lru_cache(maxsize=512)
def _counts(some: int, others: int) -> tuple[int, ...]:
    """Return, for each number of pairs that ``some`` values can win against ``others``, the orders that give it.

    They are the coefficients of the Gaussian binomial of (some + others, some).
    """
    counts = [1] + [0] * (some * others)
    for factor in range(1, some + 1):
        for power in range(len(counts) - 1, others + factor - 1, -1):
            counts[power] -= counts[power - others - factor]
        for power in range(factor, len(counts)):
            counts[power] += counts[power - factor]
    return tuple(counts)

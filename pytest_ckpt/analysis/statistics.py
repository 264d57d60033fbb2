"""Statistics of operation times: two sets, change in a series, and the slowest of many ranks. Pure.

Results are deterministic. Comparisons and changes need no assumption on the distribution of times.

The slowest rank of a larger job takes longer, because its time is the maximum of more times. To estimate this time, the
excesses of times over a high threshold are modelled as exponential. The exponential distribution is the generalized
Pareto distribution with shape 0, the limit for normal, log-normal, gamma and exponential times (Pickands, Annals of
Statistics 3, 1975). The time of the slowest of N ranks then follows Gumbel's law and grows with the logarithm of N.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ckpt.facts.strategy_results import StepBatch, StepsOfSave, Training


_T = TypeVar("_T")

RESAMPLES = 4_000
CONFIDENCE = 0.95
MINIMUM = 5
"""The minimum number of values for a confidence interval."""

_SEED = 20_250_101

WINDOWS = (5, 8, 13, 21)
MAXIMUM_BEFORE = 40
ALARM_PROBABILITY = 0.0001
"""The probability of a false alarm when the newest values are tested once, over all windows.

A nightly run tests 365 times a year, so the value is far below 1 %.
"""

MINIMUM_RUNS = 20
"""The minimum number of runs in which a change can be detected: the newest 8 runs after 12 others."""

_RESAMPLES_OF_STEPS = 1_000

MINIMUM_TIMES = 80
"""The minimum number of times for an estimate of the tail; a tenth of the times is above the threshold."""

_TAIL = 0.1
_EULER = 0.5772156649015329
_LOW, _HIGH = 0.05, 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
    """The ratio of two sets of times: the median of the second set divided by the median of the first set.

    ``low`` and ``high`` are the ends of the 95 % confidence interval. Both are None if a set has fewer than five
    values.
    """

    ratio: float
    low: float | None
    high: float | None

    @property
    def is_change(self) -> bool:
        """Whether the interval excludes a ratio of 1 (no change)."""
        return self.low is not None and self.high is not None and not self.low <= 1.0 <= self.high


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A detected change: the newest ``runs`` values of a series differ from the preceding ``before`` values.

    ``ratio`` is the newer median divided by the older median. ``probability`` is the probability of such a difference
    without a real change.
    """

    runs: int
    before: int
    ratio: float
    probability: float


def ratio_of_medians(before: Sequence[float], after: Sequence[float]) -> Ratio:
    """Return the ratio of the medians of two sets of times, with a 95 % percentile bootstrap interval.

    Each set is resampled separately 4,000 times, from a fixed seed (Efron and Tibshirani, An Introduction to the
    Bootstrap, chapter 13). The interval is valid only for these two runs, because all operations of a run share the
    conditions of this run.
    """
    ratio = median(after) / median(before)
    if min(len(before), len(after)) < MINIMUM:
        return Ratio(ratio=ratio, low=None, high=None)
    low, high = interval(lambda again: median(again(after)) / median(again(before)))
    return Ratio(ratio=ratio, low=low, high=high)


class Resample:
    """Draws random samples with replacement, from a fixed seed. A sample has as many values as the original."""

    def __init__(self) -> None:
        self._random = random.Random(_SEED)

    def __call__(self, values: Sequence[_T]) -> list[_T]:
        """Return a random sample of ``values``, drawn with replacement."""
        return self._random.choices(values, k=len(values))


def interval(figure: Callable[[Resample], float], resamples: int = RESAMPLES) -> tuple[float, float]:
    """Return the ends of the 95 % percentile bootstrap interval of a statistic.

    ``figure`` receives a `Resample`, draws samples with it, and returns the statistic of these samples. ``resamples``
    is the number of these calls.
    """
    again = Resample()
    found = sorted(figure(again) for _ in range(resamples))
    tail = round((1 - CONFIDENCE) / 2 * resamples)
    return found[tail], found[-tail - 1]


def find_change(values: Sequence[float]) -> Change | None:
    """Return the change between the newest values of a series and the values before them; None without a change.

    Four windows are tested: the newest 5, 8, 13 and 21 values. Each window is compared with up to 40 preceding values
    by the exact two-sided rank test of Mann and Whitney. The significance level of each test is a quarter of 0.01 %.
    The newest 5 values therefore need at least 22 preceding values, the newest 8 values need 12, and the newest 13 need
    8.

    If a window shows no change, its preceding values are searched for an earlier change. After an earlier change, the
    window is compared again with only the values since this change. An earlier speed-up therefore cannot hide a later
    slowdown. If several windows show a change, the shortest of these windows determines the direction. The most
    significant change in this direction is returned.

    If nothing changes, the probability of a false alarm is at most 0.05 %, for any distribution of the noise. This is
    the sum of 0.01 % for the first tests of the four windows, and 0.01 % for each of the four repeated tests.
    """
    return _newest_change(values, look_for_steps=True)


def _newest_change(values: Sequence[float], *, look_for_steps: bool) -> Change | None:
    found: list[Change] = []
    for runs in WINDOWS:
        after, before = values[-runs:], values[-runs - MAXIMUM_BEFORE : -runs]
        if len(after) < runs or not before:
            continue
        change = _change_between(before, after)
        if change is None and look_for_steps and (step := _newest_change(before, look_for_steps=False)):
            change = _change_between(before[-step.runs :], after)
        if change:
            found.append(change)
    alike = [change for change in found if (change.ratio > 1) == (found[0].ratio > 1)]
    return min(alike, key=lambda change: change.probability, default=None)


def _change_between(before: Sequence[float], after: Sequence[float]) -> Change | None:
    probability = rank_test(before, after)
    if probability > ALARM_PROBABILITY / len(WINDOWS):
        return None
    ratio = median(after) / median(before)
    return Change(runs=len(after), before=len(before), ratio=ratio, probability=probability)


def rank_test(before: Sequence[float], after: Sequence[float]) -> float:
    """Return the exact two-sided probability of a rank difference at least as large as the observed difference.

    The null hypothesis is that both sets have the same distribution. A pair of equal values counts as evidence for the
    null hypothesis, so ties can only make the probability too large. Source: Mann and Whitney, On a test of whether one
    of two random variables is stochastically larger than the other (1947).
    """
    ordered = sorted(before)
    wins = sum(bisect.bisect_left(ordered, a) for a in after)
    losses = sum(len(ordered) - bisect.bisect_right(ordered, a) for a in after)
    pairs = len(before) * len(after)
    # The number of pairs that do not favour the set with more wins; ties are such pairs.
    extreme = pairs - max(wins, losses)
    return min(1.0, 2 * _shares(len(after), len(before))[extreme])


@functools.lru_cache(maxsize=512)
def _shares(some: int, others: int) -> tuple[float, ...]:
    """Return the cumulative distribution of the rank test: element k is the share of orders with at most k wins.

    An order is a ranking of the values of both sets, which have ``some`` and ``others`` values. A win is a pair in
    which the value of the first set is larger. The number of orders with exactly k wins is a coefficient of the
    Gaussian binomial of (some + others, some).
    """
    counts = [1] + [0] * (some * others)
    for factor in range(1, some + 1):
        for power in range(len(counts) - 1, others + factor - 1, -1):
            counts[power] -= counts[power - others - factor]
        for power in range(factor, len(counts)):
            counts[power] += counts[power - factor]
    whole = sum(counts)
    return tuple(count / whole for count in itertools.accumulate(counts))


@dataclass(frozen=True, kw_only=True, slots=True)
class Slowdown:
    """The relative slowdown of training steps during saves (``share``), with its 95 % interval.

    ``low`` and ``high`` are None if fewer than five batches of steps ran during saves.
    """

    share: float
    low: float | None
    high: float | None


def slowdown(training: Training) -> Slowdown | None:
    """Return the slowdown of training over all saves; None if no step ran during a save.

    The slowdown is the additional time of the steps during saves, divided by the time of equally many undisturbed
    steps. An undisturbed step has the median time of the steps around the same save. The interval is a percentile
    bootstrap from a fixed seed (Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13). For each save, two
    sets are resampled: the undisturbed steps, and the batches of steps during the save.
    """
    saves = [save for save in training.saves if save.during]
    if not saves:
        return None
    share = _share_of_saves([(save.undisturbed_seconds, save.during) for save in saves])
    if sum(len(save.during) for save in saves) < MINIMUM:
        return Slowdown(share=share, low=None, high=None)
    low, high = interval(
        lambda again: _share_of_saves([_resampled(save, again) for save in saves]), _RESAMPLES_OF_STEPS
    )
    return Slowdown(share=share, low=low, high=high)


def _resampled(save: StepsOfSave, again: Resample) -> tuple[float, Sequence[StepBatch]]:
    return statistics.median(again((*save.before_seconds, *save.after_seconds))), again(save.during)


def _share_of_saves(saves: Sequence[tuple[float, Sequence[StepBatch]]]) -> float:
    alone = sum(each * batch.steps for each, during in saves for batch in during)
    return sum(batch.seconds for _, during in saves for batch in during) / alone - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class SlowestOfMany:
    """The time of the slowest of ``ranks`` ranks, divided by the time of the median rank.

    ``expected`` is the mean. ``low`` and ``high`` are the 5 % and 95 % quantiles, widened by the uncertainty of the
    estimate.
    """

    ranks: int
    expected: float
    low: float
    high: float


def slowest_of(times: Sequence[float], ranks: int, of: Sequence[int] = ()) -> SlowestOfMany | None:
    """Return the estimated time of the slowest of ``ranks`` ranks, relative to the median rank.

    ``times`` are ratios: the caller has divided them by the time of the median rank. ``of`` contains the rank number of
    each time. Returns None for fewer than ``MINIMUM_TIMES`` times, and if all slow times belong to one rank.

    Times of one rank are not independent: a rank with a slow server is late in each operation. If few ranks are slow,
    the interval is therefore wider.
    """
    if len(times) < MINIMUM_TIMES or ranks < 1:
        return None
    ordered = sorted(times)
    count = math.ceil(len(ordered) * _TAIL)
    threshold = ordered[-count - 1]
    spread = fmean(time - threshold for time in ordered[-count:])
    beyond = math.log(ranks * count / len(ordered)) if ranks * count > len(ordered) else 0.0

    late = {rank for time, rank in zip(times, of, strict=False) if time > threshold}
    if len(late) == 1:
        return None
    # The relative error of a mean of n excesses is 1 / sqrt(n).
    unsure = 1 / math.sqrt(min(count, len(late) or count))

    def quantile(share: float, factor: float) -> float:
        return max(threshold, threshold + factor * spread * (beyond - math.log(-math.log(share))))

    return SlowestOfMany(
        ranks=ranks,
        expected=threshold + spread * (beyond + _EULER),
        low=quantile(_LOW, 1 - unsure),
        high=quantile(_HIGH, 1 + unsure),
    )


WINDOW_ROUNDS, MAXIMUM_ROUNDS = 5, 25
MAXIMUM_RANGE, MAXIMUM_SLOPE = 0.20, 0.10
"""The maximum range of a steady window, and the maximum change of its line of best fit, as shares of the mean.

A steady window has five rounds and must be reached within 25 rounds. Source: SNIA Solid State Storage Performance Test
Specification.
"""


def unsteadiness(window: Sequence[float]) -> tuple[float, float]:
    """Return (range, change of the line of best fit) of a window, both divided by the mean of the window."""
    mean = statistics.fmean(window)
    slope = statistics.linear_regression(range(len(window)), window).slope
    return (max(window) - min(window)) / mean, abs(slope) * (len(window) - 1) / mean


def steady_round(rounds: Sequence[float]) -> int | None:
    """Return the number (from 1) of the round that completes a steady window; None without a steady window."""
    for end in range(WINDOW_ROUNDS, min(len(rounds), MAXIMUM_ROUNDS) + 1):
        spread, change = unsteadiness(rounds[end - WINDOW_ROUNDS : end])
        if spread <= MAXIMUM_RANGE and change <= MAXIMUM_SLOPE:
            return end
    return None

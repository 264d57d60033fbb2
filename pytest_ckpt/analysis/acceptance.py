"""Acceptance sampling: statements about all operations of a storage, from a number of independent trials. Pure.

A trial is one save or load, which either meets or misses its time limit. Bounds of shares are exact (Clopper and
Pearson, Biometrika 26, 1934). The tolerance bound is an estimate, because it assumes log-normal times. Its k-factor
follows from the non-central t distribution (Owen, Sandia monograph SCR-607, 1963).
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Sequence
from functools import lru_cache

from pytest_ckpt.facts.verdict import TimeEstimate

CONFIDENCE = 0.95
SHARE = 0.99
"""The share of all operations that a tolerance bound covers."""

MLPERF_TRIALS = 10
"""The number of saves and loads that the submission rules of MLPerf Storage v2.0 require (MLCommons, 2025)."""

MINIMUM_TIMES = 5
"""The minimum number of times for a tolerance bound."""

_LOW_FITS = ((5, 0.878), (8, 0.903), (10, 0.917), (15, 0.938), (20, 0.950), (30, 0.964), (50, 0.976), (100, 0.987),
             (200, 0.993), (500, 0.997))  # fmt: skip
"""Pairs (count of times, fit): 5 % of log-normal samples with this count have a lower fit.

Source: Filliben, Technometrics 17, 1975; above 100 times, 10,000 simulated samples. Between two counts the value of the
smaller count applies.
"""

_NORMAL = statistics.NormalDist()
_HALVINGS = 60
# Sums of probabilities are computed to about this accuracy.
_ROUNDING = 1e-9
_STEPS_OF_SHARES = 1_000
_STEPS = 1_000
# The integration covers this many standard deviations of a chi variable on each side; the density beyond is negligible.
_REACH = 9.0
_MAXIMUM_K = 200.0


def least_share(trials: int, met: int, confidence: float = CONFIDENCE) -> float:
    """Return the exact one-sided lower bound of the share of all operations that meet their limit.

    In ``trials`` trials, ``met`` operations met the limit. If the true share were below the bound, ``met`` or more
    trials would meet the limit with a probability below ``1 - confidence``. If all trials met the limit, the bound is
    ``(1 - confidence) ** (1 / trials)``.
    """
    if not 0 <= met <= trials or not trials:
        raise ValueError(f"{met} of {trials} trials")
    alpha = 1 - confidence
    if met in (0, trials):
        return math.pow(alpha, 1 / trials) if met else 0.0
    low, high = 0.0, met / trials
    for _ in range(_HALVINGS):
        share = (low + high) / 2
        if _at_least(met, trials, share) < alpha:
            low = share
        else:
            high = share
    return low


def shown_share(trials: int, met: int, confidence: float = CONFIDENCE) -> float:
    """Return `least_share`, rounded down to a tenth of a percent for printing."""
    return math.floor(least_share(trials, met, confidence) * _STEPS_OF_SHARES) / _STEPS_OF_SHARES


def largest_share(trials: int, confidence: float = CONFIDENCE) -> float:
    """Return the largest share of lost checkpoints that remains possible after ``trials`` trials without a loss.

    The share is rounded up to a tenth of a percent: 63.2 % for 3 trials with the default confidence.
    """
    return 1 - shown_share(trials, trials, confidence)


def trials_for(share: float, confidence: float = CONFIDENCE, misses: int = 0) -> int:
    """Return the number of trials needed to prove that at least ``share`` of all operations meet their limit.

    Up to ``misses`` trials may miss the limit. The result is the smallest n for which a wrong proof is improbable: if
    only ``share`` of all operations meet the limit, the probability of at most ``misses`` misses in n trials is at most
    ``1 - confidence``.

    Examples: 59 for 95 %, 299 for 99 %, 473 for 99 % with one miss. Exact binomial: Dodge and Romig, Sampling
    Inspection Tables, 1959.
    """

    def shows(trials: int) -> bool:
        return _at_least(trials - misses, trials, share) <= (1 - confidence) * (1 + _ROUNDING)

    most = misses + 1
    while not shows(most):
        most *= 2
    return bisect.bisect_left(range(most), True, lo=misses + 1, key=shows)


def shows_ten_of_ten(share: float, confidence: float, misses: int) -> bool:
    """Return whether a sampling plan proves at least the share that ten trials without a miss prove.

    The plan consists of the number of trials that `trials_for` returns; ``misses`` of these trials miss the limit. Both
    shares are lower bounds with a confidence of ``CONFIDENCE``.
    """
    trials = trials_for(share, confidence, misses)
    return least_share(trials, trials - misses) >= least_share(MLPERF_TRIALS, MLPERF_TRIALS)


def _at_least(met: int, trials: int, share: float) -> float:
    """Return the probability of ``met`` or more successes in ``trials`` trials.

    Each trial succeeds with the probability ``share``.
    """
    some, none = math.log(share), math.log1p(-share)
    ways = math.lgamma(trials + 1)
    return math.fsum(
        math.exp(ways - math.lgamma(i + 1) - math.lgamma(trials - i + 1) + i * some + (trials - i) * none)
        for i in range(met, trials + 1)
    )


def tolerance(seconds: Sequence[float], share: float = SHARE, confidence: float = CONFIDENCE) -> TimeEstimate | None:
    """Return the log-normal tolerance bound of times in seconds.

    With the confidence ``confidence``, at least the share ``share`` of all times is below the bound. ``fit`` of the
    result is the correlation of the normal probability plot of the logarithms (Filliben, Technometrics 17, 1975).
    ``is_doubtful`` is true if at least 95 % of log-normal samples fit better.

    Returns None for fewer than ``MINIMUM_TIMES`` times, for times of 0, and for times without variance.
    """
    if len(seconds) < MINIMUM_TIMES or min(seconds) <= 0:
        return None
    logs = sorted(map(math.log, seconds))
    spread = statistics.stdev(logs)
    if not spread:
        return None
    bound = statistics.fmean(logs) + k_factor(len(logs), share, confidence) * spread
    fit = statistics.correlation(logs, _medians_of_order(len(logs)))
    low = max(value for count, value in _LOW_FITS if count <= len(logs))
    return TimeEstimate(seconds=math.exp(bound), share=share, confidence=confidence, fit=fit, is_doubtful=fit < low)


def _medians_of_order(count: int) -> list[float]:
    """Return the medians of normal order statistics, by Filliben's approximation."""
    last = math.pow(0.5, 1 / count)
    shares = [1 - last, *((i - 0.3175) / (count + 0.365) for i in range(2, count)), last]
    return [_NORMAL.inv_cdf(share) for share in shares]


@lru_cache(maxsize=64)
def k_factor(count: int, share: float = SHARE, confidence: float = CONFIDENCE) -> float:
    """Return the k-factor: the distance from a normal sample's mean to its tolerance bound, in standard deviations."""
    shift = _NORMAL.inv_cdf(share) * math.sqrt(count)
    low, high = 0.0, _MAXIMUM_K
    for _ in range(_HALVINGS):
        k = (low + high) / 2
        if _noncentral_t(k * math.sqrt(count), count - 1, shift) < confidence:
            low = k
        else:
            high = k
    return high


def _noncentral_t(t: float, freedom: int, shift: float) -> float:
    """Return the probability P((Z + shift) / S <= t) of the non-central t distribution, by Simpson's rule over S.

    Z is a standard normal variable. The square of S is a chi-square variable divided by its degrees of freedom,
    ``freedom``.
    """
    width = _REACH / math.sqrt(2 * freedom)
    start, end = max(0.0, 1 - width), 1 + width
    step = (end - start) / _STEPS
    constant = math.log(2) + freedom / 2 * math.log(freedom / 2) - math.lgamma(freedom / 2)

    def density(s: float) -> float:
        if s <= 0:
            return 0.0
        return math.exp(constant + (freedom - 1) * math.log(s) - freedom * s * s / 2) * _NORMAL.cdf(t * s - shift)

    inner = math.fsum((4 if i % 2 else 2) * density(start + i * step) for i in range(1, _STEPS))
    return (density(start) + inner + density(end)) * step / 3

"""Simulated arrays with known properties, as random distributions of operation times.

Times are relative to the array's usual time. The margin compares the usual time with the limit, as on a certificate:
with a margin of 20 %, the usual time is 80 % of the limit. In service, an array is good if at most one operation in a
hundred exceeds the limit.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_ckpt.analysis.statistics import MAXIMUM_RANGE, MAXIMUM_SLOPE, WINDOW_ROUNDS

Times = NDArray[np.float64]
Generator = np.random.Generator

GOOD_LATE_SHARE = 0.01
"""The maximum share of operations in service over the limit on a good array."""

# Standard deviations of the logarithm of a time.
_NOISE, _TAIL = 0.04, 0.35
_DRIFT, _DRIFT_OPERATIONS = 0.3, 25
_CACHE_SPEEDUP, _LARGEST_CACHE = 4.0, 14
_UNFAIR = 0.5
_SLOW_SHARE, _SLOW_SERVER = 0.1, 1.5
# The mean range of five values of a normal distribution, in standard deviations.
_RANGE_OF_FIVE = 2.326
_STEADY_NOISE = 0.02

_NORMAL = statistics.NormalDist()


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """Simulated operation times relative to the usual time. Each array has one row.

    ``slowest`` contains the times of the slowest rank, and ``others`` the times of all other ranks.
    """

    slowest: Times
    others: Times


@dataclass(frozen=True, kw_only=True, slots=True)
class Truth:
    """One kind of simulated array, such as an array with a heavy tail.

    - ``draw``: returns random times; its arguments are a generator, a margin, the number of arrays, and the number of
      operations in each series of a run; all series of an array have the same properties
    - ``late``: returns the share of operations in service that take longer than a given multiple of the usual time;
      None if another property decides whether the array is good
    """

    name: str
    sentence: str
    margins: tuple[float, ...]
    draw: Callable[[Generator, float, int, Sequence[int]], list[Drawn]]
    late: Callable[[float], float] | None
    # Whether operations of one array are independent: then a run of n accepts with the probability (1 - late) ** n.
    is_independent: bool = False

    def late_share(self, margin: float) -> float | None:
        """Return the share of operations in service that exceed the limit; None if ``late`` is None."""
        return None if self.late is None else self.late(1 / (1 - margin))

    def is_good(self, margin: float) -> bool:
        """Whether an array with this margin should pass."""
        late = self.late_share(margin)
        return margin >= 0 if late is None else late <= GOOD_LATE_SHARE

    @property
    def good_margin(self) -> float:
        """The smallest margin of a good array of this kind."""
        return 0.0 if self.late is None else margin_at(self.late, GOOD_LATE_SHARE)


def margin_at(late: Callable[[float], float], share: float) -> float:
    """Return the smallest margin at which at most this ``share`` of the operations in service exceeds the limit.

    The result is rounded up to 0.01 %. ``late`` returns the share of operations that take longer than a given multiple
    of the usual time.
    """
    low, high = -1.0, 0.99
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if late(1 / (1 - middle)) <= share else (middle, high)
    return math.ceil(high * 10_000) / 10_000


def _exceeds(ratio: float, sigma: float = _NOISE) -> float:
    """Return the probability that a log-normal time with median 1 exceeds ``ratio``."""
    return 1 - _NORMAL.cdf(math.log(ratio) / sigma)


def _noise(chance: Generator, arrays: int, count: int, sigma: float = _NOISE) -> Times:
    return np.exp(chance.normal(0.0, sigma, (arrays, count)))


def _even(times: Times) -> Drawn:
    return Drawn(slowest=times, others=times * 0.95)


def _rate(chance: Generator, margin: float, arrays: int, series: Sequence[int]) -> list[Drawn]:
    return [_even(_noise(chance, arrays, n)) for n in series]


def _tail(chance: Generator, margin: float, arrays: int, series: Sequence[int]) -> list[Drawn]:
    return [_even(_noise(chance, arrays, n, _TAIL)) for n in series]


def _tail_late(ratio: float) -> float:
    return _exceeds(ratio, _TAIL)


def _drift(chance: Generator, margin: float, arrays: int, series: Sequence[int]) -> list[Drawn]:
    """Return times of operations. An operation is slower the more operations have preceded it in the run."""
    found, done = [], 0
    for n in series:
        age = np.arange(done + 1, done + n + 1)
        done += n
        found.append(_even(_noise(chance, arrays, n) * (1 + _DRIFT * -np.expm1(-age / _DRIFT_OPERATIONS))))
    return found


def _drift_late(ratio: float) -> float:
    return _exceeds(ratio / (1 + _DRIFT))


def _cache(chance: Generator, margin: float, arrays: int, series: Sequence[int]) -> list[Drawn]:
    cached = chance.integers(0, _LARGEST_CACHE, arrays, endpoint=True)[:, np.newaxis]
    return [
        _even(_noise(chance, arrays, n) * np.where(np.arange(n)[np.newaxis, :] < cached, 1 / _CACHE_SPEEDUP, 1.0))
        for n in series
    ]


def _unfair(chance: Generator, margin: float, arrays: int, series: Sequence[int]) -> list[Drawn]:
    found = []
    for n in series:
        fair = _noise(chance, arrays, n)
        found.append(Drawn(slowest=fair * (1 + chance.uniform(0, _UNFAIR, fair.shape)), others=fair))
    return found


def _unfair_late(ratio: float) -> float:
    """Return the share of operations that take longer than ``ratio`` times the usual time.

    The share is averaged over the possible slowdowns of the slowest rank.
    """
    steps = 500
    return math.fsum(_exceeds(ratio / (1 + _UNFAIR * (i + 0.5) / steps)) for i in range(steps)) / steps


def _straggling(chance: Generator, margin: float, arrays: int, series: Sequence[int]) -> list[Drawn]:
    slow = np.where(chance.random(arrays) < _SLOW_SHARE, _SLOW_SERVER, 1.0)[:, np.newaxis]
    found = []
    for n in series:
        fair = _noise(chance, arrays, n)
        found.append(Drawn(slowest=fair * slow, others=fair * 0.95))
    return found


def _straggling_late(ratio: float) -> float:
    return (1 - _SLOW_SHARE) * _exceeds(ratio) + _SLOW_SHARE * _exceeds(ratio / _SLOW_SERVER)


def _spread(chance: Generator, margin: float, arrays: int, series: Sequence[int]) -> list[Drawn]:
    sigma = MAXIMUM_RANGE / _RANGE_OF_FIVE * (1 - margin)
    return [_even(_noise(chance, arrays, n, sigma)) for n in series]


def _slope(chance: Generator, margin: float, arrays: int, series: Sequence[int]) -> list[Drawn]:
    each = MAXIMUM_SLOPE / (WINDOW_ROUNDS - 1) * (1 - margin)
    return [_even(_noise(chance, arrays, n, _STEADY_NOISE) * np.exp(each * np.arange(n))) for n in series]


LATE_SHARES = (0.2, 0.1, 0.05, 0.02, GOOD_LATE_SHARE, 0.002)
"""The shares of late operations for which each kind of array is tested, in addition to other margins."""


def _margins(late: Callable[[float], float], *more: float) -> tuple[float, ...]:
    tried = [margin_at(late, share) for share in LATE_SHARES]
    return tuple(sorted({-0.3, -0.1, 0.0, *more, *tried, round(tried[-1] + 0.1, 2)}))


_STEADY = (-3.0, -2.0, -1.5, -1.0, -0.75, -0.5, -0.25, -0.1, 0.0, 0.1, 0.25, 0.5)

TRUTHS: tuple[Truth, ...] = (
    Truth(
        name="rate",
        sentence="A steady array: the time of an operation is log-normal with sigma 0.04.",
        margins=_margins(_exceeds, -0.05),
        draw=_rate,
        late=_exceeds,
        is_independent=True,
    ),
    Truth(
        name="tail",
        sentence="A heavy tail: the time of an operation is log-normal with sigma 0.35. One operation in 100 takes "
        "2.3 times the median.",
        margins=_margins(_tail_late, 0.15),
        draw=_tail,
        late=_tail_late,
        is_independent=True,
    ),
    Truth(
        name="drift",
        sentence="An array that becomes slower with use: its first operation takes 1.2 % more than the usual time, "
        "later ones up to 30 % more.",
        margins=_margins(_drift_late, 0.05, 0.1, 0.15, 0.2),
        draw=_drift,
        late=_drift_late,
    ),
    Truth(
        name="cache",
        sentence="A cache in the array makes the first operations of a run four times as fast: 0 to 14 operations, "
        "each number equally likely. In service, other jobs fill the cache.",
        margins=_margins(_exceeds, -0.05),
        draw=_cache,
        late=_exceeds,
    ),
    Truth(
        name="unfair",
        sentence="Unfair service: in each operation one rank takes up to 1.5 times as long as the others.",
        margins=_margins(_unfair_late, 0.15),
        draw=_unfair,
        late=_unfair_late,
        is_independent=True,
    ),
    Truth(
        name="straggling server",
        sentence="For 10 % of the time one server takes 1.5 times as long. Each slow period is longer than a run.",
        margins=_margins(_straggling_late, 0.2),
        draw=_straggling,
        late=_straggling_late,
    ),
)
"""Arrays for requirements with a time limit."""

TRUTHS_OF_STEADINESS: tuple[Truth, ...] = (
    Truth(
        name="spread",
        sentence="Times vary: at margin 0 the mean range of five saves is 20 % of the mean, the limit of SNIA.",
        margins=_STEADY,
        draw=_spread,
        late=None,
    ),
    Truth(
        name="trend",
        sentence="Each save is slower than the previous one: at margin 0 by 2.5 %, which is 10 % over five saves, the "
        "limit of SNIA.",
        margins=_STEADY,
        draw=_slope,
        late=None,
    ),
)
"""Arrays for the requirement that saves reach a steady state."""


def truth_of(name: str) -> Truth:
    return next(truth for truth in (*TRUTHS, *TRUTHS_OF_STEADINESS) if truth.name == name)

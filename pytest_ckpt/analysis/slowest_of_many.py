"""The slowest of more ranks than were measured: it takes longer though no rank is slower. Pure.

What decides is the tail of the ranks' times. Over a high threshold excesses are taken as exponential (of the
generalized Pareto family the case of shape 0, in which normal, log-normal, gamma and exponential times end; Pickands,
Annals of Statistics 3, 1975), so that the slowest of N follows Gumbel's law: it grows with the logarithm of N.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

MINIMUM_TIMES = 80
"""Times without which no tail is seen: a tenth of them lies above the threshold."""

_TAIL = 0.1
_EULER = 0.5772156649015329
_LOW, _HIGH = 0.05, 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class SlowestOfMany:
    """What the slowest of ``ranks`` takes, in units of the median rank: on average, and in the middle 90 %."""

    ranks: int
    expected: float
    low: float
    high: float


def slowest_of(times: Sequence[float], ranks: int, of: Sequence[int] = ()) -> SlowestOfMany | None:
    """Return what the slowest of so many ranks takes, by ``times`` of ranks in units of the median; None of too few.

    ``of`` says which rank each time is of. Times of one rank are not independent: a rank behind a slow server is late
    in each operation. So a tail that few ranks make is less sure than its number of times says; that of one rank alone
    says nothing of others.
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
    # The mean of so few excesses is itself known only to one part in the root of their count.
    unsure = 1 / math.sqrt(min(count, len(late) or count))

    def quantile(share: float, factor: float) -> float:
        return max(threshold, threshold + factor * spread * (beyond - math.log(-math.log(share))))

    return SlowestOfMany(
        ranks=ranks,
        expected=threshold + spread * (beyond + _EULER),
        low=quantile(_LOW, 1 - unsure),
        high=quantile(_HIGH, 1 + unsure),
    )

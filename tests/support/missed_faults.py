"""The probability that a check with repeated trials misses a fault that occurs only in some trials."""

from __future__ import annotations

SHARES = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5)
TRIALS = (1, 3, 10, 59, 60, 100, 299, 1000)


def miss_probability(share: float, trials: int) -> float:
    """Return the probability that a check with this number of trials misses a fault.

    ``share`` is the share of trials in which the fault occurs.
    """
    return (1 - share) ** trials

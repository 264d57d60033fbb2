"""When a series of rounds is steady. Pure.

Source: SNIA Solid State Storage Performance Test Specification: in a window of five rounds the values lie within a
range of 20 % of their mean, and the line of best fit changes by at most 10 % of it; to be reached within 25 rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

WINDOW_ROUNDS = 5
MAXIMUM_ROUNDS = 25
MAXIMUM_RANGE = 0.20
MAXIMUM_SLOPE = 0.10


def unsteadiness(window: Sequence[float]) -> tuple[float, float]:
    """Return, as shares of the mean, the range of a window and by how much its line of best fit changes over it."""
    mean = statistics.fmean(window)
    slope = statistics.linear_regression(range(len(window)), window).slope
    return (max(window) - min(window)) / mean, abs(slope) * (len(window) - 1) / mean


def steady_round(rounds: Sequence[float]) -> int | None:
    """Return the number (from 1) of the round that completed a steady window; None without such a window."""
    for end in range(WINDOW_ROUNDS, min(len(rounds), MAXIMUM_ROUNDS) + 1):
        spread, change = unsteadiness(rounds[end - WINDOW_ROUNDS : end])
        if spread <= MAXIMUM_RANGE and change <= MAXIMUM_SLOPE:
            return end
    return None

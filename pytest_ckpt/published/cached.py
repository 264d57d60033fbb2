"""Signs in the times alone that loads came from a cache. Pure.

Every load reads as many bytes as the others, so storage alone gives times that differ by some percent. Times that fall
to two thirds or less within one phase have a cause, and the usual one is that part was still in a cache.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from pytest_ckpt.support.units import format_seconds

TWO_SPEEDS = 1.5
"""Ratio between two groups of loads from which on they count as two speeds: our own bound."""

# One slow load is an outlier; loads that follow it are not fast because of it.
_MINIMUM_SLOW = 2

ONE_FAST = 3.0
"""The ratio for a load that is alone."""


def signs_of_cached_reads(loads: Sequence[tuple[int, float]]) -> tuple[str, ...]:
    """Return sentences that name loads which are too fast beside the others; ``loads`` are (number, seconds)."""
    if len(loads) < 2:
        return ()
    if later := _faster_from(loads):
        return (later,)
    if two := _two_speeds(loads):
        return (two,)
    # Of two loads the faster one: beside a slow one it is not suspect.
    middle = statistics.median_low(seconds for _, seconds in loads)
    alone = [number for number, value in loads if value * ONE_FAST <= middle]
    if alone:
        return (f"{_named(alone)} took a third or less of the median load, {format_seconds(middle)}.",)
    return ()


def _faster_from(loads: Sequence[tuple[int, float]]) -> str:
    """Say from which load on all were faster than all before; empty when there is no such step.

    Two loads at least must stand before it: one slow load says nothing of the others, even where it is the first.
    """
    best, at = 0.0, 0
    for split in range(_MINIMUM_SLOW, len(loads)):
        ratio = min(s for _, s in loads[:split]) / max(s for _, s in loads[split:])
        if ratio > best:
            best, at = ratio, split
    if best < TWO_SPEEDS:
        return ""
    before, after = loads[:at], loads[at:]
    return (
        f"{_named([n for n, _ in after])} took at most {format_seconds(max(s for _, s in after))}, "
        f"{_named([n for n, _ in before], first_word=False)} at least {format_seconds(min(s for _, s in before))}: "
        f"{best:.2f} x faster at the same size."
    )


def _two_speeds(loads: Sequence[tuple[int, float]]) -> str:
    """Say which loads form a group that is faster than another; empty when there are no two groups of two or more."""
    ordered = sorted(loads, key=lambda load: load[1])
    best, at = 0.0, 0
    for split in range(2, len(ordered) - 1):
        ratio = ordered[split][1] / ordered[split - 1][1]
        if ratio > best:
            best, at = ratio, split
    if best < TWO_SPEEDS:
        return ""
    fast, slow = ordered[:at], ordered[at:]
    return (
        f"Loads have two speeds: {_named(sorted(n for n, _ in fast), first_word=False)} took "
        f"{format_seconds(fast[0][1])} to {format_seconds(fast[-1][1])}, the others {format_seconds(slow[0][1])} to "
        f"{format_seconds(slow[-1][1])}, at the same size."
    )


def _named(numbers: Sequence[int], *, first_word: bool = True) -> str:
    """Return ``Loads 5 to 10`` or ``Loads 2, 4``."""
    word = "Load" if first_word else "load"
    if len(numbers) == 1:
        return f"{word} {numbers[0]}"
    if len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{word}s {numbers[0]} to {numbers[-1]}"
    return f"{word}s {', '.join(map(str, numbers))}"

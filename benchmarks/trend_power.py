"""Rate of wrong results of ``pytest-ckpt trend``: ``python benchmarks/trend_power.py [--series N] [--raw FILE]``.

Nightly runs are simulated with log-normal times. One time in twenty is an outlier (1.5 to 4 times as long). A false
alarm is a reported change in a series without a change. The rate of false alarms is measured for a single check, and
for a year with a check every morning. Power is the share of series in which a slowdown is reported within a given
number of nights. Each slowdown begins after 40 nights.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from pytest_ckpt.analysis.statistics import WINDOWS, find_change

_BEFORE = 40
_SPREADS = (0.01, 0.02, 0.05, 0.10)
_SLOWER = (1.05, 1.10, 1.15, 1.30)
_YEAR, _REGRESSION = 365, 1.10
_NIGHTS = (5, 6, 8, 10, 13, 16, 21)


def nights(chance: random.Random, count: int, spread: float, slower: float = 1.0) -> list[float]:
    """Return the simulated median times of ``count`` nightly runs, multiplied by ``slower``.

    ``spread`` is the standard deviation of the logarithm of the times, without outliers.
    """
    return [
        slower * chance.lognormvariate(0, spread) * (chance.uniform(1.5, 4) if chance.random() < 0.05 else 1)
        for _ in range(count)
    ]


def false_alarms(spread: float, series: int) -> float:
    """Return the share of series in which a check after 61 nights without a change reports a change."""
    chance = random.Random(f"false alarms {spread}")
    return sum(find_change(nights(chance, _BEFORE + WINDOWS[-1], spread)) is not None for _ in range(series)) / series


def alarms_of_a_year(spread: float, years: int) -> tuple[float, float]:
    """Return (share of years with a false alarm, share of years with a large false alarm).

    A year counts if there is such an alarm on at least one morning. A large false alarm reports that times are at least
    10 % longer.
    """
    chance = random.Random(f"a year {spread}")
    found = slower = 0
    for _ in range(years):
        values = nights(chance, _BEFORE + _YEAR, spread)
        changes = [find_change(values[: _BEFORE + night]) for night in range(1, _YEAR + 1)]
        found += any(changes)
        slower += any(change is not None and change.ratio >= _REGRESSION for change in changes)
    return found / years, slower / years


def found_after(spread: float, slower: float, series: int) -> dict[int, float]:
    """Return {number of nights since a slowdown began: share of series in which it was reported by then}."""
    chance = random.Random(f"power {spread} {slower}")
    fields = dict.fromkeys(_NIGHTS, 0)
    for _ in range(series):
        values = nights(chance, _BEFORE, spread) + nights(chance, _NIGHTS[-1], spread, slower)
        first = next(
            (
                night
                for night in range(1, _NIGHTS[-1] + 1)
                if (change := find_change(values[: _BEFORE + night])) and change.ratio > 1
            ),
            _NIGHTS[-1] + 1,
        )
        for night in _NIGHTS:
            fields[night] += first <= night
    return {night: count / series for night, count in fields.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=1000, help="simulated series for each figure")
    parser.add_argument("--raw", metavar="FILE", help="keep every figure as JSON")
    asked = parser.parse_args()
    alarms = {spread: false_alarms(spread, asked.series) for spread in _SPREADS}
    years = {spread: alarms_of_a_year(spread, max(1, asked.series // 5)) for spread in _SPREADS}
    power = {(spread, slower): found_after(spread, slower, asked.series) for spread in _SPREADS for slower in _SLOWER}
    print(f"{asked.series} series each; false alarms of an unchanged one, a look:")
    print("  " + ", ".join(f"noise {spread:.0%}: {share:.3%}" for spread, share in alarms.items()))
    print(f"\n{max(1, asked.series // 5)} unchanged years with a look every morning, share with a false alarm:")
    for spread, (seen, slower) in years.items():
        print(f"  noise {spread:.0%}: any {seen:.0%}, slower by {_REGRESSION - 1:.0%} or more {slower:.1%}")
    print(f"\nshare in which a slowdown was told, by nights since it began ({_BEFORE} nights before)")
    print(f"{'noise':>6} {'slower':>7}" + "".join(f"{night:>7}" for night in _NIGHTS))
    for (spread, slower), found in power.items():
        print(f"{spread:>6.0%} {slower - 1:>7.0%}" + "".join(f"{found[night]:>7.0%}" for night in _NIGHTS))
    if asked.raw:
        raw = {
            "series": asked.series,
            "false_alarms": {str(spread): share for spread, share in alarms.items()},
            "years": {str(spread): shares for spread, shares in years.items()},
            "power": [{"noise": s, "slower": r, "told": found} for (s, r), found in power.items()],
        }
        Path(asked.raw).write_text(json.dumps(raw) + "\n")


if __name__ == "__main__":
    main()

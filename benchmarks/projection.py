"""Accuracy of ``pytest-ckpt project``: ``python benchmarks/projection.py [--arrays N] [--raw FILE]``.

The arrays (storage systems) are simulated, so their rate for 128 clients is known. Each array is measured ten times
with each of 1, 2, 4, 8 and 16 clients; in a second series also with 32 clients. From these measurements ``project``
computes an interval for the rate at 128 clients. If ``project`` declines to project an array, it gives only wide
bounds.

The output for each kind of array is:

- the number of projected arrays
- the share of their intervals that contain the true rate
- the share of their intervals whose ends differ by less than a factor of 1.5
- for the arrays without a projection, the share of bounds that contain the true rate
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytest_ckpt.analysis.saturation import project

_CLIENTS, _REPEATS = 128, 10
_COUNTS = ((1, 2, 4, 8, 16), (1, 2, 4, 8, 16, 32))
_KINDS = ("linear", "ceiling", "contention", "coherency", "noisy", "straggler")
_NARROW = 1.5
# The factor on the rate of an operation if a slow node takes part, because all other nodes wait for it.
_STRAGGLER = 0.93


@dataclass(frozen=True)
class Array:
    """A simulated array. ``rate`` returns the array's rate for a number of clients, without noise.

    ``scatter`` is the noise: the standard deviation of the logarithm of an operation's rate.
    """

    rate: Callable[[int], float]
    scatter: float


def made_array(kind: str, counts: tuple[int, ...], chance: random.Random) -> Array:
    """Return a random array of the kind ``kind``, which will be measured with the numbers of clients in ``counts``.

    The rate of the kinds noisy and straggler also saturates: each such array is based on one of the saturating kinds.
    """
    shape = chance.choice(("ceiling", "contention", "coherency")) if kind in {"noisy", "straggler"} else kind
    one = chance.uniform(1, 5)
    ceiling, share = _log_uniform(chance, 3, 60), _log_uniform(chance, 0.01, 0.5)
    little, pairs = _log_uniform(chance, 0.003, 0.2), _log_uniform(chance, 1e-4, 2e-2)
    slow_from = chance.choice(counts[2:]) if kind == "straggler" else math.inf

    def rate(n: int) -> float:
        factor = {
            "linear": 1.0 * n,
            "ceiling": min(n, ceiling),
            "contention": n / (1 + share * (n - 1)),
            "coherency": n / (1 + little * (n - 1) + pairs * n * (n - 1)),
        }[shape]
        return one * factor * (_STRAGGLER if n >= slow_from else 1)

    return Array(rate=rate, scatter=0.15 if kind == "noisy" else chance.uniform(0.01, 0.06))


def tried(kind: str, counts: tuple[int, ...], arrays: int) -> dict[str, int]:
    """Project ``arrays`` random arrays of a kind; return {result: number of arrays}."""
    chance = random.Random(f"{kind} {counts}")
    found = dict.fromkeys(("arrays", "projected", "held", "narrow", "bounds held"), 0)
    for _ in range(arrays):
        array = made_array(kind, counts, chance)
        rates = {n: [array.rate(n) * chance.lognormvariate(0, array.scatter) for _ in range(_REPEATS)] for n in counts}
        projected, truth = project(rates, _CLIENTS), array.rate(_CLIENTS)
        holds = projected.low <= truth <= projected.high
        found["arrays"] += 1
        found["bounds held"] += bool(projected.unavailable_reason) and holds
        if not projected.unavailable_reason:
            found["projected"] += 1
            found["held"] += holds
            found["narrow"] += projected.high < _NARROW * projected.low
    return found


def _log_uniform(chance: random.Random, low: float, high: float) -> float:
    return math.exp(chance.uniform(math.log(low), math.log(high)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arrays", type=int, default=1000, help="made-up arrays for each set of counts")
    parser.add_argument("--raw", metavar="FILE", help="keep every figure as JSON")
    asked = parser.parse_args()
    kept = {}
    for counts in _COUNTS:
        print(f"measured with {', '.join(map(str, counts))} clients, projected to {_CLIENTS}:")
        of_kinds = {kind: tried(kind, counts, math.ceil(asked.arrays / len(_KINDS))) for kind in _KINDS}
        of_kinds["all"] = {name: sum(kind[name] for kind in of_kinds.values()) for name in of_kinds["linear"]}
        for kind, found in of_kinds.items():
            count, bounds = found["projected"], found["arrays"] - found["projected"]
            shares = [f"{found[name] / count:.0%}" if count else "-" for name in ("held", "narrow")]
            held = f"{found['bounds held'] / bounds:.0%}" if bounds else "-"
            print(f"  {kind:<10} {count:>4} of {found['arrays']} projected; 90 % interval is correct {shares[0]}, "
                  f"narrower than {_NARROW} x {shares[1]}; bounds hold it {held}")  # fmt: skip
        kept[str(counts)] = of_kinds
    if asked.raw:
        Path(asked.raw).write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()

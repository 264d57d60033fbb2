"""Saturation models: project the throughput of many clients from the rates of a few client counts. Pure.

A model describes the rate of n clients as X(n) = a s(n), in bytes a second. The factor a is the rate of one client. A
shape s(n) is a model with chosen values of c, f and k. For small n, s(n) is about n. The results contain no randomness.
The models are:

  linear       n
  ceiling      min(n, c): a fixed maximum rate of the storage
  contention   n / (1 + f (n - 1)): the share f of the work is serial (Amdahl 1967)
  coherency    n / (1 + f (n - 1) + k n (n - 1)): clients also wait for each other in pairs. The rate of more clients
               can therefore be lower (Gunther, universal scalability law, 1993).

The models are fitted to logarithms, because rates vary by factors. A projected interval contains the projections of all
shapes that are compatible with the measured rates. A shape is compatible if its profile likelihood is within the 90 %
limit around the best shape (Venzon and Moolgavkar, Applied Statistics 37, 1988). A bootstrap of one model would ignore
other models that fit equally well but extrapolate differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pytest_ckpt.analysis.client_counts import MINIMUM_COUNTS, Projection

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

SEEN_EFFICIENCY = 0.7
"""A ceiling is detected if the largest client count gets at most this share of linear growth."""

WIDEST = 2.0
"""If the ends of an interval differ by more than this factor, the projection has no median."""

# The 90 % quantile of a chi-squared distribution with one degree of freedom.
_LIKELIHOOD_OF_90 = 2.706
# 5 % of a normal distribution are beyond this many standard errors.
_ONE_SIDED = 1.645
# This uncertainty is added because a model is an approximation; repeats do not show it.
_MINIMUM_SCATTER = 0.03


def project(rates: Mapping[int, Sequence[float]], clients: int, bound: float | None = None) -> Projection:
    """Return the projected rate for ``clients``, in bytes a second.

    ``rates`` maps each client count to its measured rates in bytes a second, one per repeat. ``bound`` is an upper
    bound of the rate: the clients' network or a declared ceiling. Raises ValueError for fewer than four client counts.
    """
    if len(rates) < MINIMUM_COUNTS:
        raise ValueError(f"{len(rates)} counts of clients: {MINIMUM_COUNTS} are needed, such as 1, 2, 4 and 8")
    counts = np.array(sorted(rates), dtype=float)
    logs = [np.log(np.array(rates[int(n)], dtype=float)) for n in counts]
    means = np.array([values.mean() for values in logs])
    errors = _errors(logs)
    shapes = _shapes(counts, clients)
    fits = {name: _fit(means, errors, at) for name, (at, _) in shapes.items()}
    outside = {name: _leave_one_out(means, errors, at) for name, (at, _) in shapes.items()}
    model = min(outside, key=outside.__getitem__)
    best = min(float(misfit.min()) for misfit, _ in fits.values())
    # If the residuals of the best fit exceed the measured variance, the variance is assumed to be as large as they are.
    excess = max(1.0, best / max(1, len(counts) - 2))
    possible = []
    for name, (_, then) in shapes.items():
        misfit, level = fits[name]
        possible.append((level + then)[misfit <= best + _LIKELIHOOD_OF_90 * excess])
    found = np.exp(np.concatenate(possible))
    misfit, level = fits[model]
    middle = float(np.exp((level + shapes[model][1])[int(misfit.argmin())]))
    linear = float(np.exp(means[0]) / counts[0])
    is_seen = float(np.exp(means[-1])) <= SEEN_EFFICIENCY * linear * counts[-1]
    maximum = np.inf if bound is None else bound
    low, high = float(found.min()), float(found.max())
    unavailable_reason = ""
    if not is_seen:
        unavailable_reason = (
            f"no ceiling shows: {counts[-1]:.0f} clients get more than {SEEN_EFFICIENCY:.0%} of linear growth"
        )
        low = min(low, float(np.exp(means[-1] - _ONE_SIDED * errors[-1])))
        high = max(high, linear * float(np.exp(_ONE_SIDED * errors[0])) * clients)
    elif min(high, maximum) > WIDEST * low:
        unavailable_reason = f"models that fit differ by more than a factor {WIDEST:g} there"
    return Projection(
        clients=clients,
        unavailable_reason=unavailable_reason,
        model=model,
        median=None if unavailable_reason else min(middle, maximum),
        low=min(low, maximum),
        high=min(high, maximum),
        leave_one_out_error=outside[model],
    )


def _errors(logs: Sequence[Numbers]) -> Numbers:
    """Return the standard error of the mean of each array in ``logs``.

    Each array contains the logarithms of the rates of one client count. All counts share one variance.
    """
    degrees = sum(len(values) - 1 for values in logs)
    squares = sum(float(((values - values.mean()) ** 2).sum()) for values in logs)
    scatter = (squares / degrees) ** 0.5 if degrees else 0.0
    return np.array([(scatter**2 / len(values) + _MINIMUM_SCATTER**2) ** 0.5 for values in logs])


def _shapes(counts: Numbers, clients: int) -> dict[str, tuple[Numbers, Numbers]]:
    """Return {model: (shapes at the measured counts, shapes at ``clients``)}, as logarithms.

    A shape is a model with chosen parameter values. The first array has one row per shape and one column per count. The
    second array has one element per shape.
    """
    every = np.append(counts, float(clients))
    shares = np.concatenate(([0.0], np.logspace(-5, 0, 401)))
    waits = np.concatenate(([0.0], np.logspace(-8, 0, 401)))
    ceilings = np.logspace(np.log10(counts[0]), np.log10(every[-1]), 2000)
    contention = np.log(every) - np.log1p(np.outer(shares, every - 1))
    pairs = 1 + shares[:, None, None] * (every - 1) + waits[None, :, None] * every * (every - 1)
    models = {
        "linear": np.log(every)[None, :],
        "ceiling": np.log(np.minimum(every[None, :], ceilings[:, None])),
        "contention": contention,
        "coherency": (np.log(every) - np.log(pairs)).reshape(-1, len(every)),
    }
    return {name: (shape[:, :-1], shape[:, -1]) for name, shape in models.items()}


def _fit(means: Numbers, errors: Numbers, shapes: Numbers) -> tuple[Numbers, Numbers]:
    """Fit each shape to the means. Return (weighted sums of squared residuals, logarithms of the factor a).

    Both arrays have one element per shape. ``means`` and ``errors`` have one element per client count. ``shapes`` has
    one row per shape and one column per count.
    """
    weights = 1 / errors**2
    level = ((means - shapes) * weights).sum(axis=1) / weights.sum()
    misfit = (((means - shapes - level[:, None]) ** 2) * weights).sum(axis=1)
    return misfit, level


def _leave_one_out(means: Numbers, errors: Numbers, shapes: Numbers) -> float:
    """Return the leave-one-out error of a model, as a difference of logarithms.

    The error is the root mean square of the distances between each mean and the best fit to all other means.
    """
    squares = []
    for index in range(len(means)):
        others = np.arange(len(means)) != index
        misfit, level = _fit(means[others], errors[others], shapes[:, others])
        chosen = int(misfit.argmin())
        squares.append(float(means[index] - shapes[chosen, index] - level[chosen]) ** 2)
    return float(np.sqrt(np.mean(squares)))

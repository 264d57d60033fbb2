"""Finds the knee of a ramp: the smallest number of requests in flight that is nearly as fast as the best one. Pure."""

from __future__ import annotations

from collections.abc import Collection

from pytest_ckpt.facts.request_depth import RampStep

NEARLY = 0.95
"""A depth with at least this share of the best score is sufficient, because a greater depth needs more memory."""


def knee(steps: Collection[RampStep]) -> int:
    """Return the smallest depth that is nearly as fast as the best depth, for saves and for loads.

    The score of a depth is the smaller of its two rates, each as a share of the best rate of its kind. The smallest
    depth with at least 0.95 of the best score is returned. Raises ValueError without steps.
    """
    if not steps:
        raise ValueError("a ramp without steps has no knee")
    best_save = max(step.save_bytes_per_second for step in steps)
    best_load = max(step.load_bytes_per_second for step in steps)

    def score(step: RampStep) -> float:
        return min(
            step.save_bytes_per_second / best_save if best_save else 1.0,
            step.load_bytes_per_second / best_load if best_load else 1.0,
        )

    best = max(map(score, steps))
    return min(step.depth for step in steps if score(step) >= NEARLY * best)

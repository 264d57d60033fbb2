"""The ramp, which finds how many requests a rank of the engine ``stream`` should keep in flight. Pure functions.

Each step saves and loads a scratch checkpoint with a different number of requests in flight (depth). The checkpoint is
as small as possible, but has enough requests for the largest depth. At the rate that the cluster needs, all steps
together take a few seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.sizing.content_places import CHECKPOINT_BITS
from pytest_ckpt.sizing.models import layout
from pytest_ckpt.sizing.stream_buffers import DEPTHS, USUAL_DEPTH, depths_within_memory
from pytest_ckpt.support.units import counted, format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Collection

    from pytest_ckpt.facts.request_depth import RampStep
    from pytest_ckpt.sizing.limits import Demand
    from pytest_ckpt.sizing.models import Layout

RAMP = "ramp"
"""The name of the scenario of the scratch saves and loads, and the role of their checkpoints."""

OF_RAMP = 320
"""The number of the first scratch checkpoint, after the numbers of the subject's own operations."""

MAXIMUM_SECONDS = 5.0
"""After this time in seconds, the ramp begins no further step."""

RAMP_BYTES = 4_000_000
"""The memory of a rank for a ramp in addition to buffers: threads, and the content of the scratch checkpoint."""

NEARLY = 0.95
"""A depth with at least this share of the best score is sufficient, because a greater depth needs more memory."""

PASSES = 2
"""The number of times that each depth is tried: first in descending, then in ascending order.

The faster result counts, because a busy host only slows a step.
"""

# If a file has fewer requests than twice the depth, the depth is reached only for a small part of the time.
_REQUESTS_PER_DEPTH = 2
# The duration of a step at the rate that the cluster needs.
_STEP_SECONDS = 0.5
# A step may also move this share of a checkpoint, because a cluster with low demands may have fast storage.
_SHARE_OF_CHECKPOINT = 0.1
# A step writes at most the bytes of all saves divided by this number, so all steps together write half of these bytes.
_STEPS_OF_ALL_SAVES = 2 * PASSES * len(DEPTHS)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRamp:
    """A planned ramp: the ``depths`` to try, and ``bytes`` and ``scale`` of each scratch checkpoint.

    Without depths there is no ramp; ``because`` is the reason.
    """

    depths: tuple[int, ...]
    scale: float
    bytes: int
    because: str = ""

    @property
    def largest_depth(self) -> int:
        """The largest depth that the ramp can find. Without a ramp, this is the default depth."""
        return max(self.depths, default=USUAL_DEPTH)


def planned_ramp(shards: Layout, asks: Demand, *, request_bytes: int, operations: int) -> PlannedRamp:
    """Return the ramp for the layout ``shards``; ``asks`` contains the rates that the cluster requires.

    A depth is tried if an average file of the smallest rank has at least 2 x depth requests. With fewer than two
    depths, there is no ramp.
    """
    numbers = (1 << CHECKPOINT_BITS) - 1
    if operations + OF_RAMP + PASSES * len(DEPTHS) > numbers:
        return _without(f"the content of {format_count(operations)} operations leaves no number for its checkpoints")
    files_of_rank = -(-shards.files // shards.processes)
    depths = depths_within_memory(request_bytes)
    if len(depths) < 2:
        return _without(f"buffers for requests of {format_bytes(request_bytes)} leave no numbers to compare")
    enough = shards.processes * files_of_rank * _REQUESTS_PER_DEPTH * depths[-1] * request_bytes
    usual = max(asks.save_bytes_per_second * _STEP_SECONDS, shards.bytes * _SHARE_OF_CHECKPOINT)
    most = min(shards.bytes, shards.bytes * operations / _STEPS_OF_ALL_SAVES, enough, usual)
    scratch = layout(
        shards.model,
        mode=shards.mode,
        processes=shards.processes,
        scale=min(shards.scale, shards.scale * most / shards.bytes),
    )
    smallest = scratch.rank(min(range(scratch.processes), key=scratch.rank_bytes.__getitem__))
    requests = math.ceil(smallest.bytes / (len(smallest.files) * request_bytes))
    depths = tuple(depth for depth in depths if _REQUESTS_PER_DEPTH * depth <= requests)
    if len(depths) < 2:
        return _without(f"a scratch file of a ramp would have {counted(requests, 'request')}, too few to tell")
    return PlannedRamp(depths=depths, scale=scratch.scale, bytes=scratch.bytes)


def _without(because: str) -> PlannedRamp:
    return PlannedRamp(depths=(), scale=0.0, bytes=0, because=because)


def knee(steps: Collection[RampStep]) -> int:
    """Return the smallest depth that is nearly as fast as the best depth, for saves and for loads.

    Each depth has a save rate and a load rate, as shares of the best save rate and the best load rate. The smaller
    share is the score of the depth. The result is the smallest depth with at least 0.95 of the best score. Raises
    ValueError without steps.
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

"""The pace of saves that share the storage with other work, and the reads of data loaders. Pure functions.

A paced save writes at a limited rate. Each rank spreads its bytes over 0.8 of the save limit. So a job writes at 1.25
times the rate that the cluster needs. This rate does not depend on the speed or the number of clients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.sizing.models import Layout, layout
from pytest_ckpt.support.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ckpt.facts.engines import EngineSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class LoaderWorkload:
    """The data loading of one accelerator in a published workload.

    An accelerator computes ``batch`` samples of ``sample_bytes`` in ``compute_seconds``. The accelerator must compute
    for the share ``utilization`` of the time.
    """

    batch: int
    sample_bytes: int
    compute_seconds: float
    utilization: float

    @property
    def bytes_per_second(self) -> float:
        """The rate at which the accelerator must read, in bytes a second."""
        return self.batch * self.sample_bytes / self.compute_seconds * self.utilization


LOADER_WORKLOADS: Mapping[str, LoaderWorkload] = {
    "resnet50": LoaderWorkload(batch=400, sample_bytes=114_660, compute_seconds=0.224, utilization=0.9),
    "cosmoflow": LoaderWorkload(batch=1, sample_bytes=2_828_486, compute_seconds=0.0035, utilization=0.7),
    "unet3d": LoaderWorkload(batch=7, sample_bytes=146_600_628, compute_seconds=0.323, utilization=0.9),
}
"""Data-loading workloads of one H100. Source: MLCommons, MLPerf Storage, configurations resnet50_h100, cosmoflow_h100
and unet3d_h100, 2024."""


SHARE_OF_LIMIT = 0.8
"""The time of an undisturbed paced save, as a share of the save limit."""

CONCURRENT_SAVES = 2
"""The maximum number of saves of the other job during one save.

Together these saves last longer than the save limit.
"""

MINIMUM_SECONDS = 0.1
"""The minimum time of a paced save. Shorter saves consist mostly of fixed costs (open, fsync, commit) that a pace does
not affect."""

MAXIMUM_SECONDS, MAXIMUM_REHEARSED_SECONDS = 30.0, 1.0
"""The maximum time of a paced save, at full size and in a rehearsal.

If the limit is longer, a smaller checkpoint is saved at the same rate.
"""

PREFETCH_SECONDS = 0.5
"""The size of the data loader's queue, in seconds of training."""

FIXED_SECONDS = 1.0
"""The time that a smaller checkpoint may take in addition to its share of the limit.

Open, fsync and commit take as long as for the full checkpoint.
"""

READERS = 16
"""The maximum number of a data loader's reads in flight on a host."""

_SMALLEST_SAMPLE_BYTES, _LARGEST_SAMPLE_BYTES = 128 << 10, 16 << 20
# More reads are limited by the CPU time of the reading process, not by the storage.
_MAXIMUM_SAMPLES_PER_SECOND = 500

MINIMUM_TURN_SECONDS = 1.0
"""The minimum duration of a turn with a data loader.

In this time the data loader reads twice the content of its queue, which is full at the start.
"""


def sample_bytes(bytes_per_second: float) -> int:
    """Return the bytes of each read of a data loader at this rate: a power of two that grows with the rate."""
    needed = bytes_per_second / _MAXIMUM_SAMPLES_PER_SECOND
    size = _SMALLEST_SAMPLE_BYTES
    while size < min(needed, _LARGEST_SAMPLE_BYTES):
        size *= 2
    return size


@dataclass(frozen=True, kw_only=True, slots=True)
class PacedSaves:
    """The pace of saves. Each save writes a checkpoint at ``scale`` and takes ``seconds`` if undisturbed.

    ``not_run`` is the reason why saves cannot be paced; empty if saves can be paced.
    """

    seconds: float
    scale: float
    not_run: str = ""

    @property
    def limit_seconds(self) -> float:
        """The save limit for the checkpoint at ``scale``; the limit is proportional to the bytes."""
        return self.seconds / SHARE_OF_LIMIT

    @property
    def turn_seconds(self) -> float:
        """The duration of one measurement with a data loader, in seconds."""
        return max(self.seconds, MINIMUM_TURN_SECONDS)


def paced_saves(whole: Layout, save_limit_seconds: float, engine: EngineSpec) -> PacedSaves:
    """Return the pace of a layout's saves during other work.

    ``save_limit_seconds`` is the limit of a save of ``whole``. If a paced save would take too long for a run, a smaller
    checkpoint is saved at the same rate.
    """
    seconds, scale = SHARE_OF_LIMIT * save_limit_seconds, whole.scale
    maximum = MAXIMUM_SECONDS if whole.scale == 1 else MAXIMUM_REHEARSED_SECONDS
    if engine.is_collective:
        why = f"The library of engine {engine.name} writes its files itself, so its saves cannot be paced."
        return PacedSaves(seconds=seconds, scale=scale, not_run=why)
    if seconds < MINIMUM_SECONDS:
        why = (
            f"A paced save would take {format_seconds(seconds)}; below {format_seconds(MINIMUM_SECONDS)} fixed costs "
            "decide, and not the rate. Run a larger share of the checkpoint (--ckpt-scale)."
        )
        return PacedSaves(seconds=seconds, scale=scale, not_run=why)
    if seconds > maximum:
        scale *= maximum / seconds
        small = layout(whole.model, mode=whole.mode, processes=whole.processes, scale=scale)
        seconds *= small.bytes / whole.bytes
    return PacedSaves(seconds=seconds, scale=scale)


def paced_limit_seconds(whole_limit_seconds: float, share: float) -> float:
    """Return the save limit for a ``share`` of a checkpoint, if the share is written at the rate of the whole.

    The limit of the whole is multiplied by ``share``. `FIXED_SECONDS` are added for fixed costs, but at most 0.2 of the
    difference between the limit of the whole and this product.
    """
    limit = whole_limit_seconds * share
    return limit + min(FIXED_SECONDS, (1 - SHARE_OF_LIMIT) * (whole_limit_seconds - limit))


def paced_accelerators(accelerators: int, limit_seconds: float, paced_seconds: float) -> int:
    """Return the number of accelerators of the largest cluster for which a pace is fast enough.

    ``paced_seconds`` is the time of an undisturbed save at this pace. It must be at most 0.8 of the cluster's save
    limit. ``limit_seconds`` is the save limit for ``accelerators``; twice as many accelerators have half the limit.
    """
    # The quotient may be rounded to the other side of a whole number.
    return math.floor(accelerators * SHARE_OF_LIMIT * limit_seconds / paced_seconds * (1 + 1e-9))

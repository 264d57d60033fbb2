"""The pace of saves that share the storage with other work, and the rates and queue of data loaders. Pure.

Each rank spreads its bytes over 0.8 of the save limit, so a job writes at 1.25 times the rate that the cluster needs.
The rate follows from the limit and not from the clients: faster or more clients do not change it.
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
    """The reads of one accelerator of a published workload.

    An accelerator computes ``batch`` samples of ``sample_bytes`` in ``compute_seconds``, and must compute for the share
    ``utilization`` of the time.
    """

    batch: int
    sample_bytes: int
    compute_seconds: float
    utilization: float

    @property
    def bytes_per_second(self) -> float:
        """The rate at which the accelerator reads."""
        return self.batch * self.sample_bytes / self.compute_seconds * self.utilization


LOADER_WORKLOADS: Mapping[str, LoaderWorkload] = {
    "resnet50": LoaderWorkload(batch=400, sample_bytes=114_660, compute_seconds=0.224, utilization=0.9),
    "cosmoflow": LoaderWorkload(batch=1, sample_bytes=2_828_486, compute_seconds=0.0035, utilization=0.7),
    "unet3d": LoaderWorkload(batch=7, sample_bytes=146_600_628, compute_seconds=0.323, utilization=0.9),
}
"""MLCommons, MLPerf Storage, configurations resnet50_h100, cosmoflow_h100 and unet3d_h100, 2024: one H100 each."""


SHARE_OF_LIMIT = 0.8
"""Share of the save limit that an undisturbed save takes."""

CONCURRENT_SAVES = 2
"""Saves of the other job during one save, at most: together they last longer than the save limit."""

MINIMUM_SECONDS = 0.1
"""Shorter saves consist of fixed costs (open, fsync, commit), so a pace does not affect them."""

MAXIMUM_SECONDS, MAXIMUM_REHEARSED_SECONDS = 30.0, 1.0
"""If the limit is longer, a smaller checkpoint is saved at the same rate: at full size, and in a rehearsal."""

PREFETCH_SECONDS = 0.5
"""Seconds of samples in the data loader's queue."""

FIXED_SECONDS = 1.0
"""Additional time of a smaller checkpoint: its open, fsync and commit take as long as for the full checkpoint."""

READERS = 16
"""Reads of the data loader in flight on a host, at most."""

_SMALLEST_SAMPLE_BYTES, _LARGEST_SAMPLE_BYTES = 128 << 10, 16 << 20
# More are limited by the processor time of the reading process, not by the storage.
_MAXIMUM_SAMPLES_PER_SECOND = 500

MINIMUM_TURN_SECONDS = 1.0
"""Each turn with a data loader lasts at least so long: the queue that was full before is then read twice."""


def sample_bytes(bytes_per_second: float) -> int:
    """Return the size of a read of a data loader: a power of two, larger for higher rates."""
    needed = bytes_per_second / _MAXIMUM_SAMPLES_PER_SECOND
    size = _SMALLEST_SAMPLE_BYTES
    while size < min(needed, _LARGEST_SAMPLE_BYTES):
        size *= 2
    return size


@dataclass(frozen=True, kw_only=True, slots=True)
class PacedSaves:
    """Saves of a checkpoint at ``scale``, each of which takes ``seconds`` if it is not delayed.

    ``not_run``: why saves cannot be paced; empty if they can.
    """

    seconds: float
    scale: float
    not_run: str = ""

    @property
    def limit_seconds(self) -> float:
        """The save limit of such a checkpoint, which shrinks with the bytes."""
        return self.seconds / SHARE_OF_LIMIT

    @property
    def turn_seconds(self) -> float:
        """The seconds of a turn with a data loader."""
        return max(self.seconds, MINIMUM_TURN_SECONDS)


def paced_saves(whole: Layout, save_limit_seconds: float, engine: EngineSpec) -> PacedSaves:
    """Return the pace of saves of a layout whose saves may take ``save_limit_seconds``."""
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
    """Return the limit of a save that writes a ``share`` of a checkpoint at the same rate.

    The time of the bytes shrinks with them; fixed costs do not shrink, but are limited by the limit of the whole
    checkpoint.
    """
    limit = whole_limit_seconds * share
    return limit + min(FIXED_SECONDS, (1 - SHARE_OF_LIMIT) * (whole_limit_seconds - limit))


def paced_accelerators(accelerators: int, limit_seconds: float, paced_seconds: float) -> int:
    """Return the largest cluster for which saves of ``paced_seconds`` are fast enough.

    Saves of a cluster of ``accelerators`` may take ``limit_seconds``. All save limits shrink as the cluster grows.
    """
    # The quotient may round to the other side of a whole number.
    return math.floor(accelerators * SHARE_OF_LIMIT * limit_seconds / paced_seconds * (1 + 1e-9))

"""Rates at which data loaders read, as MLPerf Storage publishes them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


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

"""The limits of the cluster that settings name, without a plan of what a run would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.sizing.limits import ClusterLimits, cluster_limits
from pytest_ckpt.sizing.reliability import parse_failure_model
from pytest_ckpt.support.errors import UsageError

if TYPE_CHECKING:
    from pytest_ckpt.facts.settings import Settings


def limits_of(settings: Settings) -> ClusterLimits:
    """Return the limits that settings mean. Raises UsageError where no cluster is named or none can be derived."""
    if settings.cluster is None:
        raise UsageError(
            "--cluster is missing: how many accelerators has the cluster that the storage is meant for?",
            "Say --cluster=16000, for example; the limits are derived from it.",
        )
    return cluster_limits(
        settings.cluster,
        failures=parse_failure_model(settings.failures),
        overhead=settings.overhead,
        restore_budget=settings.restore_budget,
        checkpoints_per_failure=settings.checkpoints_per_failure,
    )

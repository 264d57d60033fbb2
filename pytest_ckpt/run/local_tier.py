"""Checks the folder of a local tier before a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.sizing.drains import LOCAL_CHECKPOINTS
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.units import counted, format_bytes
from pytest_ckpt.support.user_files import resolved_user_path
from pytest_ckpt.targets.posix.run_folder import place_on_this_host
from pytest_ckpt.targets.posix.target import PosixTarget

if TYPE_CHECKING:
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.facts.targets import TargetFacts
    from pytest_ckpt.sizing.plan import Plan

OPTION = "--ckpt-local"


def check_local_tier(settings: Settings, plan: Plan, facts: TargetFacts) -> PosixTarget | None:
    """Return the local tier where some saves go there first. Raises UsageError where they cannot."""
    if not settings.has_tiers or not settings.local:
        return None
    tier = PosixTarget(settings.local, OPTION)
    capacity = tier.check().capacity
    place, target = resolved_user_path(settings.local, OPTION), place_on_this_host(facts)
    if target and (place == target or target in place.parents or place in target.parents):
        raise UsageError(
            f"{OPTION} {settings.local} and --ckpt-target {facts.location} lie in each other.",
            "Name a folder on a disk or in memory of the host itself.",
        )
    saved = [c for c in plan.runnable if c.strategy.tiers]
    if not saved or not capacity:
        return tier
    largest = max(saved, key=lambda c: c.checkpoint_bytes)
    if (need := LOCAL_CHECKPOINTS * largest.checkpoint_bytes) > capacity.free_bytes:
        raise UsageError(
            f"Too little space in the local tier {settings.local}: {counted(LOCAL_CHECKPOINTS, 'checkpoint')} of "
            f"{largest.subject} need {format_bytes(need)}, and {format_bytes(capacity.free_bytes)} are free.",
            f"Name a larger one with {OPTION}, choose a smaller --ckpt-model, or rehearse with --ckpt-profile=smoke.",
        )
    return tier

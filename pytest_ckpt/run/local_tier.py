"""Checks the folder of a local tier before a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.sizing.drains import LOCAL_CHECKPOINTS, PARTNER_CHECKPOINTS
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.units import counted, format_bytes
from pytest_ckpt.support.user_files import resolved_user_path
from pytest_ckpt.targets.posix.run_folder import place_on_this_host
from pytest_ckpt.targets.posix.store import TIER_OPENER
from pytest_ckpt.targets.posix.target import PosixTarget

if TYPE_CHECKING:
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.facts.targets import TargetFacts
    from pytest_ckpt.run.hosts import Seen
    from pytest_ckpt.sizing.plan import Plan

OPTION = "--ckpt-local"


def check_local_tier(settings: Settings, plan: Plan, facts: TargetFacts) -> PosixTarget | None:
    """Return the local tier where some saves go there first. Raises UsageError where they cannot."""
    if not settings.has_tiers or not settings.local:
        return None
    tier = PosixTarget(settings.local, OPTION, TIER_OPENER)
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
    if settings.has_several_hosts:
        return tier
    if (need := LOCAL_CHECKPOINTS * largest.checkpoint_bytes) > capacity.free_bytes:
        raise UsageError(
            f"Too little space in the local tier {settings.local}: {counted(LOCAL_CHECKPOINTS, 'checkpoint')} of "
            f"{largest.subject} need {format_bytes(need)}, and {format_bytes(capacity.free_bytes)} are free.",
            f"Name a larger one with {OPTION}, choose a smaller --ckpt-model, or rehearse with --ckpt-profile=smoke.",
        )
    return tier


def check_tiers_of_hosts(settings: Settings, plan: Plan, seen: Seen) -> None:
    """Raise UsageError where a host has no local tier, shares it with another host, or has too little space in it."""
    place = f"{OPTION} {settings.local}"
    own = "Make the folder on every host that ranks are on, each on a disk or in memory of the host itself."
    if gone := [f"{sight.host}: {sight.why_not}" for sight in seen.tiers if sight.why_not]:
        raise UsageError(f"{place} is no local tier on every host: no file can be made there ({'; '.join(gone)}).", own)
    if shared := [
        f"{sight.host} sees that of {', '.join(sight.shared_with)}" for sight in seen.tiers if sight.shared_with
    ]:
        raise UsageError(
            f"{place} is no local tier: hosts share the folder ({'; '.join(shared)}), and who loses one loses none of "
            "its files.",
            own,
        )
    largest = max((c for c in plan.runnable if c.strategy.tiers), key=lambda c: c.checkpoint_bytes, default=None)
    if not largest or not seen.tiers:
        return
    ranks = {host.host: len(host.ranks) for host in seen.hosts}
    of_rank = largest.checkpoint_bytes / largest.layout.processes
    for sight in seen.tiers:
        # A host may hold the copies of one that has more ranks.
        need = PARTNER_CHECKPOINTS * max(ranks.values()) * of_rank
        if need > sight.free_bytes:
            raise UsageError(
                f"Too little space in the local tier {settings.local} of {sight.host}: {format_bytes(need)} are needed "
                f"for its ranks' files and for copies of its partner's, and {format_bytes(sight.free_bytes)} are free.",
                f"Name a larger one with {OPTION}, choose a smaller --ckpt-model, or rehearse with "
                "--ckpt-profile=smoke.",
            )

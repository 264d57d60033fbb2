"""A plan as ``plan --json`` prints it and a run keeps it: plain JSON types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.file_rules import FileRule
from pytest_ckpt.sizing.files import files_of
from pytest_ckpt.sizing.published import CHECKPOINT_SIZES

if TYPE_CHECKING:
    from pytest_ckpt.sizing.models import RankLayout
    from pytest_ckpt.sizing.plan import PlannedCheckpoint

SCHEMA = "pytest-ckpt/plan/1"


def checkpoint_to_plain(planned: PlannedCheckpoint, *, ranks: bool) -> dict[str, Any]:
    """Return a measurement of a plan; with ``ranks``, every file of every rank."""
    shards = planned.layout
    plain = {
        "subject": str(planned.subject),
        "model": shards.model.name,
        "mode": shards.mode,
        "processes": shards.processes,
        "scale": shards.scale,
        "operations": planned.operations,
        "bytes": shards.bytes,
        "full_bytes": shards.full_bytes,
        "files": planned.files,
        "published": CHECKPOINT_SIZES.get((shards.model.name, shards.mode), ""),
        "save_bytes_per_second": planned.demand.save_bytes_per_second,
        "load_bytes_per_second": planned.demand.load_bytes_per_second,
        "save_limit_seconds": planned.demand.save_limit_seconds,
        "load_limit_seconds": planned.demand.load_limit_seconds,
        "space_bytes": planned.space_bytes,
        "engine": planned.engine.to_plain(),
        "strategy": planned.strategy.name,
        "memory_bytes": {
            "largest_rank": planned.largest_rank_memory_bytes,
            "largest_host": max(planned.host_memory_bytes),
        },
        "demand": to_plain(planned.demand),
        "not_run": planned.not_run or None,
        "rehearsal": planned.rehearsal or None,
        "scenarios": list(planned.scenarios),
        "deltas": to_plain(planned.deltas) if planned.deltas else None,
        "drains": to_plain(planned.drains) if planned.drains else None,
    }
    if shards.model.own:
        plain["definition"] = to_plain(shards.model)
    if ranks:
        plain["ranks"] = [rank_to_plain(rank, planned.engine.files) for rank in shards.ranks()]
    return plain


def rank_to_plain(rank: RankLayout, rule: FileRule) -> dict[str, Any]:
    """Return what one rank writes, as a plan tells it."""
    return {
        "rank": rank.rank,
        "bytes": rank.bytes,
        "files": [file._asdict() for file in files_of(rank, rule)],
    }

"""Which files of a checkpoint each rank writes: those of the layout, or those that an engine's library names. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pytest_ckpt.facts.engines import FileRule
    from pytest_ckpt.sizing.models import Layout, RankLayout


class PlannedFile(NamedTuple):
    """A file of a rank; ``bytes`` are those of its tensors."""

    name: str
    bytes: int


def files_of(shard: RankLayout, rule: FileRule) -> tuple[PlannedFile, ...]:
    """Return the files that a rank writes of a checkpoint, in the order of writing; a shared file holds no tensors."""
    if not rule.of_rank:
        return tuple(PlannedFile(file.name, file.bytes) for file in shard.files)
    own = PlannedFile(rule.of_rank.replace("{rank}", str(shard.rank)), shard.bytes)
    return (own, *(PlannedFile(name, 0) for name in rule.shared)) if shard.rank == 0 else (own,)


def file_count(layout: Layout, rule: FileRule) -> int:
    """Return how many files a checkpoint has."""
    return layout.processes + len(rule.shared) if rule.of_rank else layout.files


def names_of(layout: Layout, rule: FileRule) -> frozenset[str]:
    """Return every name that a file of a checkpoint has, also while a save goes on."""
    of_ranks = (file.name for shard in layout.ranks() for file in files_of(shard, rule))
    return frozenset((*of_ranks, *rule.passing))

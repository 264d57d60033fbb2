"""Which files of a checkpoint each rank writes: those of the layout, or those that an engine's library names. Pure."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from pytest_ckpt.sizing.models import ShardFile
from pytest_ckpt.sizing.pattern_files import bytes_beside, replayed_files, shard_files_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.engines import FileRule
    from pytest_ckpt.sizing.models import Layout, RankLayout, Tensor


class PlannedFile(NamedTuple):
    """A file of a rank; ``bytes`` are those of its tensors."""

    name: str
    bytes: int


def shard_files(shard: RankLayout, rule: FileRule) -> tuple[ShardFile, ...]:
    """Return the files of a rank with their tensors, in the order of writing; those that ranks share hold none."""
    if not rule.of_rank:
        return shard.files
    if rule.pattern:
        return shard_files_of(rule.pattern.text, shard.rank, shard.bytes)
    tensors = [tensor for file in shard.files for tensor in file.tensors]
    if rule.writers > 1:
        return _of_writers(shard.rank, tensors, rule)
    spans = _spans(shard, rule.maximum_bytes) if rule.maximum_bytes else [(0, len(tensors))]
    return tuple(
        ShardFile(name=_name(rule.of_rank, shard.rank, number, len(spans)), tensors=tuple(tensors[start:stop]))
        for number, (start, stop) in enumerate(spans, start=1)
        # Where only the first files of a rank are read, these keep their names.
        if stop <= len(tensors)
    )


def files_of(shard: RankLayout, rule: FileRule) -> tuple[PlannedFile, ...]:
    """Return the files that a rank writes of a checkpoint, in the order of writing; a shared file holds no tensors."""
    own = tuple(PlannedFile(file.name, file.bytes) for file in shard_files(shard, rule))
    shared = rule.shared if rule.of_rank and shard.rank == 0 else ()
    return (*own, *(PlannedFile(name, 0) for name in shared))


def largest_file_bytes(shard: RankLayout, rule: FileRule) -> int:
    """Return the bytes of tensors in the largest file of a rank."""
    return max(file.bytes for file in shard_files(shard, rule))


def names_to_read(shard: RankLayout, rule: FileRule) -> tuple[str, ...]:
    """Return the names of the files that whoever loads a rank's tensors reads."""
    return tuple(dict.fromkeys((*(file.name for file in files_of(shard, rule)), *rule.shared)))


@lru_cache(maxsize=64)
def file_count(layout: Layout, rule: FileRule) -> int:
    """Return how many files a checkpoint has."""
    if not rule.of_rank:
        return layout.files
    several = rule.maximum_bytes or rule.pattern or rule.writers > 1
    files = sum(len(shard_files(shard, rule)) for shard in layout.ranks()) if several else layout.processes
    return files + len(rule.shared)


def names_of(layout: Layout, rule: FileRule) -> frozenset[str]:
    """Return every name that a file of a checkpoint has, also while a save goes on."""
    of_ranks = (file.name for shard in layout.ranks() for file in files_of(shard, rule))
    passing = [*rule.passing]
    if rule.pattern:
        for shard in layout.ranks():
            passing += [file.passing for file in replayed_files(rule.pattern.text, shard.rank, shard.bytes)]
    return frozenset((*of_ranks, *passing))


@lru_cache(maxsize=64)
def bytes_beside_tensors(layout: Layout, rule: FileRule) -> int:
    """Return the bytes of a checkpoint's files that hold no tensors, where a recorded job says how large they are."""
    if not rule.pattern:
        return 0
    return sum(bytes_beside(rule.pattern.text, shard.rank, shard.bytes) for shard in layout.ranks())


def _of_writers(rank: int, tensors: Sequence[Tensor], rule: FileRule) -> tuple[ShardFile, ...]:
    """Give tensors, the largest first, to the writer that has fewest bytes: as torch.distributed.checkpoint does."""
    parts: list[list[Tensor]] = [[] for _ in range(rule.writers)]
    for tensor in sorted(tensors, key=lambda tensor: -tensor.bytes):
        min(parts, key=lambda part: sum(each.bytes for each in part)).append(tensor)
    return tuple(
        ShardFile(name=_name(rule.of_rank, rank, 0, 0).replace("{writer}", str(writer)), tensors=tuple(part))
        for writer, part in enumerate(parts)
    )


def _spans(shard: RankLayout, maximum_bytes: int) -> list[tuple[int, int]]:
    """Return the first tensor of each of the rank's files, and the one behind its last.

    Sizes are those at scale 1.0: a scale shortens tensors and leaves the files as they are.
    """
    full = replace(shard.whole, scale=1.0).rank(shard.rank) if shard.whole else shard
    # The optimizer's file is the last one of a rank.
    groups = (full.files[:-1], full.files[-1:])
    spans: list[tuple[int, int]] = []
    for group in groups:
        start = spans[-1][1] if spans else 0
        sizes = [tensor.bytes for file in group for tensor in file.tensors]
        spans += [(start + first, start + last) for first, last in _cut(sizes, maximum_bytes)]
    return spans


def _cut(sizes: Sequence[int], maximum: int) -> list[tuple[int, int]]:
    """Cut a sequence where the next would be too much; what is larger by itself stays whole."""
    cuts, filled = [0], 0
    for number, size in enumerate(sizes):
        if filled and filled + size > maximum:
            cuts.append(number)
            filled = 0
        filled += size
    return list(zip(cuts, [*cuts[1:], len(sizes)], strict=True)) if sizes else []


def _name(pattern: str, rank: int, number: int, count: int) -> str:
    """Put numbers into a pattern; whatever else stands in it is taken as it is."""
    words = {"{rank}": str(rank), "{shard}": f"{rank + 1:05}", "{number}": f"{number:05}", "{count}": f"{count:05}"}
    for word, value in words.items():
        pattern = pattern.replace(word, value)
    return pattern

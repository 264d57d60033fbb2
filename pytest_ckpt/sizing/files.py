"""Which files of a checkpoint each rank writes: those of the layout, or those that an engine's library names. Pure."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from pytest_ckpt.sizing.models import ShardFile
from pytest_ckpt.sizing.pattern_files import bytes_beside, replayed_files, shard_files_of
from pytest_ckpt.support.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_ckpt.facts.file_rules import FileRule
    from pytest_ckpt.sizing.models import Layout, RankLayout, Tensor

_MADE_WHOLE = ("float16", "float32")
"""torch 2.13 asks `torch.finfo` how large an element is, which knows floats only."""


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
    if rule.consolidated:
        return _of_consolidated(shard, tensors, rule)
    parts = _of_a_size(shard, rule.maximum_bytes) if rule.maximum_bytes else [tensors]
    return tuple(
        ShardFile(name=_name(rule.of_rank, shard.rank, number, len(parts)), tensors=tuple(part))
        for number, part in enumerate(parts, start=1)
        # Where only the first files of a rank are read, these keep their names.
        if part
    )


def files_of(shard: RankLayout, rule: FileRule) -> tuple[PlannedFile, ...]:
    """Return the files that a rank writes of a checkpoint, in the order of writing; a shared file holds no tensors."""
    own = tuple(PlannedFile(file.name, file.bytes) for file in shard_files(shard, rule))
    if not rule.of_rank or shard.rank:
        return own
    whole = (PlannedFile(file.name, file.bytes) for file in consolidated_files(shard, rule))
    return (*own, *whole, *(PlannedFile(name, 0) for name in rule.shared))


def largest_file_bytes(shard: RankLayout, rule: FileRule) -> int:
    """Return the bytes of tensors in the largest file of a rank."""
    return max(file.bytes for file in shard_files(shard, rule))


def names_to_read(shard: RankLayout, rule: FileRule) -> tuple[str, ...]:
    """Return the names of the files that whoever loads a rank's tensors reads."""
    own = read_of_consolidated(shard, rule) if rule.consolidated else files_of(shard, rule)
    return tuple(dict.fromkeys((*(file.name for file in own), *rule.shared)))


@lru_cache(maxsize=64)
def file_count(layout: Layout, rule: FileRule) -> int:
    """Return how many files a checkpoint has."""
    if not rule.of_rank:
        return layout.files
    several = rule.maximum_bytes or rule.pattern or rule.writers > 1
    files = sum(len(shard_files(shard, rule)) for shard in layout.ranks()) if several else layout.processes
    return files + len(consolidated_files(layout.rank(0), rule)) + len(rule.shared)


def names_of(layout: Layout, rule: FileRule) -> frozenset[str]:
    """Return every name that a file of a checkpoint has, also while a save goes on."""
    of_ranks = (file.name for shard in layout.ranks() for file in files_of(shard, rule))
    passing = (name for shard in layout.ranks() for name in passing_names(shard, rule))
    return frozenset((*of_ranks, *passing))


def passing_names(shard: RankLayout, rule: FileRule) -> tuple[str, ...]:
    """Return the names that a rank's files have only while a save goes on."""
    if not rule.pattern:
        return rule.passing
    found = replayed_files(rule.pattern.text, shard.rank, shard.bytes)
    return (*rule.passing, *(name for file in found for name in file.passing))


class WholeFile(NamedTuple):
    """A file of whole tensors, each of so many rows as ranks hold it; ``bytes`` are those of its tensors."""

    name: str
    tensors: Mapping[str, tuple[Tensor, tuple[int, ...]]]

    @property
    def bytes(self) -> int:
        """Bytes of all rows."""
        return sum(part.bytes * len(ranks) for part, ranks in self.tensors.values())


def consolidated_files(shard: RankLayout, rule: FileRule) -> tuple[WholeFile, ...]:
    """Return the files that rank 0 makes of those of all ranks of a rank's checkpoint; none where it makes none."""
    if not rule.consolidated:
        return ()
    return _consolidated(shard.whole, rule) if shard.whole else _whole_files((shard,), (shard,), rule)


def read_of_consolidated(shard: RankLayout, rule: FileRule) -> tuple[WholeFile, ...]:
    """Return those of them in which a rank has a part."""
    own = {tensor.name for file in shard.files for tensor in file.tensors}
    return tuple(file for file in consolidated_files(shard, rule) if not own.isdisjoint(file.tensors))


def consolidating_bytes(layout: Layout, rule: FileRule) -> int:
    """Return the memory that rank 0 needs beside its state: a whole tensor, and the part that was read last."""
    files = consolidated_files(layout.rank(0), rule)
    return max((part.bytes * (len(of) + 1) for file in files for part, of in file.tensors.values()), default=0)


@lru_cache(maxsize=64)
def bytes_beside_tensors(layout: Layout, rule: FileRule) -> int:
    """Return the bytes of a checkpoint's files beside what each rank saves of its tensors.

    They are known where a recorded job says how large they are, and where all tensors are written twice.
    """
    if rule.consolidated:
        return sum(file.bytes for file in consolidated_files(layout.rank(0), rule))
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


@lru_cache(maxsize=64)
def _consolidated(layout: Layout, rule: FileRule) -> tuple[WholeFile, ...]:
    return _whole_files(replace(layout, scale=1.0).ranks(), layout.ranks(), rule)


def _whole_files(full: Sequence[RankLayout], scaled: Sequence[RankLayout], rule: FileRule) -> tuple[WholeFile, ...]:
    """Cut the whole tensors of all ranks into files: weights, then the optimizer's, by their sizes at scale 1.0.

    Raises UsageError for a type of tensor that torch's writer cannot make whole.
    """
    sizes: dict[str, int] = {}
    held: dict[str, tuple[Tensor, tuple[int, ...]]] = {}
    for part in (slice(-1), slice(-1, None)):
        for tensor in (tensor for shard in full for file in shard.files[part] for tensor in file.tensors):
            if tensor.dtype not in _MADE_WHOLE:
                raise UsageError(
                    f"{tensor.name} is of type {tensor.dtype}, which torch's consolidation of safetensors cannot "
                    "make whole.",
                    "Take another engine, such as --ckpt-engine=safetensors.",
                )
            sizes[tensor.name] = sizes.get(tensor.name, 0) + tensor.bytes
    for shard in scaled:
        for tensor in (tensor for file in shard.files for tensor in file.tensors):
            first, ranks = held.get(tensor.name, (tensor, ()))
            held[tensor.name] = (first, (*ranks, shard.rank))
    names = list(sizes)
    cuts = [names[start:stop] for start, stop in _cut(list(sizes.values()), rule.maximum_bytes)]
    # A scale leaves files as they are, without those whose tensors it leaves out.
    whole = [left for cut in cuts if (left := [name for name in cut if name in held])]
    return tuple(
        WholeFile(_name(rule.consolidated, 0, number, len(whole)), {name: held[name] for name in left})
        for number, left in enumerate(whole, start=1)
    )


def _of_consolidated(shard: RankLayout, tensors: Sequence[Tensor], rule: FileRule) -> tuple[ShardFile, ...]:
    """Give each tensor of a rank to the file that is numbered as that of the whole tensor."""
    whole = consolidated_files(shard, rule)
    files = (
        ShardFile(
            name=_name(rule.of_rank, shard.rank, number, len(whole)),
            tensors=tuple(tensor for tensor in tensors if tensor.name in file.tensors),
        )
        for number, file in enumerate(whole, start=1)
    )
    return tuple(file for file in files if file.tensors)


def _of_a_size(shard: RankLayout, maximum_bytes: int) -> list[list[Tensor]]:
    """Return the tensors of each of the rank's files; a file is empty if ``shard`` lacks the part of the rank it is of.

    Files are cut by the sizes at scale 1.0. A scale leaves them as they are, without those whose tensors it leaves out.
    """
    full, at_scale = shard, shard
    if shard.whole:
        full, at_scale = replace(shard.whole, scale=1.0).rank(shard.rank), shard.whole.rank(shard.rank)
    kept, mine = _by_name(at_scale.files), _by_name(shard.files)
    parts: list[list[Tensor]] = []
    # The optimizer's file is the last one of a rank.
    for group in (full.files[:-1], full.files[-1:]):
        tensors = _by_name(group)
        names = list(tensors)
        for start, stop in _cut([tensor.bytes for tensor in tensors.values()], maximum_bytes):
            left = [name for name in names[start:stop] if name in kept]
            parts += [[mine[name] for name in left if name in mine]] if left else []
    return parts


def _by_name(files: Iterable[ShardFile]) -> dict[tuple[str, str], Tensor]:
    """Return tensors by the names of their files and their own."""
    return {(file.name, tensor.name): tensor for file in files for tensor in file.tensors}


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

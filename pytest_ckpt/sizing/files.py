"""The checkpoint files that each rank writes, and the number of their requests. Pure functions.

The layout, an engine's library or a recorded job (replay) defines the files. In a replay, the bytes of a rank's layout
are divided among its files as in the recording. Small files (`facts.pattern.Pattern.is_small`) keep their recorded size
and do not count towards the layout's bytes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from pytest_ckpt.facts.pattern import read_pattern
from pytest_ckpt.sizing.models import ShardFile, Tensor
from pytest_ckpt.support.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_ckpt.facts.file_rules import FileRule
    from pytest_ckpt.facts.pattern import Pattern, Synchronous
    from pytest_ckpt.sizing.models import Layout, RankLayout


CONTENT = "content"
"""The name of the only tensor in a file of a replay."""

_MADE_WHOLE = ("float16", "float32")
"""The types of tensors that torch 2.13 can consolidate: it uses `torch.finfo` for an element's size, which supports
only floats."""


class PlannedFile(NamedTuple):
    """A planned file of a rank. ``bytes`` are the bytes of its tensors."""

    name: str
    bytes: int


def shard_files(shard: RankLayout, rule: FileRule) -> tuple[ShardFile, ...]:
    """Return the files that a rank writes for its tensors, in the order of writing.

    Files that all ranks share, and files that rank 0 assembles, are excluded.
    """
    if not rule.of_rank:
        return shard.files
    if rule.pattern:
        return _replayed_shard_files(rule.pattern.text, shard.rank, shard.bytes)
    tensors = [tensor for file in shard.files for tensor in file.tensors]
    if rule.writers > 1:
        return _of_writers(shard.rank, tensors, rule)
    if rule.consolidated:
        return _of_consolidated(shard, tensors, rule)
    parts = _of_a_size(shard, rule.maximum_bytes) if rule.maximum_bytes else [tensors]
    return tuple(
        ShardFile(name=_name(rule.of_rank, shard.rank, number, len(parts)), tensors=tuple(part))
        for number, part in enumerate(parts, start=1)
        # If only the first files of a rank are read, these keep their names.
        if part
    )


def files_of(shard: RankLayout, rule: FileRule) -> tuple[PlannedFile, ...]:
    """Return the files that a rank writes for a checkpoint, in the order of writing.

    For rank 0, the result also contains the files that rank 0 assembles. It also contains the files that all ranks
    share; the shared files contain no tensors.
    """
    own = tuple(PlannedFile(file.name, file.bytes) for file in shard_files(shard, rule))
    if not rule.of_rank or shard.rank:
        return own
    whole = (PlannedFile(file.name, file.bytes) for file in consolidated_files(shard, rule))
    return (*own, *whole, *(PlannedFile(name, 0) for name in rule.shared))


def largest_file_bytes(shard: RankLayout, rule: FileRule) -> int:
    """Return the bytes of tensors in the largest file of a rank."""
    return max(file.bytes for file in shard_files(shard, rule))


def names_to_read(shard: RankLayout, rule: FileRule) -> tuple[str, ...]:
    """Return the names of the files that a rank reads in a load, without duplicates."""
    own = read_of_consolidated(shard, rule) if rule.consolidated else files_of(shard, rule)
    return tuple(dict.fromkeys((*(file.name for file in own), *rule.shared)))


@lru_cache(maxsize=64)
def file_count(layout: Layout, rule: FileRule) -> int:
    """Return the number of files of a checkpoint."""
    if not rule.of_rank:
        return layout.files
    several = rule.maximum_bytes or rule.pattern or rule.writers > 1
    files = sum(len(shard_files(shard, rule)) for shard in layout.ranks()) if several else layout.processes
    return files + len(consolidated_files(layout.rank(0), rule)) + len(rule.shared)


def names_of(layout: Layout, rule: FileRule) -> frozenset[str]:
    """Return the names of all files of a checkpoint, including their temporary names during a save."""
    of_ranks = (file.name for shard in layout.ranks() for file in files_of(shard, rule))
    passing = (name for shard in layout.ranks() for name in passing_names(shard, rule))
    return frozenset((*of_ranks, *passing))


def passing_names(shard: RankLayout, rule: FileRule) -> tuple[str, ...]:
    """Return the temporary names that a rank's files have only during a save."""
    if not rule.pattern:
        return rule.passing
    found = replayed_files(rule.pattern.text, shard.rank, shard.bytes)
    return (*rule.passing, *(name for file in found for name in file.passing))


class ConsolidatedFile(NamedTuple):
    """A file of complete tensors. A tensor has one row for each rank that saves a part of it.

    ``tensors`` is {name of a tensor: (one rank's part, numbers of all ranks that save a part)}. All parts of a tensor
    have the same size.
    """

    name: str
    tensors: Mapping[str, tuple[Tensor, tuple[int, ...]]]

    @property
    def bytes(self) -> int:
        """The bytes of all rows of all tensors."""
        return sum(part.bytes * len(ranks) for part, ranks in self.tensors.values())


def consolidated_files(shard: RankLayout, rule: FileRule) -> tuple[ConsolidatedFile, ...]:
    """Return the files that rank 0 assembles from the files of all ranks.

    If the engine does not assemble files, the result is empty. ``shard`` is any rank of the checkpoint.
    """
    if not rule.consolidated:
        return ()
    return _consolidated(shard.whole, rule) if shard.whole else _whole_files((shard,), (shard,), rule)


def read_of_consolidated(shard: RankLayout, rule: FileRule) -> tuple[ConsolidatedFile, ...]:
    """Return the assembled files that contain a part of a rank's tensors."""
    own = {tensor.name for file in shard.files for tensor in file.tensors}
    return tuple(file for file in consolidated_files(shard, rule) if not own.isdisjoint(file.tensors))


def consolidating_bytes(layout: Layout, rule: FileRule) -> int:
    """Return the memory that rank 0 needs to assemble files.

    The memory contains the largest complete tensor, and one rank's part of this tensor.
    """
    files = consolidated_files(layout.rank(0), rule)
    return max((part.bytes * (len(of) + 1) for file in files for part, of in file.tensors.values()), default=0)


@lru_cache(maxsize=64)
def extra_file_bytes(layout: Layout, rule: FileRule) -> int:
    """Return the bytes of a checkpoint's files that are not part of the layout.

    These are the small files of a replayed job, or the files that rank 0 assembles. For other engines, the result is 0.
    """
    if rule.consolidated:
        return sum(file.bytes for file in consolidated_files(layout.rank(0), rule))
    if not rule.pattern:
        return 0
    return sum(_replayed_extra_bytes(rule.pattern.text, shard.rank, shard.bytes) for shard in layout.ranks())


@lru_cache(maxsize=64)
def request_count(layout: Layout, request_bytes: int) -> int:
    """Return the number of requests for one checkpoint if each tensor is moved separately.

    Each file counts as one request. In addition, each tensor counts as the number of requests of ``request_bytes`` that
    it needs. A client that combines tensors sends fewer requests.
    """
    files = (file for shard in layout.ranks() for file in shard.files)
    return sum(1 + sum(-(-tensor.bytes // request_bytes) for tensor in file.tensors) for file in files)


def requests_against_full_size(layout: Layout, request_bytes: int) -> float:
    """Return the number of requests per byte of a checkpoint, divided by this number at scale 1.0."""
    full = replace(layout, scale=1.0)
    here, there = request_count(layout, request_bytes), request_count(full, request_bytes)
    return here * full.bytes / (layout.bytes * there)


class ReplayedFile(NamedTuple):
    """A file of a recorded pattern, as one rank of a replay writes it.

    ``number`` is the file's number in the pattern. ``recorded_bytes`` is its size in the recording, ``bytes`` its size
    in the replay. ``passing`` are two temporary names that alternate until the last rename. If ``kept`` is false, the
    file is removed during the save and has only temporary names. ``synchronous`` is the flag with which the file is
    opened for writing.
    """

    number: int
    name: str
    passing: tuple[str, str]
    renames: int
    recorded_bytes: int
    bytes: int
    is_small: bool
    kept: bool
    synchronous: Synchronous

    def name_before(self, renames: int) -> str:
        """Return the name of the file at the time when ``renames`` renames of the file are still to come.

        If no rename remains, a file that is kept has its final name.
        """
        return self.name if self.kept and not renames else self.passing[renames % 2]

    def at(self, offset: int) -> int:
        """Return the offset in this file that corresponds to an offset in the recorded file."""
        return offset * self.bytes // self.recorded_bytes if self.recorded_bytes else 0


@lru_cache(maxsize=2048)
def replayed_files(text: str, rank: int, rank_bytes: int) -> tuple[ReplayedFile, ...]:
    """Return every file that one rank of a replay writes in a save, in the order of the pattern.

    ``text`` is the content of the pattern file, ``rank_bytes`` the bytes of the rank in the layout.
    """
    pattern = read_pattern(text)
    recorded = pattern.of_rank(rank)
    own = [number for number, file in enumerate(pattern.files) if file.rank == recorded]
    large = [number for number in pattern.files_of(recorded) if not pattern.is_small(number)]
    renames = Counter(step.file for step in pattern.steps if step.call == "rename")
    total = sum(pattern.files[number].bytes for number in large)
    sizes, done = {}, 0
    for number in large:
        upto = done + pattern.files[number].bytes
        sizes[number] = rank_bytes * upto // total - rank_bytes * done // total
        done = upto
    return tuple(
        ReplayedFile(
            number=number,
            name=f"replay-{rank}-{place}.bin",
            passing=(f"replay-{rank}-{place}.moved", f"replay-{rank}-{place}.tmp"),
            renames=renames[number],
            recorded_bytes=pattern.files[number].bytes,
            bytes=sizes.get(number, _size_of_other_file(pattern, number, rank_bytes, total)),
            is_small=number not in sizes,
            kept=pattern.files[number].kept,
            synchronous=pattern.files[number].synchronous,
        )
        for place, number in enumerate(own)
    )


def _replayed_shard_files(text: str, rank: int, rank_bytes: int) -> tuple[ShardFile, ...]:
    """Return the files of one rank of a replay that remain after a save.

    A large file consists of one tensor with a share of ``rank_bytes``. A small file has no tensors.
    """
    return tuple(
        ShardFile(
            name=file.name,
            tensors=() if file.is_small else (Tensor(name=CONTENT, dtype="uint8", elements=file.bytes),),
        )
        for file in replayed_files(text, rank, rank_bytes)
        if file.kept
    )


def _replayed_extra_bytes(text: str, rank: int, rank_bytes: int) -> int:
    """Return the bytes of a rank's small files, which are not part of the layout."""
    return sum(file.bytes for file in replayed_files(text, rank, rank_bytes) if file.is_small)


def _of_writers(rank: int, tensors: Sequence[Tensor], rule: FileRule) -> tuple[ShardFile, ...]:
    """Return the files of a rank that has ``rule.writers`` parallel writers, one file for each writer.

    Each tensor, the largest first, is assigned to the writer that has the fewest bytes so far.
    torch.distributed.checkpoint assigns tensors in the same way.
    """
    parts: list[list[Tensor]] = [[] for _ in range(rule.writers)]
    for tensor in sorted(tensors, key=lambda tensor: -tensor.bytes):
        min(parts, key=lambda part: sum(each.bytes for each in part)).append(tensor)
    return tuple(
        ShardFile(name=_name(rule.of_rank, rank, 0, 0).replace("{writer}", str(writer)), tensors=tuple(part))
        for writer, part in enumerate(parts)
    )


@lru_cache(maxsize=64)
def _consolidated(layout: Layout, rule: FileRule) -> tuple[ConsolidatedFile, ...]:
    return _whole_files(replace(layout, scale=1.0).ranks(), layout.ranks(), rule)


def _whole_files(
    full: Sequence[RankLayout], scaled: Sequence[RankLayout], rule: FileRule
) -> tuple[ConsolidatedFile, ...]:
    """Divide the complete tensors of a checkpoint into files: first weights, then optimizer states.

    ``full`` are the ranks at scale 1.0, ``scaled`` the ranks at the scale of the run. The sizes at scale 1.0 determine
    the files. Raises UsageError for a type of tensor that torch's writer cannot assemble.
    """
    sizes: dict[str, int] = {}
    tensors: dict[str, tuple[Tensor, tuple[int, ...]]] = {}
    for part in (slice(-1), slice(-1, None)):
        for tensor in (tensor for shard in full for file in shard.files[part] for tensor in file.tensors):
            if tensor.dtype not in _MADE_WHOLE:
                raise UsageError(
                    f"{tensor.name} is of type {tensor.dtype}, which torch's consolidation of safetensors cannot "
                    "assemble.",
                    "Take another engine, such as --ckpt-engine=safetensors.",
                )
            sizes[tensor.name] = sizes.get(tensor.name, 0) + tensor.bytes
    for shard in scaled:
        for tensor in (tensor for file in shard.files for tensor in file.tensors):
            first, ranks = tensors.get(tensor.name, (tensor, ()))
            tensors[tensor.name] = (first, (*ranks, shard.rank))
    names = list(sizes)
    cuts = [names[start:stop] for start, stop in _cut(list(sizes.values()), rule.maximum_bytes)]
    # Scaling keeps the files, without those whose tensors are all omitted.
    whole = [left for cut in cuts if (left := [name for name in cut if name in tensors])]
    return tuple(
        ConsolidatedFile(_name(rule.consolidated, 0, number, len(whole)), {name: tensors[name] for name in left})
        for number, left in enumerate(whole, start=1)
    )


def _of_consolidated(shard: RankLayout, tensors: Sequence[Tensor], rule: FileRule) -> tuple[ShardFile, ...]:
    """Return the files that a rank writes for rank 0, which assembles the checkpoint from them.

    The rank writes one file for each assembled file that contains some of the rank's tensors.
    """
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
    """Divide the tensors of a rank into files of at most ``maximum_bytes``; return the tensors of each file.

    The sizes at scale 1.0 determine the files. If a smaller scale omits all tensors of a file, the file is omitted. If
    ``shard`` has only some of the rank's tensors, a file may be empty.
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
    """Return {(name of the file, name of the tensor): tensor}."""
    return {(file.name, tensor.name): tensor for file in files for tensor in file.tensors}


def _cut(sizes: Sequence[int], maximum: int) -> list[tuple[int, int]]:
    """Divide consecutive items into groups; return (start, stop) of each group.

    The total size of a group is at most ``maximum``. An item larger than ``maximum`` is a separate group.
    """
    cuts, filled = [0], 0
    for number, size in enumerate(sizes):
        if filled and filled + size > maximum:
            cuts.append(number)
            filled = 0
        filled += size
    return list(zip(cuts, [*cuts[1:], len(sizes)], strict=True)) if sizes else []


def _name(pattern: str, rank: int, number: int, count: int) -> str:
    """Return a file name of an engine: ``pattern`` with ``rank``, ``number`` and ``count`` inserted."""
    words = {"{rank}": str(rank), "{shard}": f"{rank + 1:05}", "{number}": f"{number:05}", "{count}": f"{count:05}"}
    for word, value in words.items():
        pattern = pattern.replace(word, value)
    return pattern


def _size_of_other_file(pattern: Pattern, number: int, rank_bytes: int, total: int) -> int:
    """Return the replayed size of a recorded file that is not part of the layout.

    A small file keeps its recorded size. The size of a file that is removed during the save is scaled like the sizes of
    large files.
    """
    file = pattern.files[number]
    return file.bytes if file.kept else file.bytes * rank_bytes // total

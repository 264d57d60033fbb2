"""Which files a rank of a replay writes: those of a recorded rank, at the size of the layout. Pure.

The bytes of a rank's layout are shared out over the files of the recorded rank as that shared out its own; small ones
(`facts.pattern.Pattern.is_small`) keep their size, and are none of the layout's bytes.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from pytest_ckpt.facts.pattern import read_pattern
from pytest_ckpt.sizing.tensors import ShardFile, Tensor

if TYPE_CHECKING:
    from pytest_ckpt.facts.pattern import Pattern

CONTENT = "content"
"""What the one tensor of a file is called."""


class ReplayedFile(NamedTuple):
    """File ``number`` of a pattern as a rank writes it: its last name, bytes then and now, how often it is renamed.

    ``passing`` are the names that it has before the last rename, in turn, or for good where it does not stay.
    """

    number: int
    name: str
    passing: tuple[str, str]
    renames: int
    recorded_bytes: int
    bytes: int
    is_small: bool
    kept: bool

    def name_before(self, renames: int) -> str:
        """Return its name while so many renames of it are still to come."""
        return self.name if self.kept and not renames else self.passing[renames % 2]

    def at(self, offset: int) -> int:
        """Return where a recorded place in the file stands now."""
        return offset * self.bytes // self.recorded_bytes if self.recorded_bytes else 0


@lru_cache(maxsize=2048)
def replayed_files(text: str, rank: int, rank_bytes: int) -> tuple[ReplayedFile, ...]:
    """Return every file that a rank makes in one save, in the order of the pattern."""
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
            bytes=sizes.get(number, _other_bytes(pattern, number, rank_bytes, total)),
            is_small=number not in sizes,
            kept=pattern.files[number].kept,
        )
        for place, number in enumerate(own)
    )


def shard_files_of(text: str, rank: int, rank_bytes: int) -> tuple[ShardFile, ...]:
    """Return the files that stay, each with one tensor of the bytes that are the layout's."""
    return tuple(
        ShardFile(
            name=file.name,
            tensors=() if file.is_small else (Tensor(name=CONTENT, dtype="uint8", elements=file.bytes),),
        )
        for file in replayed_files(text, rank, rank_bytes)
        if file.kept
    )


def bytes_beside(text: str, rank: int, rank_bytes: int) -> int:
    """Return the bytes of files that are none of the layout's."""
    return sum(file.bytes for file in replayed_files(text, rank, rank_bytes) if file.is_small)


def _other_bytes(pattern: Pattern, number: int, rank_bytes: int, total: int) -> int:
    """Return the bytes of a small file, or of one that does not stay, which is as large as the others are now."""
    file = pattern.files[number]
    return file.bytes if file.kept else file.bytes * rank_bytes // total

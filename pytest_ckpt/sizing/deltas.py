"""Deltas: saves that contain only modified pages. Pure functions.

A chain is a full save and the deltas after it. A restore of a delta reads the chain up to this delta.

Ranks, plan and verification compute the modified pages by the same rule. The pages of a rank are numbered over all of
its tensors. Every hundred pages contain one run of consecutive modified pages. The run is 100 x ``changed`` pages long,
and at least one page. The position of the run differs between checkpoints. So a page may be in several deltas of a
chain or in no delta.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ckpt.sizing.models import Layout, RankLayout

PAGE_BYTES = 4096
"""The unit of change in bytes: the resolution of the content generator."""

OF_CHAIN, DELTAS_OF_CHAIN = 128, 2
"""The chain that must survive the deletion of the subject's own checkpoints.

The number of the chain's full save is the number of the subject's own saves plus `OF_CHAIN`. `DELTAS_OF_CHAIN` is its
number of deltas.
"""

_PERIOD_PAGES = 100
# Coprime to the period, so that a hundred checkpoints begin at a hundred different pages.
_STRIDE_PAGES = 37
_HEAD_BYTES = 32
_RUN_BYTES = 24


class Run(NamedTuple):
    """A run of consecutive modified pages in one tensor of a rank.

    ``tensor`` is the tensor's number on the rank. ``page`` is the number of the first page within the tensor. ``pages``
    and ``bytes`` are the size of the run. The last page of a tensor may be short.
    """

    tensor: int
    page: int
    pages: int
    bytes: int


class _Total(NamedTuple):
    bytes: int
    file_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DeltaRule:
    """Defines which saves of a subject are deltas, and the share ``changed`` of pages modified between two saves.

    The subject's own saves have the numbers 1 to ``operations``. The first of every ``full_every`` saves is full, and
    the others are deltas. Saves with higher numbers belong to patterns (additional measurements). These saves are full,
    except for the deltas of `surviving_chain`.
    """

    full_every: int
    changed: float
    operations: int

    @property
    def deltas(self) -> int:
        """The number of deltas in the longest chain of the subject's own saves."""
        return min(self.full_every, self.operations) - 1

    @property
    def surviving_chain(self) -> tuple[int, ...]:
        """The save numbers of an additional chain. This chain must survive the deletion of all other checkpoints."""
        first = self.operations + OF_CHAIN
        return tuple(range(first, first + DELTAS_OF_CHAIN + 1))

    def chain(self, number: int) -> tuple[int, ...]:
        """Return the numbers of the saves that a restore of checkpoint ``number`` reads, the full save first."""
        base = number
        if number <= self.operations:
            base = number - (number - 1) % self.full_every
        elif number in self.surviving_chain:
            base = self.surviving_chain[0]
        return tuple(range(base, number + 1))

    def is_delta(self, number: int) -> bool:
        """Return whether checkpoint ``number`` contains only modified pages."""
        return len(self.chain(number)) > 1

    def runs(self, shard: RankLayout, number: int) -> Iterator[Run]:
        """Yield the runs of modified pages that one rank writes for delta ``number``, in the order of the file."""
        return _runs(_sizes(shard), number, self._width)

    def delta_bytes(self, shard: RankLayout, number: int) -> int:
        """Return the bytes of tensors that one rank writes for delta ``number``."""
        return self._total(_sizes(shard), number).bytes

    def file_bytes(self, shard: RankLayout, number: int) -> int:
        """Return the size of the file that one rank writes for delta ``number``: an index, and the modified pages.

        A short page is padded to the full page size.
        """
        return self._total(_sizes(shard), number).file_bytes

    def largest_file_bytes(self, shard: RankLayout) -> int:
        """Return an upper bound of the size of the file that one rank writes for any delta."""
        pages = sum(-(-size // PAGE_BYTES) for size in _sizes(shard))
        runs = pages // _PERIOD_PAGES + len(_sizes(shard)) + 2
        return index_bytes(runs) + min(pages, (pages // _PERIOD_PAGES + 1) * self._width) * PAGE_BYTES

    def save_bytes(self, layout: Layout, number: int) -> int:
        """Return the bytes of tensors that all ranks together write in save ``number``."""
        if not self.is_delta(number):
            return layout.bytes
        return sum(ranks * self._total(sizes, number).bytes for sizes, ranks in _distinct(layout))

    def saves_bytes(self, layout: Layout) -> tuple[int, ...]:
        """Return the tensor bytes of each of the subject's own saves, in total over all ranks."""
        return tuple(self.save_bytes(layout, number) for number in range(1, self.operations + 1))

    def loads_bytes(self, layout: Layout) -> tuple[int, ...]:
        """Return the tensor bytes that a restore of each of the subject's own saves reads, over all ranks."""
        return tuple(self.load_bytes(layout, number) for number in range(1, self.operations + 1))

    def load_bytes(self, layout: Layout, number: int) -> int:
        """Return the tensor bytes that all ranks together read to restore checkpoint ``number``."""
        return sum(self.save_bytes(layout, each) for each in self.chain(number))

    def files_bytes(self, layout: Layout, number: int) -> int:
        """Return the size of the files that all ranks together write for delta ``number``."""
        return sum(ranks * self._total(sizes, number).file_bytes for sizes, ranks in _distinct(layout))

    def _total(self, sizes: tuple[int, ...], number: int) -> _Total:
        return _total(sizes, number % _PERIOD_PAGES, self._width)

    @property
    def _width(self) -> int:
        return max(1, round(self.changed * _PERIOD_PAGES))


def delta_name(rank: int) -> str:
    """Return the name of the file that a rank writes for a delta."""
    return f"{rank}.delta"


def index_bytes(runs: int) -> int:
    """Return the size of the index of a delta file with ``runs`` runs of pages; it is a multiple of the page size."""
    return -(-(_HEAD_BYTES + runs * _RUN_BYTES) // PAGE_BYTES) * PAGE_BYTES


def _sizes(shard: RankLayout) -> tuple[int, ...]:
    return tuple(tensor.bytes for file in shard.files for tensor in file.tensors)


def _runs(sizes: tuple[int, ...], number: int, width: int) -> Iterator[Run]:
    begin = -_STRIDE_PAGES * number % _PERIOD_PAGES
    first = 0
    for tensor, size in enumerate(sizes):
        stop = first - (-size // PAGE_BYTES)
        # Changed pages begin at ``begin`` plus a multiple of the period; the first sequence may begin before the
        # tensor.
        start = first - (first - begin) % _PERIOD_PAGES
        while start < stop:
            low, high = max(start, first), min(start + width, stop)
            if low < high:
                page = low - first
                yield Run(tensor, page, high - low, min(size, (high - first) * PAGE_BYTES) - page * PAGE_BYTES)
            start += _PERIOD_PAGES
        first = stop


@lru_cache(maxsize=4096)
def _total(sizes: tuple[int, ...], number: int, width: int) -> _Total:
    """Return the tensor bytes and the file size of one rank's delta ``number``.

    The runs of pages are counted without listing them. ``sizes`` are the bytes of the rank's tensors; each run has
    ``width`` pages. The result is cached, because many ranks have tensors of the same sizes.
    """
    begin = -_STRIDE_PAGES * number % _PERIOD_PAGES
    total = pages = runs = first = 0
    for size in sizes:
        stop = first - (-size // PAGE_BYTES)
        changed = _changed_before(stop - begin, width) - _changed_before(first - begin, width)
        missing = (stop - first) * PAGE_BYTES - size if (stop - 1 - begin) % _PERIOD_PAGES < width else 0
        total, pages = total + changed * PAGE_BYTES - missing, pages + changed
        # Runs that begin before the end, minus the runs that end before the tensor begins.
        runs += -(-(stop - begin) // _PERIOD_PAGES) - ((first - begin - width) // _PERIOD_PAGES + 1)
        first = stop
    return _Total(total, index_bytes(runs) + pages * PAGE_BYTES)


def _changed_before(page: int, width: int) -> int:
    """Return the number of modified pages from page 0 up to, but not including, ``page``.

    Every hundredth page, including page 0, begins a run of ``width`` modified pages. If ``page`` is negative, the
    result is minus the number of modified pages from ``page`` up to page 0.
    """
    periods, rest = divmod(page, _PERIOD_PAGES)
    return periods * width + min(rest, width)


@lru_cache(maxsize=16)
def _distinct(layout: Layout) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Return (tensor sizes, number of ranks) for each distinct list of tensor sizes in a layout.

    Even a thousand ranks have only a few distinct lists.
    """
    return tuple(Counter(map(_sizes, layout.ranks())).items())

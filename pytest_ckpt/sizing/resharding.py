"""The parts of a checkpoint that twice or half as many ranks load. Pure functions.

A complete tensor has one row for each rank that saved a part of it (`pytest_ckpt.ranks.engines.dcp`). With twice as
many ranks, each rank loads half of a row. With half as many ranks, each rank loads two rows.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from pytest_ckpt.sizing.models import ITEM_BYTES
from pytest_ckpt.support.units import counted, format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ckpt.facts.engines import MemoryRule
    from pytest_ckpt.sizing.models import Dtype, Layout

SIZES = ("doubled", "halved")
"""The fields of `facts.measurement.Resized`, in the order of their launches."""


def ranks_of(size: str, processes: int) -> int:
    """Return the number of ranks that load a checkpoint of ``processes`` ranks.

    If ``size`` is ``doubled``, the result is twice ``processes``. Otherwise the result is half of ``processes``; 0 for
    one rank, which cannot be halved.
    """
    return 2 * processes if size == "doubled" else processes // 2


class SavedPart(NamedTuple):
    """The bytes from ``start`` up to, but not including, ``stop`` of a saved row.

    ``rank`` is the rank that saved the row. ``number`` is the number of the tensor on this rank.
    """

    rank: int
    number: int
    start: int
    stop: int


class ResizedTensor(NamedTuple):
    """A complete tensor, and its division among the ranks that load it.

    ``rows`` are pairs: a rank that saved a row, and the tensor's number on that rank. A row has ``columns`` elements.
    ``grid`` arranges the loading ranks in rows and columns. The rows of the grid divide the tensor's rows. The ranks of
    a grid row divide the tensor's columns. ``torch.chunk`` divides in the same way: the size of a part is rounded up,
    and the last part is the rest.
    """

    name: str
    dtype: Dtype
    columns: int
    rows: tuple[tuple[int, int], ...]
    grid: tuple[tuple[int, ...], ...]

    def shape_of(self, rank: int) -> tuple[int, int]:
        """Return (rows, columns) of a rank's part; zeros if the rank loads no part."""
        rows, columns = self._spans(rank)
        return (len(rows), len(columns)) if rows and columns else (0, 0)

    def parts_of(self, rank: int) -> Iterator[SavedPart]:
        """Yield the saved parts that a rank loads, row by row."""
        rows, columns = self._spans(rank)
        size = ITEM_BYTES[self.dtype]
        for row in rows if columns else ():
            yield SavedPart(*self.rows[row], start=columns.start * size, stop=columns.stop * size)

    def _spans(self, rank: int) -> tuple[range, range]:
        for number, together in enumerate(self.grid):
            if rank in together:
                columns = _chunk(self.columns, len(together), together.index(rank))
                return _chunk(len(self.rows), len(self.grid), number), columns
        return range(0), range(0)


def resharded(shards: Layout, processes: int) -> tuple[ResizedTensor, ...]:
    """Return the complete tensors of a layout, divided among the ``processes`` ranks that load them.

    The order of the tensors is the same on all ranks.
    """
    rows: dict[str, list[tuple[int, int]]] = {}
    shapes: dict[str, tuple[Dtype, int]] = {}
    for shard in shards.ranks():
        tensors = (tensor for file in shard.files for tensor in file.tensors)
        for number, tensor in enumerate(tensors):
            rows.setdefault(tensor.name, []).append((shard.rank, number))
            shapes[tensor.name] = (tensor.dtype, tensor.elements)
    return tuple(
        ResizedTensor(
            name=name,
            dtype=shapes[name][0],
            columns=shapes[name][1],
            rows=tuple(of),
            grid=_grid([rank for rank, _ in of], shards.processes, processes),
        )
        for name, of in rows.items()
    )


def reason_without_ranks(
    size: str, shards: Layout, memory: MemoryRule, *, slots: int | None, available_bytes: int | None
) -> str:
    """Return the reason why twice or half as many ranks cannot be started; empty if they can be started.

    ``size`` selects twice or half (`ranks_of`). ``slots`` is the largest number of ranks that the launcher starts;
    None: no maximum. ``available_bytes`` is the memory for all of these ranks; None if other hosts take part.
    """
    saved_by, count = shards.processes, ranks_of(size, shards.processes)
    if not count:
        return "One rank cannot be halved; two are needed."
    if slots is not None and count > slots:
        return (
            f"{counted(count, 'rank')} need as many slots, and --ckpt-hosts has {slots}: this launcher starts no more "
            "ranks than there are slots."
        )
    # A rank has its part of the state, and the library needs memory for a saved tensor while it loads.
    state = shards.largest_rank_bytes * (saved_by / count + max(0.0, memory.state_share - 1.0))
    need = count * (memory.process_bytes + math.ceil(state))
    if available_bytes is not None and need > available_bytes:
        return (
            f"{counted(count, 'rank')} need {format_bytes(need)} of memory on this host, and "
            f"{format_bytes(available_bytes)} are available."
        )
    return ""


def _grid(savers: list[int], saved_by: int, processes: int) -> tuple[tuple[int, ...], ...]:
    if processes >= saved_by:
        each = processes // saved_by
        return tuple(tuple(range(rank * each, (rank + 1) * each)) for rank in savers)
    return tuple((rank,) for rank in sorted({rank * processes // saved_by for rank in savers}))


def _chunk(length: int, parts: int, number: int) -> range:
    size = -(-length // parts)
    return range(min(length, number * size), min(length, (number + 1) * size))

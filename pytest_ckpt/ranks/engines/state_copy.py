"""Copies the state for a save in the background, by several threads, as a job's library does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from pytest_ckpt.support.host_state import cores_of_this_process
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from pytest_ckpt.ranks.content import Bytes
    from pytest_ckpt.ranks.process.group import Group

FACT = "copy of the state"


def threads_of(group: Group) -> int:
    """Return the number of threads that copy this rank's state; all ranks call this together."""
    of_all: list[frozenset[int]] = group.share(group.gather(frozenset(cores_of_this_process())))
    return share_of_cores(len(cores_of_this_process()), [of_all[rank] for rank in group.ranks_of_host])


def share_of_cores(own: int, of_ranks: Sequence[Collection[int]]) -> int:
    """Return a rank's share of its host's cores; it may use ``own`` of them, the ranks of its host ``of_ranks``.

    The stager of torch.distributed.checkpoint (DefaultStager) is one thread that calls ``Tensor.copy_``; on a CPU this
    splits a tensor over the threads of `torch.get_num_threads`, by default as many as there are cores. Processes of a
    job share these. A job that torchrun starts without OMP_NUM_THREADS has one thread, and copies more slowly.
    """
    return max(1, min(own, len(frozenset().union(*of_ranks)) // len(of_ranks)))


def told(threads: int) -> dict[str, str]:
    """Return the fact that describes how the state is copied."""
    by = counted(threads, "thread")
    return {
        FACT: f"in main memory, by {by} a rank, its share of the host's cores, as Tensor.copy_ of torch.distributed."
        "checkpoint's stager takes by default; an accelerator would copy from a memory of its own"
    }


def copy_state(copies: Sequence[Bytes], sources: Sequence[Bytes], threads: int) -> int:
    """Copy each source to the copy at its place, by so many threads; return the bytes copied."""
    ends = np.cumsum([len(source) for source in sources], dtype=np.int64)
    whole = int(ends[-1]) if len(ends) else 0
    spans = [(whole * part // threads, whole * (part + 1) // threads) for part in range(threads)]

    def copy(span: tuple[int, int]) -> None:
        for number, start, stop in _pieces(span, ends.tolist()):
            np.copyto(copies[number][start:stop], sources[number][start:stop])

    if threads == 1:
        copy(spans[0])
    else:
        # New threads: a pool that was started before a fork has no threads in the child.
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(copy, spans))
    return whole


def _pieces(span: tuple[int, int], ends: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield the part of each memory within a span of all of it: the memory's number, start and stop."""
    begin = 0
    for number, end in enumerate(ends):
        start, stop = max(span[0], begin), min(span[1], end)
        if start < stop:
            yield number, start - begin, stop - begin
        begin = end

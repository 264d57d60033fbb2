"""Reads of a checkpoint by readers other than its writers. Pure functions.

Such reads are restarts, resharded loads, and loads of serving replicas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pytest_ckpt.facts.measurement import RestartReads
from pytest_ckpt.facts.models import PARAMETERS_SHARDED
from pytest_ckpt.sizing.models import Layout, RankLayout, is_of_experts
from pytest_ckpt.sizing.models import layout as layout_of


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardPart:
    """Part ``part`` of ``parts`` equal parts of each file that the rank of ``shard`` wrote."""

    shard: RankLayout
    part: int = 0
    parts: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """The reads of all ranks in a load pattern.

    ``pieces`` lists for each rank its reads in order. ``bytes`` is the total of all ranks. ``copies`` is the number of
    complete copies of the model that are read concurrently; 0 if no copy is complete. ``not_run`` is the reason if
    these ranks cannot perform the pattern.
    """

    name: Literal["storm", "shifted", "joined", "split"]
    description: str = ""
    pieces: tuple[tuple[ShardPart, ...], ...] = ()
    bytes: int = 0
    not_run: str = ""
    copies: int = 0

    def of(self, rank: int) -> tuple[ShardPart, ...]:
        """Return the reads of a rank, in order."""
        return self.pieces[rank]


def storm(layout: Layout) -> Reading:
    """Return the reads of the pattern storm, in which all data-parallel replicas restore concurrently.

    If the ranks have several replicas of complete weights (ZeRO-1), each rank reads as in a real restore. The rank
    reads its own optimizer file. It also reads the model files of the rank that has the same position in the first
    replica.

    Otherwise (ZeRO-3, or the ranks of one node), all ranks read the files of rank 0. Each rank then simulates the first
    rank of another replica, or of another job that starts from this checkpoint.
    """
    replicas = _replicas(layout)
    if layout.processes == 1:
        return Reading(name="storm", not_run="One rank cannot be a storm; two are needed.")
    if replicas > 1:
        description = (
            f"{replicas} replicas concurrently read the model files of the first, and each rank its own optimizer file"
        )
        pieces = tuple(_of_replica(layout, rank) for rank in range(layout.processes))
    else:
        description = f"{layout.processes} ranks, each the first of a replica, concurrently read the files of rank 0"
        pieces = tuple((ShardPart(shard=layout.rank(0)),) for _ in range(layout.processes))
    copies = replicas if replicas > 1 else 0
    return Reading(name="storm", description=description, pieces=pieces, bytes=_total_bytes(pieces), copies=copies)


def restart_reads(shards: Layout, copies: int) -> RestartReads:
    """Return the bytes that the first copy and each further copy read in a restart of the cluster at full size.

    ``copies`` is the number of complete copies that the pattern storm read. The first copy counts as the whole
    checkpoint, with the optimizer files of all copies. With ZeRO-1, each further copy therefore adds only its model
    files. With ZeRO-3, or if the full layout has one copy, each copy is assumed to read the whole checkpoint. The
    assumed bytes are an upper bound.
    """
    model = shards.model
    first = shards.cluster_bytes
    whole = layout_of(model, mode="full")
    further = range(model.model_parallel, 2 * model.model_parallel) if _replicas(whole) > 1 else range(0)
    again = sum(_total_bytes([_of_replica(whole, rank)]) - whole.rank(rank).bytes for rank in further)
    return RestartReads(
        copies=copies,
        accelerators_per_copy=model.processes_per_copy,
        first_copy_bytes=first,
        copy_bytes=again or first,
    )


def _replicas(shards: Layout) -> int:
    """Return how many complete sets of weights the ranks of a layout contain together (1 with ZeRO-3)."""
    model = shards.model
    return 1 if model.zero_stage == PARAMETERS_SHARDED else shards.processes // model.model_parallel


def _of_replica(layout: Layout, rank: int) -> tuple[ShardPart, ...]:
    model, own = layout.model, layout.rank(rank)
    first = layout.rank(rank % model.model_parallel)
    # The first expert-parallel rank of a position wrote the data that all expert-parallel ranks of the position share.
    alike = layout.rank(rank % (model.tensor_parallel * model.pipeline_parallel))
    pieces = []
    if alike not in (own, first):
        pieces.append(replace(alike, files=tuple(f for f in alike.files[:-1] if not is_of_experts(f.name))))
    if own != first:
        # The optimizer's file is the last one of a rank.
        pieces.append(replace(first, files=first.files[:-1]))
    return tuple(ShardPart(shard=shard) for shard in (*pieces, own) if shard.files)


def shifted(layout: Layout, hosts: Sequence[str]) -> Reading:
    """Return the reads of the pattern named shifted: each rank reads the files of another rank.

    The distance between the numbers of reader and writer is the same for all ranks. With the chosen distance, as many
    ranks as possible read files that another host wrote, which the reader's host cannot have in memory. On a single
    host, each rank reads the files of the next rank. Whether these files are cached is measured.
    """
    count = layout.processes
    if count == 1:
        return Reading(name="shifted", not_run="One rank has no other's files to read; two are needed.")
    elsewhere = {by: sum(hosts[rank] != hosts[(rank + by) % count] for rank in range(count)) for by in range(1, count)}
    by = max(elsewhere, key=elsewhere.__getitem__)
    pieces = tuple((ShardPart(shard=layout.rank((rank + by) % count)),) for rank in range(count))
    where = f"{elsewhere[by]} of them another host's" if elsewhere[by] else "all on the only host"
    description = f"each of {count} ranks reads the files of the rank that is {by} further, {where}"
    return Reading(name="shifted", description=description, pieces=pieces, bytes=layout.bytes)


def joined(layout: Layout) -> Reading:
    """Return the reads of the pattern joined, in which half of the ranks read the whole checkpoint.

    Each reader reads the files of two ranks, one after the other. The remaining ranks wait.
    """
    count = layout.processes
    readers = math.ceil(count / 2)
    if count == 1:
        return Reading(name="joined", not_run="One rank cannot be halved; two are needed.")
    pieces = tuple(
        tuple(ShardPart(shard=layout.rank(shard)) for shard in (2 * rank, 2 * rank + 1) if shard < count)
        for rank in range(count)
    )
    description = f"{readers} of {count} ranks read the files of two ranks each"
    return Reading(name="joined", description=description, pieces=pieces, bytes=layout.bytes)


def split(layout: Layout) -> Reading:
    """Return the reads of the pattern split, which simulates twice as many ranks as wrote the checkpoint.

    Two simulated readers share the files of each rank: each reads half of every file. In a real restore, all readers
    would read concurrently on twice as many ranks. Here each rank reads for two or more readers in succession, so the
    measured time is an upper bound.
    """
    count = layout.processes
    if count == 1:
        return Reading(name="split", not_run="One rank cannot be two readers; two are needed.")
    pairs = count // 2
    pieces = tuple(
        tuple(
            ShardPart(shard=layout.rank(shard), part=rank % 2, parts=2)
            for shard in range(rank // 2, count, pairs)
            if rank < 2 * pairs
        )
        for rank in range(count)
    )
    turns = math.ceil(count / pairs)
    description = f"two readers share each file, half of it each; {pairs} ranks' files at a time, in {turns} turns"
    return Reading(name="split", description=description, pieces=pieces, bytes=layout.bytes)


def _total_bytes(pieces: Sequence[Sequence[ShardPart]]) -> int:
    return sum(piece.shard.bytes for of_rank in pieces for piece in of_rank)


BYTES_A_PARAMETER = 2
MAXIMUM_FILE_BYTES = 5_000_000_000
_PAGE_BYTES = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """The weights of a model in files. ``file_pages`` is the number of 4 KiB pages of each file.

    ``full_bytes`` is the size of all weights of the model at scale 1.0. If the ranks are a subset, the files contain
    only the share of the subset.

    The files are assigned to ``processes`` ranks in rotation, and each rank writes its files. For reads,
    each group of ``readers`` consecutive ranks is a replica. There are ``replicas`` groups; the remaining ranks do not
    read. Each replica reads all files, and each of its ranks reads a part of every file.
    """

    processes: int
    readers: int
    full_bytes: int
    file_pages: tuple[int, ...]

    @property
    def replicas(self) -> int:
        """The number of replicas that read concurrently."""
        return self.processes // self.readers

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(self.file_pages) * _PAGE_BYTES

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the files, in order."""
        count = len(self.file_pages)
        return tuple(f"weights-{number:05}-of-{count:05}.bin" for number in range(1, count + 1))

    def file_bytes(self, file: int) -> int:
        """Return the bytes of a file, given its number."""
        return self.file_pages[file] * _PAGE_BYTES

    def written_by(self, rank: int) -> range:
        """Return the numbers (from 0) of the files that a rank writes."""
        return range(rank, len(self.file_pages), self.processes)

    def read_by(self, rank: int) -> list[tuple[int, int, int]]:
        """Return (file, first byte, byte after the last) of each read of a rank; empty if the rank reads no file."""
        if rank >= self.replicas * self.readers:
            return []
        part = rank % self.readers
        spans = (
            (file, pages * part // self.readers * _PAGE_BYTES, pages * (part + 1) // self.readers * _PAGE_BYTES)
            for file, pages in enumerate(self.file_pages)
        )
        return [(file, start, stop) for file, start, stop in spans if stop > start]


def weights_of(layout: Layout, readers: int) -> Weights:
    """Return the weights of a layout's model at the scale of the layout.

    If the layout is a subset of the ranks, return only the share of the subset.
    """
    full = BYTES_A_PARAMETER * layout.model.parameters
    share = layout.processes / layout.cluster_processes
    count = max(1, math.ceil(full * share / MAXIMUM_FILE_BYTES))
    pages = max(count, round(full * share * layout.scale / _PAGE_BYTES))
    return Weights(
        processes=layout.processes,
        readers=min(readers, layout.processes),
        full_bytes=full,
        file_pages=tuple(pages * (n + 1) // count - pages * n // count for n in range(count)),
    )

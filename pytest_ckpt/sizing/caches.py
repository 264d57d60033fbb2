"""The cache rule: must the clients' page caches be dropped between the saves and the loads?

The published rule compares a node's checkpoint with the node's memory, and its sentence and its examples differ. Both
readings are computed, and if either requires a drop, caches are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_ckpt.facts.proofs import CacheReading

_FACTOR = 3

ONE_CHECKPOINT = "3 x one checkpoint of the node is less than the node's memory"
ALL_CHECKPOINTS = "all checkpoints written by the node are less than 3 x the node's memory"


def minimum_moved(saves: Sequence[int], loads: Sequence[int]) -> int:
    """Return the minimum number of checkpoints that were moved between a checkpoint's last move and its load.

    ``saves`` and ``loads`` are the numbers of checkpoints in the order in which they were moved. A host's part of a
    checkpoint went through the host's memory this number of times before a load.
    """
    moved = [*saves, *loads]
    return min(
        (at - 1 - max(b for b in range(at) if moved[b] == moved[at]) for at in range(len(saves), len(moved))), default=0
    )


def cache_readings(host: str, memory_bytes: int, checkpoint_bytes: int, operations: int) -> tuple[CacheReading, ...]:
    """Apply both readings of the rule to one host.

    ``memory_bytes`` is the host's memory, ``checkpoint_bytes`` its ranks' part of one checkpoint. Under the first
    reading the client's memory has room for the whole checkpoint three times; under the second, the first checkpoint
    may not have been evicted when it is read.
    """
    written = checkpoint_bytes * operations
    return (
        CacheReading(
            rule=ONE_CHECKPOINT,
            host=host,
            memory_bytes=memory_bytes,
            bytes_compared=_FACTOR * checkpoint_bytes,
            requires_drop=_FACTOR * checkpoint_bytes < memory_bytes,
        ),
        CacheReading(
            rule=ALL_CHECKPOINTS,
            host=host,
            memory_bytes=memory_bytes,
            bytes_compared=written,
            requires_drop=written < _FACTOR * memory_bytes,
        ),
    )

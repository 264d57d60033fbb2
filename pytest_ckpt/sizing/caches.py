"""The cache rule: whether the clients' page caches must be dropped between the saves and the loads.

The published rule compares a node's part of a checkpoint with the node's memory. Its text and its examples contradict
each other, so both interpretations are computed. If either requires a drop, caches are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_ckpt.facts.proofs import CacheReading

_FACTOR = 3

ONE_CHECKPOINT = "3 x one checkpoint of the node is less than the node's memory"
ALL_CHECKPOINTS = "all checkpoints written by the node are less than 3 x the node's memory"


def minimum_moved(saves: Sequence[int], loads: Sequence[int]) -> int:
    """Return the minimum number of other checkpoints that are moved before a load, since its checkpoint was last moved.

    ``saves`` and ``loads`` are the numbers of checkpoints in the order in which they were moved. A host's part of that
    many checkpoints passed through the host's memory before the load.
    """
    moved = [*saves, *loads]
    return min(
        (at - 1 - max(b for b in range(at) if moved[b] == moved[at]) for at in range(len(saves), len(moved))), default=0
    )


def cache_readings(host: str, memory_bytes: int, checkpoint_bytes: int, operations: int) -> tuple[CacheReading, ...]:
    """Apply both interpretations of the rule to one host.

    ``memory_bytes`` is the host's memory, ``checkpoint_bytes`` its ranks' part of one checkpoint. By the first
    interpretation, a drop is required if three times the checkpoint is smaller than the memory. By the second, it is
    required if all checkpoints together are smaller than three times the memory.
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

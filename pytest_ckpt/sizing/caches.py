"""The cache rule: whether the clients' page caches must be dropped between the saves and the loads.

The published rule compares a node's part of a checkpoint with the node's memory. The rule's text and examples
contradict each other, so both interpretations are computed. If one interpretation requires a drop, caches are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_ckpt.facts.proofs import CacheReading

_FACTOR = 3

ONE_CHECKPOINT = "3 x one checkpoint of the node is less than the node's memory"
ALL_CHECKPOINTS = "all checkpoints written by the node are less than 3 x the node's memory"


def minimum_moved(saves: Sequence[int], loads: Sequence[int]) -> int:
    """Return the smallest number of operations between a load and the previous use of the same checkpoint.

    ``saves`` and ``loads`` are checkpoint numbers, in the order of the operations. Each operation moves a host's part
    of a checkpoint through the host's memory. So between any load and the previous use of its checkpoint, at
    least as many parts as the result pass through the memory. Without loads, the result is 0.
    """
    moved = [*saves, *loads]
    return min(
        (at - 1 - max(b for b in range(at) if moved[b] == moved[at]) for at in range(len(saves), len(moved))), default=0
    )


def cache_readings(host: str, memory_bytes: int, checkpoint_bytes: int, operations: int) -> tuple[CacheReading, ...]:
    """Return the results of both interpretations of the rule for one host.

    ``memory_bytes`` is the host's memory. ``checkpoint_bytes`` are the bytes of one checkpoint that the host's ranks
    write. ``operations`` is the number of saves. The first interpretation requires a drop if 3 x ``checkpoint_bytes``
    is less than the memory. The second interpretation requires a drop if the host's bytes of all saves are less than 3
    x the memory.
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

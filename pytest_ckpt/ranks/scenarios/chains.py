"""Tests a chain of deltas (saves of only the changed pages).

The chain must load after older checkpoints were deleted, and a missing delta must be detected.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

from pytest_ckpt.facts.events import PatternMeasured
from pytest_ckpt.facts.strategy_results import Chains
from pytest_ckpt.ranks.checkpoints import size_of_file
from pytest_ckpt.sizing.deltas import delta_name
from pytest_ckpt.targets.protocol import StoreOnVolume

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_ckpt.ranks.operations import Operations
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.host_cache import Files, HostCache
    from pytest_ckpt.ranks.process.job import Task
    from pytest_ckpt.ranks.scenarios.context import ScenarioContext
    from pytest_ckpt.ranks.scenarios.retention import SavesRetained
    from pytest_ckpt.ranks.strategies.protocol import Strategy
    from pytest_ckpt.targets.protocol import Store

# Many file systems free the space some time after the deletion.
_SPACE_SECONDS = 10.0
_POLL_SECONDS = 0.25
_MAXIMUM_LEFT = 0.1


def measure_chains(
    group: Group,
    activity: Activity,
    do: Operations,
    store: Store,
    strategy: Strategy,
    cache: HostCache,
    drop: Callable[[Sequence[Files]], None],
    task: Task,
    own: SavesRetained,
) -> None:
    """Save a chain of deltas, delete all older checkpoints, and load the chain.

    Then delete one delta of the chain, and record whether the file of this delta is really missing.
    """
    rule = task.deltas
    if rule is None or task.keep:
        reason = "Checkpoints were to be kept (--ckpt-keep-files), and this deletes them."
        do.send(PatternMeasured(subject=task.subject, name="chains", not_run=reason))
        return
    start = time.perf_counter()
    whole = task.layout()
    chain = rule.surviving_chain
    for number in chain:
        do.save(strategy, number, role="chain", stage="chains")
    older = own.kept
    deleted_bytes = sum(rule.save_bytes(whole, number) for number in older)
    used = _used_bytes(group, store, task)
    own.delete_all(of_subject=False)
    freed = _freed_bytes(group, activity, store, task, used, deleted_bytes)
    drop(do.files_of_load(chain[-1]))
    loaded = do.load(strategy.engine, cache, chain[-1], chain[-1], counted=False, scenario="chains")
    strategy.release()
    strategy.engine.release()
    do.delete(chain[1])
    served = size_of_file(store, do.ref(chain[1]), delta_name(group.rank), activity)
    misses = not group.any_of(served is not None)
    for number in (chain[0], *chain[2:]):
        do.delete(number)
    do.send(
        PatternMeasured(
            subject=task.subject,
            name="chains",
            found=Chains(
                deltas=len(chain) - 1,
                deleted=len(older),
                deleted_bytes=deleted_bytes,
                freed_bytes=freed,
                integrity=loaded.integrity(rule.load_bytes(whole, chain[-1])),
                misses_deleted=misses,
            ),
        )
    )
    do.step("chains", 1, time.perf_counter() - start)


def _used_bytes(group: Group, store: Store, task: Task) -> int | None:
    """Return the number of used bytes of the volume on rank 0, if the target reports it. Return None elsewhere."""
    if group.rank != 0 or "volume" not in store.capabilities:
        return None
    return cast("StoreOnVolume", store).volume(task.subject.slug).used_bytes


def _freed_bytes(
    group: Group, activity: Activity, store: Store, task: Task, before: int | None, deleted_bytes: int
) -> int | None:
    """Wait until the space of deleted files is free, at most `_SPACE_SECONDS`. Return the freed bytes on rank 0.

    ``before`` is the number of used bytes before the deletion; None if this rank does not know the number. If
    ``before`` is None, wait only for the other ranks, and return None. ``deleted_bytes`` is the size of the deleted
    files.
    """
    freed = None
    with activity.wait():
        if before is not None:
            end = time.monotonic() + _SPACE_SECONDS
            while True:
                freed = before - (_used_bytes(group, store, task) or 0)
                if freed >= deleted_bytes * (1 - _MAXIMUM_LEFT) or time.monotonic() >= end:
                    break
                time.sleep(_POLL_SECONDS)
        group.wait()
    return freed


def measure(at: ScenarioContext) -> None:
    """Run this scenario for a subject."""
    strategy = at.strategy(aside="chains")
    measure_chains(at.group, at.activity, at.do, at.store, strategy, at.cache, at.drop, at.task, at.own)

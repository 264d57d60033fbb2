"""What deltas change in a plan, how many checkpoints are on the target at once, how memory adds up over hosts. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ckpt.sizing.deltas import DeltaRule
from pytest_ckpt.sizing.files import consolidating_bytes, largest_file_bytes

if TYPE_CHECKING:
    from pytest_ckpt.facts.engines import EngineSpec
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.facts.strategies import StrategySpec
    from pytest_ckpt.sizing.limits import Demand
    from pytest_ckpt.sizing.models import Layout

FILE_OVERHEAD_BYTES = 64 << 10
"""A container's header, directory and pickle, and what file systems round up to."""


def delta_rule(settings: Settings, strategy: StrategySpec) -> DeltaRule | None:
    """Return which saves by a strategy hold only what changed; None where all are full."""
    if not strategy.saves_deltas:
        return None
    return DeltaRule(full_every=settings.full_every, changed=settings.changed, operations=settings.operations)


def with_deltas(asks: Demand, shards: Layout, rule: DeltaRule | None) -> Demand:
    """Return what limits ask where some saves hold only what changed: a day writes less, and a restore reads more.

    What every save must reach stays that of a full one.
    """
    if rule is None:
        return asks
    chain = range(1, rule.deltas + 2)
    written = sum(rule.save_bytes(shards, number) for number in chain) / len(chain) / shards.bytes
    return replace(
        asks,
        load_bytes_per_second=asks.load_bytes_per_second * rule.load_bytes(shards, chain[-1]) / shards.bytes,
        bytes_per_day=asks.bytes_per_day * written,
        sustained_bytes_per_second=asks.sustained_bytes_per_second * written,
    )


def chain_bytes(shards: Layout, rule: DeltaRule | None, one: int) -> int:
    """Return the space that chains take more than full checkpoints in their place; negative where it is less.

    One chain more is there while the others are deleted.
    """
    if rule is None:
        return 0
    sizes = {
        number: rule.files_bytes(shards, number) + shards.processes * FILE_OVERHEAD_BYTES
        for number in (*range(1, rule.operations + 1), *rule.own_chain)
        if rule.is_delta(number)
    }
    own = sum(sizes.get(number, one) for number in rule.own_chain)
    return own + sum(sizes[number] - one for number in range(1, rule.operations + 1) if number in sizes)


def state_memory(
    shards: Layout, engine: EngineSpec, strategy: StrategySpec, rule: DeltaRule | None, *, loads_others: bool
) -> list[int]:
    """Return what grows with the model of the memory that each rank needs.

    Where ranks load each other's files (``loads_others``), each may hold the most of all. Pages of a delta are gathered
    to be written, and read to be compared.
    """
    own = shards.rank_bytes
    files = [largest_file_bytes(shard, engine.files) if engine.memory.file_share else 0 for shard in shards.ranks()]
    alone = [engine.memory.state_bytes(each, file) for each, file in zip(own, files, strict=True)]
    alone[0] += consolidating_bytes(shards, engine.files)
    maximum = max(alone) if loads_others and not engine.is_collective else 0
    times = 2 if strategy.stages else 1
    deltas = [times * rule.largest_file_bytes(shard) for shard in shards.ranks()] if rule else [0] * len(own)
    return [
        max(strategy.memory_bytes(needed, each), maximum) + of_delta
        for needed, each, of_delta in zip(alone, own, deltas, strict=True)
    ]


def checkpoints_at_once(settings: Settings) -> int:
    """Return how many checkpoints are on the target at most: one is written before the oldest is deleted."""
    kept = min(settings.retain or settings.operations, settings.operations)
    at_once = kept + (1 if settings.retain or settings.data_pairs or settings.asks_contention else 0)
    if settings.asks_serving or settings.asks_scaling:
        # Weights and their copy: two times 2 of the 14 bytes that a checkpoint has for a parameter. Of growing counts
        # of clients one checkpoint at a time.
        at_once = max(at_once, kept + 1)
    if settings.compresses and settings.asks_strategies:
        # One that is saved plainly and compressed in turns.
        at_once = max(at_once, kept + 1)
    if settings.asks_notice or (settings.has_tiers and settings.asks_strategies):
        # A save beside one that goes on, or one drained while the one before is still there.
        at_once = max(at_once, kept + 2)
    if settings.asks_failover or settings.asks_upgrade or settings.asks_snapshots:
        # One that is whole and one that is written, where the others are not to be kept in their place.
        at_once = max(at_once, 2 + (kept if settings.keep else 0))
    if not settings.asks_endurance:
        return at_once
    # Endurance has two and the one that is written, where the others are not to be kept in their place.
    return max(at_once, 3 + (kept if settings.keep else 0))


def over_hosts(memory: list[int], settings: Settings) -> tuple[int, ...]:
    """Add up the memory of ranks for each host; launchers fill a host's slots before they go on to the next."""
    if not settings.hosts:
        return (sum(memory),)
    sums, start = [], 0
    for host in settings.hosts:
        sums.append(sum(memory[start : start + host.slots]))
        start += host.slots
    sums[0] += sum(memory[start:])
    return tuple(sums)

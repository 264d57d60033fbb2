"""Saves to the local tier alone and beside drains, then restores: the newest checkpoint that is whole on all ranks."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_ckpt.facts.events import PatternMeasured
from pytest_ckpt.facts.strategy_results import NodeLoss, Tier, TierRestore, Tiers
from pytest_ckpt.ranks.checkpoints import size_of_file
from pytest_ckpt.ranks.operations import Operations
from pytest_ckpt.ranks.process.host_cache import HostCache
from pytest_ckpt.ranks.process.job import OF_TIERS
from pytest_ckpt.ranks.scenarios.partners import PartnerScenario
from pytest_ckpt.ranks.strategies.sync import SyncStrategy
from pytest_ckpt.ranks.strategies.tiered import Drains

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_ckpt.ranks.engines.protocol import Engine
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.host_cache import Files
    from pytest_ckpt.ranks.process.job import Task
    from pytest_ckpt.ranks.strategies.background import InFlight
    from pytest_ckpt.sizing.models import RankLayout
    from pytest_ckpt.targets.protocol import Store

# In turns, so that a drift favours neither; the last one leaves a checkpoint on the target and a newer one that is not.
_BESIDE_A_DRAIN = (False, True, True, False, False, True)


@dataclass(kw_only=True, slots=True)
class TierScenario:
    """Checkpoints of ``bytes`` over all ranks; ``drop`` empties the caches of what is about to be read of the target.

    ``do`` are the subject's operations on the target, ``cache`` is the host's cache for it.
    """

    group: Group
    activity: Activity
    do: Operations
    cache: HostCache
    store: Store
    tier: Store
    engine: Engine
    shard: RankLayout
    task: Task
    bytes: int
    drop: Callable[[Sequence[Files]], None]
    _local: Operations = field(init=False)
    # This rank's files, as they were when they had been saved.
    _sizes: dict[int, Mapping[str, int | None]] = field(default_factory=dict)
    _seconds: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    _drained: list[float] = field(default_factory=list)

    def measure(self) -> None:
        """Save and drain in turns, restore, damage the newest, restore again, and remove all of it."""
        start = time.perf_counter()
        task = self.task
        self._local = Operations(
            self.group, self.activity, task.subject, self.shard, self.tier, rule=task.files, is_local=True
        )
        on_target, newest = self._take_turns()
        near = HostCache(self.group, self.activity, self.tier, task.subject.slug)
        whole = self._restore(1, "local", newest, near)
        # The host of one rank has lost its part: what the others still hold must not be mixed with anything.
        is_struck = self.group.rank == task.processes - 1
        if is_struck:
            self._local.delete_own(newest)
        self.group.wait()
        torn = self._restore(2, "target", on_target, near)
        if not is_struck:
            self._local.delete_own(newest)
        self._local.finish_delete([newest])
        node_loss = self._lose_a_host(near) if self.group.spans_hosts else None
        self.engine.release()
        self._delete_drained(on_target)
        found = Tiers(
            bytes=self.bytes,
            alone_seconds=tuple(self._seconds[False]),
            beside_seconds=tuple(self._seconds[True]),
            drain_seconds=tuple(self._drained),
            whole=whole,
            torn=torn,
            node_loss=node_loss,
        )
        self.do.send(PatternMeasured(subject=task.subject, name="tiers", found=found))
        self.do.step("tiers", 1, time.perf_counter() - start)

    def _lose_a_host(self, near: HostCache) -> NodeLoss:
        return PartnerScenario(
            group=self.group,
            activity=self.activity,
            do=self._local,
            cache=near,
            tier=self.tier,
            engine=self.engine,
            after=self.task.operations,
            bytes=self.bytes,
        ).measure()

    def _take_turns(self) -> tuple[int, int]:
        """Save to the local tier, alone and beside drains; return the last one drained, and the newest, which is not.

        Of both tiers only these two are left.
        """
        saves = SyncStrategy(engine=self.engine, store=self.tier, group=self.group, activity=self.activity)
        drains = Drains(self.store, self.tier, self.group, self.activity)
        newest = self.task.operations + OF_TIERS
        self._save(saves, newest)
        on_target = 0
        for number, is_beside in enumerate(_BESIDE_A_DRAIN, start=newest + 1):
            before, newest = newest, number
            seconds = self._save(saves, number, (drains, before) if is_beside else None)
            self._seconds[is_beside] += [seconds] if seconds is not None else []
            if is_beside:
                if on_target:
                    self._delete_drained(on_target)
                on_target = before
            self._local.delete(before)
        drains.release()
        return on_target, newest

    def _save(self, saves: SyncStrategy, number: int, drained: tuple[Drains, int] | None = None) -> float | None:
        """Save to the local tier, and drain another checkpoint from when the save begins; return rank 0's seconds."""
        at = self.do.one("tiers", "save", number - self.task.operations - OF_TIERS + 1)
        pending: list[InFlight] = []

        def drain(_over: threading.Event) -> None:
            if drained:
                drains, before = drained
                ref, names = self.do.new_ref(before, "tier"), tuple(self._sizes[before])
                pending.append(drains.begin(ref, names, start=time.perf_counter()))

        operation = self._local.save(saves, number, role="tier", at=at, stage="tiers", meanwhile=drain)
        for each in pending:
            with self.activity.wait():
                timing = each.wait().timing
            # Rank 0 commits, and that is when a drain is over.
            self._drained += [timing.committed] if timing.committed is not None else []
        ref = self._local.ref(number)
        self._sizes[number] = {
            name: size_of_file(self.tier, ref, name, self.activity) for name in self._local.own_names(number)
        }
        return operation.seconds if operation else None

    def _delete_drained(self, number: int) -> None:
        self.store.delete(self.do.ref(number), tuple(self._sizes[number]))
        self.do.finish_delete([number])

    def _restore(self, index: int, expected_tier: Tier, expected: int, near: HostCache) -> TierRestore:
        """Choose the newest checkpoint that is whole; load it where it is the one that it should be."""
        self.activity.begin(self.do.one("tiers", "load", index))
        tier, number = self._newest_whole()
        integrity, seconds = None, 0.0
        if (tier, number) == (expected_tier, expected):
            is_local = tier == "local"
            do, cache = (self._local, near) if is_local else (self.do, self.cache)
            names = self._names_of_load(number)
            if not is_local:
                self.drop([self.do.files(number, names)])
            loaded = do.load(self.engine, cache, index, number, counted=False, scenario="tiers", names=names)
            seconds = loaded.operation.seconds if loaded.operation else 0.0
            integrity = loaded.integrity(self.bytes)
        return TierRestore(
            expected_tier=expected_tier,
            expected=expected,
            tier=tier,
            number=number,
            seconds=seconds,
            integrity=integrity,
        )

    def _names_of_load(self, number: int) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self._sizes[number], *self.task.files.shared)))

    def _newest_whole(self) -> tuple[Tier, int]:
        """Return, on all ranks, the newest checkpoint of which every rank's files are there, the local tier first."""
        slug = self.task.subject.slug
        tiers: tuple[tuple[Tier, Store], ...] = (("local", self.tier), ("target", self.store))
        # Those before are the subject's own, which are older.
        found = [
            (number, tier)
            for tier, store in tiers
            for number in store.committed(slug)
            if number >= self.task.operations + OF_TIERS
        ]
        candidates: list[tuple[int, Tier]] = self.group.share(sorted(found, key=lambda each: (-each[0], each[1])))
        for number, tier in candidates:
            if not self.group.any_of(not self._has_own_files(dict(tiers)[tier], number)):
                return tier, number
        return "", 0

    def _has_own_files(self, store: Store, number: int) -> bool:
        """Return whether this rank's files of a checkpoint are there, with the sizes that they had."""
        ref, sizes = self.do.ref(number), self._sizes.get(number, {})
        there = (size_of_file(store, ref, name, self.activity) == size for name, size in sizes.items())
        return bool(sizes) and all(there)

"""Serving: replicas load a model's weights at once, cold and again warm; one client brings them into other files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.facts.events import PatternMeasured
from pytest_ckpt.facts.serving import Consolidation, Serving, WeightsLoad
from pytest_ckpt.ranks.engines.protocol import Clock
from pytest_ckpt.ranks.engines.weights import Consolidator, WeightsEngine
from pytest_ckpt.ranks.process.job import OF_SERVING
from pytest_ckpt.ranks.strategies.sync import SyncStrategy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_ckpt.facts.serving import WayOfReading
    from pytest_ckpt.ranks.content import Content
    from pytest_ckpt.ranks.operations import Operations
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.host_cache import Files, HostCache
    from pytest_ckpt.ranks.process.job import Task
    from pytest_ckpt.sizing.serving import Weights
    from pytest_ckpt.targets.protocol import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingScenario:
    """Measures the weights in two checkpoints of their own: as all ranks wrote them, and as one rewrote them.

    ``drop`` empties the caches of what this rank is about to read.
    """

    group: Group
    activity: Activity
    do: Operations
    cache: HostCache
    store: Store
    content: Content
    weights: Weights
    task: Task
    drop: Callable[[Sequence[Files]], None]

    def measure(self) -> None:
        """Write the weights, load them in each way, rewrite them, compare the copy, and remove both."""
        do, number = self.do, self.task.operations + OF_SERVING
        do.save(self._saving(self._engine(number, "reads")), number, role="serving", at=do.one("serving", "save", 1))
        ways: tuple[WayOfReading, ...] = ("reads", "mmap") if "paths" in self.store.capabilities else ("reads",)
        loads: list[WeightsLoad] = []
        for way in ways:
            engine = self._engine(number, way)
            for is_warm in (False, True):
                loads += self._load(engine, number, way, len(loads) + 1, is_warm=is_warm)
        weights = self.weights
        found = Serving(
            bytes=weights.bytes,
            full_bytes=weights.full_bytes,
            files=len(weights.file_pages),
            replicas=weights.replicas,
            readers=weights.readers,
            limit_seconds=self.task.serving_limit_seconds,
            loads=tuple(loads),
        )
        do.send(PatternMeasured(subject=do.subject, name="serving", found=found))
        self._consolidate(number, number + 1)
        for each in (number, number + 1):
            do.delete(each)

    def _load(
        self, engine: WeightsEngine, number: int, way: WayOfReading, index: int, *, is_warm: bool
    ) -> list[WeightsLoad]:
        """Load the weights; rank 0 returns what came of it."""
        do, names = self.do, self.weights.names
        if not is_warm:
            self.drop([do.files(number, names)])
        loaded = do.load(engine, self.cache, index, number, counted=False, scenario="serving", names=names)
        engine.release()
        if loaded.operation is None:
            return []
        do.step("serving", index, loaded.operation.seconds)
        load = WeightsLoad(
            way=way,
            is_warm=is_warm,
            seconds=loaded.operation.seconds,
            slowest_rank=loaded.operation.slowest_rank or 0,
            resident_bytes=loaded.operation.resident_bytes,
            mapped_bytes=loaded.operation.mapped_bytes,
            integrity=loaded.integrity(self.weights.bytes * self.weights.replicas),
        )
        return [load]

    def _consolidate(self, number: int, copy: int) -> None:
        do, store, names, rank = self.do, self.store, self.weights.names, self.group.rank
        self.drop([do.files(number, names if rank == 0 else ())])
        written = store.open(do.ref(number), Clock(activity=self.activity))
        engine = Consolidator(self.weights, rank, self.content, number, written)
        saved = do.save(self._saving(engine), copy, role="serving", at=do.one("consolidation", "save", 1))
        engine.release()
        self.drop([do.files(copy, names)])
        reader = self._engine(number, "reads")
        loaded = do.load(reader, self.cache, 1, copy, counted=False, scenario="consolidation", names=names)
        reader.release()
        if saved is None:
            return
        do.step("consolidation", 1, saved.seconds)
        found = Consolidation(
            bytes=self.weights.bytes,
            full_bytes=self.weights.full_bytes,
            limit_seconds=self.task.consolidate_limit_seconds,
            seconds=saved.seconds,
            integrity=loaded.integrity(self.weights.bytes * self.weights.replicas),
        )
        do.send(PatternMeasured(subject=do.subject, name="consolidation", found=found))

    def _engine(self, number: int, way: WayOfReading) -> WeightsEngine:
        return WeightsEngine(self.weights, self.group.rank, self.content, number, way)

    def _saving(self, engine: WeightsEngine) -> SyncStrategy:
        return SyncStrategy(engine=engine, store=self.store, group=self.group, activity=self.activity)

"""One measurement on all ranks: saves, drop, loads, and the questions that were asked beside them."""

from __future__ import annotations

import os
import resource
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.events import (
    DurabilityCounted,
    IntegrityCompared,
    MeasurementBegun,
    MeasurementDone,
    PatternMeasured,
)
from pytest_ckpt.facts.measurement import DataEffect, Operation, RankFacts, Retention
from pytest_ckpt.facts.proofs import CacheReading, Fault, Integrity
from pytest_ckpt.ranks.content.generator import Content, content_seed
from pytest_ckpt.ranks.engines.factory import engine_maker
from pytest_ckpt.ranks.engines.protocol import Engine, Loader
from pytest_ckpt.ranks.operations import Loaded, Operations, make_folder
from pytest_ckpt.ranks.process.host_cache import HostCache, cache_facts
from pytest_ckpt.ranks.process.job import BESIDE_DELETION, OF_DATA, EngineOptions
from pytest_ckpt.ranks.scenarios.endurance import LongRun
from pytest_ckpt.ranks.scenarios.interference import SavesBeside
from pytest_ckpt.ranks.scenarios.restore_patterns import LoadPatterns
from pytest_ckpt.sizing.models import RankLayout, layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import Task

_RESIDENT_WITHOUT_DROP = 0.01


@dataclass(slots=True)
class _Found:
    """What has been found so far; on rank 0 the figures are those of all ranks."""

    saves: list[Operation] = field(default_factory=list)
    bytes_checked: int = 0
    fault_count: int = 0
    faults: list[Fault] = field(default_factory=list)
    worst_resident: float | None = None
    drops: list[str] = field(default_factory=list)
    readings: dict[tuple[str, str], CacheReading] = field(default_factory=dict)
    deletes: list[float] = field(default_factory=list)
    retention: Retention | None = None
    data: DataEffect | None = None


class MeasurementLoop:
    """Runs one task; rank 0 tells the controller every fact as soon as it is known."""

    def __init__(self, group: Group, activity: Activity, task: Task, folder: Path, options: EngineOptions) -> None:
        self._group = group
        self._activity = activity
        self._task = task
        self._options = options
        self._folder = folder / task.subject.slug
        self._layout = layout(task.model, mode=task.mode, processes=task.processes, scale=task.scale)
        self._shard = self._layout.rank(group.rank)
        self._do = Operations(group, activity, task.subject, self._shard, self._folder)
        self._found = _Found()
        # The checkpoints that are on the target.
        self._kept: list[int] = []

    def run(self) -> None:
        """Measure, verify, remove what was written (unless it is to be kept)."""
        task, do = self._task, self._do
        do.tell(MeasurementBegun(subject=task.subject))
        with do.stage("prepare", do.all("prepare")):
            make_folder(self._folder)
            self._group.wait()
            engine = self._engine(constant=False)
            cache = HostCache(self._group, self._activity, self._folder)
        self._save_all(engine)
        engine.release()
        if durability := do.durability():
            do.tell(DurabilityCounted(subject=task.subject, durability=durability))
        self._load_all(engine, cache)
        engine.release()
        facts = _joined(self._group.gather(engine.facts()))
        # What the engine holds must be free before another one takes its place.
        del engine
        if task.data_pairs:
            self._found.data = self._data_effect(cache)
        if task.contention:
            LoadPatterns(
                group=self._group,
                do=do,
                cache=cache,
                layout=self._layout,
                options=self._options,
                loader=self._loader,
                drop=lambda files: self._drop(cache, files, again=True),
            ).measure(self._kept[-1])
            SavesBeside(
                self._group,
                self._activity,
                do,
                engine=self._engine(constant=False, aside="contention"),
                rank_bytes=self._shard.bytes,
                folder=self._folder,
                after=task.operations,
                drop=lambda files: self._drop(cache, files, again=True),
            ).measure(self._kept, statistics.median([o.seconds for o in self._found.saves] or [0.0]))
        if task.endurance:
            self._last_long()
        gauges = self._group.gather(cache.gauge)
        ranks = self._group.gather(self._rank_facts())
        if not task.keep:
            with do.stage("remove", do.all("remove")):
                for checkpoint in self._kept:
                    do.unlink(checkpoint)
                do.remove_folders(self._kept, also_own=True)
        found = self._found
        readings = tuple(found.readings.values())
        do.tell(
            MeasurementDone(
                subject=task.subject,
                cache=cache_facts(task.drop_caches, found.drops, readings, gauges, found.worst_resident),
                ranks=tuple(ranks),
                engine_facts=facts,
                retention=found.retention,
                data=found.data,
                stages=do.stages,
            )
        )

    def _engine(self, *, constant: bool, aside: str = "") -> Engine:
        """Return the engine of this rank's own files; ``aside`` gives it other content than the subject's."""
        task = self._task
        seed = content_seed(task.seed, f"{task.subject}/{aside}" if aside else str(task.subject))
        content = Content(seed, compressible=task.compressible, constant=constant)
        return self._made(self._shard, content, self._options)

    def _last_long(self) -> None:
        """Measure what takes hours and space; what is not to be kept makes room for it."""
        task, do = self._task, self._do
        if not task.keep:
            with do.stage("remove", do.all("remove")):
                for checkpoint in self._kept:
                    do.unlink(checkpoint)
                do.remove_folders(self._kept, also_own=False)
            self._kept = []
        engine = self._engine(constant=False, aside="endurance")
        run = LongRun(self._group, self._activity, do, engine=engine, folder=self._folder, after=task.operations)
        run.endure(task.duration_seconds)
        if task.near_full_bytes:
            run.near_full(Content(content_seed(task.seed, f"{task.subject}/ballast")), task.near_full_bytes)
        else:
            reason = "The volume was not to be filled: that is asked for with --ckpt-near-full."
            do.tell(PatternMeasured(subject=task.subject, name="near_full", not_run=reason))
        engine.release()

    def _loader(self, shard: RankLayout, options: EngineOptions) -> Loader:
        """Return what loads a shard that this or another rank wrote."""
        content = Content(content_seed(self._task.seed, str(self._task.subject)), compressible=self._task.compressible)
        return self._made(shard, content, options)

    def _made(self, shard: RankLayout, content: Content, options: EngineOptions) -> Engine:
        engine: Engine = engine_maker(self._task.make)(
            shard=shard, content=content, group=self._group, activity=self._activity, options=options
        )
        return engine

    def _save_all(self, engine: Engine) -> None:
        task, do = self._task, self._do
        for checkpoint in range(1, task.operations + 1):
            operation = do.save(engine, checkpoint)
            self._kept.append(checkpoint)
            if operation:
                self._found.saves.append(operation)
            if task.retain and len(self._kept) > task.retain:
                self._found.deletes.append(do.delete(self._kept.pop(0)))
        if task.retain and len(self._kept) == task.retain:
            self._save_while_deleting(engine)

    def _save_while_deleting(self, engine: Engine) -> None:
        """Save once more, while the oldest checkpoint is deleted: what does deleting cost in the middle of a save?"""
        do, oldest, checkpoint = self._do, self._kept.pop(0), self._task.operations + BESIDE_DELETION
        operation = do.save(engine, checkpoint, counted=False, meanwhile=lambda _over: do.unlink(oldest))
        self._kept.append(checkpoint)
        do.remove_folders([oldest], also_own=False)
        if operation:
            self._found.retention = Retention(
                kept=self._task.retain,
                delete_seconds=tuple(self._found.deletes),
                save_seconds=statistics.median(o.seconds for o in self._found.saves),
                save_while_deleting_seconds=operation.seconds,
            )

    def _load_all(self, engine: Engine, cache: HostCache) -> None:
        order = [self._kept[number % len(self._kept)] for number in range(self._task.operations)]
        for number, checkpoint in enumerate(order, start=1):
            # What was read once may be in the cache; so where checkpoints come again, there is a drop before each load.
            if number == 1 or len(self._kept) < len(order):
                dropped = self._kept if number == 1 else [checkpoint]
                self._drop(cache, [path for each in dropped for path in self._do.paths(each)])
            loaded = self._do.load(engine, cache, number, checkpoint)
            self._take_in(loaded)

    def _take_in(self, loaded: Loaded) -> None:
        found = self._found
        if loaded.operation and loaded.operation.mapped_bytes:
            resident = (loaded.operation.resident_bytes or 0) / loaded.operation.mapped_bytes
            found.worst_resident = max(found.worst_resident or 0.0, resident)
        found.bytes_checked += loaded.bytes_checked
        found.fault_count += loaded.fault_count
        found.faults.extend(loaded.faults)
        integrity = Integrity(
            bytes_expected=self._layout.bytes * self._task.operations,
            bytes_checked=found.bytes_checked,
            fault_count=found.fault_count,
            faults=tuple(found.faults),
        )
        self._do.tell(IntegrityCompared(subject=self._task.subject, integrity=integrity))

    def _data_effect(self, cache: HostCache) -> DataEffect | None:
        """Save and load unique and constant data in turns: does content change the storage's speed?"""
        seconds: dict[tuple[str, bool], list[float]] = {}
        fault_count = 0
        for pair in range(self._task.data_pairs):
            # Who goes first takes turns, so that a drift of the storage favours neither.
            for constant in (bool(pair % 2), not pair % 2):
                saved, loaded = self._save_and_load_beside(cache, constant=constant)
                fault_count += loaded.fault_count
                if saved and loaded.operation:
                    seconds.setdefault(("save", constant), []).append(saved.seconds)
                    seconds.setdefault(("load", constant), []).append(loaded.operation.seconds)
        if not seconds:
            return None
        return DataEffect(
            unique_save_seconds=tuple(seconds["save", False]),
            constant_save_seconds=tuple(seconds["save", True]),
            unique_load_seconds=tuple(seconds["load", False]),
            constant_load_seconds=tuple(seconds["load", True]),
            fault_count=fault_count,
        )

    def _save_and_load_beside(self, cache: HostCache, *, constant: bool) -> tuple[Operation | None, Loaded]:
        """Save, load and delete one checkpoint that is none of the subject's own."""
        do, checkpoint = self._do, self._task.operations + OF_DATA
        engine = self._engine(constant=constant)
        saved = do.save(engine, checkpoint, counted=False)
        engine.release()
        self._drop(cache, do.paths(checkpoint))
        loaded = do.load(engine, cache, checkpoint, checkpoint, counted=False)
        engine.release()
        do.delete(checkpoint)
        return saved, loaded

    def _drop(self, cache: HostCache, files: Sequence[Path], *, again: bool = False) -> None:
        """Drop what this rank is about to read; ``again`` says that it may have been read before."""
        task, found = self._task, self._found
        with self._do.stage("drop caches", self._do.all("drop caches")):
            readings = cache.readings(self._shard.bytes, task.operations)
            way = ""
            if task.drop_caches != "never":
                counts = cache.resident(files)
                seen = counts is not None and counts[0] > _RESIDENT_WITHOUT_DROP * counts[1]
                # Where the same checkpoints come again, the rule's sum of written bytes says nothing.
                asked = seen or any(r.asks for r in readings) or bool(task.retain) or again
                if self._group.any_of(asked or task.drop_caches != "auto"):
                    way = cache.drop(task.drop_caches, files)
            gathered = self._group.gather((way, readings))
        found.drops += [w for w, _ in gathered if w]
        found.readings |= {(r.host, r.rule): r for _, of_rank in gathered for r in of_rank}

    def _rank_facts(self) -> RankFacts:
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return RankFacts(
            rank=self._group.rank, host=self._group.host, pid=os.getpid(), peak_memory_bytes=peak_kib * 1024
        )


def _joined(facts: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Join what the engines of all ranks say of themselves; where they differ, every answer is named."""
    answers: dict[str, list[str]] = {}
    for of_rank in facts:
        for name, answer in of_rank.items():
            answers.setdefault(name, [])
            if answer not in answers[name]:
                answers[name].append(answer)
    return {name: " | ".join(said) for name, said in answers.items()}

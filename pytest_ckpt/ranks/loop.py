"""One measurement on all ranks: saves, drop, loads, each from a barrier to the slowest rank, then compared."""

from __future__ import annotations

import os
import resource
import stat
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ckpt.ranks.activity import write_event
from pytest_ckpt.ranks.cache import HostCache, cache_facts
from pytest_ckpt.ranks.content import Content, content_seed
from pytest_ckpt.ranks.engines import Check, Clock, Engine, engine_class
from pytest_ckpt.ranks.job import EngineOptions, checkpoint_name, partial_name
from pytest_ckpt.ranks.timing import Own, combine
from pytest_ckpt.records import Durability, Fault, Integrity, Operation, RankFacts, to_plain
from pytest_ckpt.sizing.models import layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ckpt.ranks.activity import Activity
    from pytest_ckpt.ranks.group import Group
    from pytest_ckpt.ranks.job import Task
    from pytest_ckpt.records import OperationKind

_MOST_FAULTS_OF_RANK = 20
_RESIDENT_WITHOUT_DROP = 0.01


@dataclass(frozen=True, kw_only=True, slots=True)
class _Loaded:
    """What a load gave on all ranks; rank 0 knows it, the others hold nothing."""

    operation: Operation | None
    bytes_checked: int
    fault_count: int
    faults: list[Fault]


class MeasurementLoop:
    """Runs one task; rank 0 tells the controller every fact as soon as it is known."""

    def __init__(self, group: Group, activity: Activity, task: Task, folder: Path, options: EngineOptions) -> None:
        self._group = group
        self._activity = activity
        self._task = task
        self._options = options
        self._folder = folder / task.subject
        self._layout = layout(task.model, mode=task.mode, processes=task.processes, scale=task.scale)
        self._shard = self._layout.rank(group.rank)
        self._stages: dict[str, float] = {}
        self._durability: list[Own] = []

    def run(self) -> None:
        """Measure, verify, remove what was written (unless it is to be kept)."""
        task = self._task
        self._tell("measuring")
        with self._stage("prepare", "prepare"):
            _make_folder(self._folder)
            self._group.wait()
            engine = engine_class(task.engine)(
                self._shard,
                Content(content_seed(task.seed, task.subject)),
                self._activity,
                self._options,
            )
            cache = HostCache(self._group, self._activity, self._folder)
        for index in range(1, task.operations + 1):
            self._save(engine, index)
        engine.release()
        durability = self._sum_durability()
        self._tell("durability", durability=to_plain(durability))
        ways, readings = self._drop(cache)
        worst: float | None = None
        checked, count, faults = 0, 0, list[Fault]()
        for index in range(1, task.operations + 1):
            loaded = self._load(engine, cache, index)
            if loaded.operation and loaded.operation.mapped_bytes:
                worst = max(worst or 0.0, (loaded.operation.resident_bytes or 0) / loaded.operation.mapped_bytes)
            checked, count = checked + loaded.bytes_checked, count + loaded.fault_count
            faults.extend(loaded.faults)
            self._tell("integrity", integrity=to_plain(self._integrity(checked, count, faults)))
        engine.release()
        gauges = self._group.gather(cache.gauge)
        ranks = self._group.gather(self._rank_facts())
        if not task.keep:
            with self._stage("remove", "remove"):
                self._remove()
        self._tell(
            "measured",
            cache=to_plain(cache_facts(task.drop_caches, ways, readings, gauges, worst)),
            ranks=to_plain(ranks),
            engine_facts=engine.facts(),
            stages=self._stages,
        )

    def _save(self, engine: Engine, index: int) -> None:
        name = f"save {index}"
        with self._stage("content", f"{name}: content"):
            engine.fill(index)
        partial, final = self._folder / partial_name(index), self._folder / checkpoint_name(index)
        clock = Clock(activity=self._activity)
        self._start(name)
        start = time.perf_counter()
        with clock.phase("open", partial.name):
            _make_folder(partial)
        engine.save(partial, clock)
        with clock.phase("directory", partial.name):
            _sync_directory(partial)
        own_seconds = time.perf_counter() - start
        self._group.wait()
        commit_start = time.perf_counter()
        synced = 1
        if self._group.rank == 0:
            with self._activity.in_phase("commit", final.name):
                partial.rename(final)
                _sync_directory(self._folder)
            synced = 2
        end = time.perf_counter()
        own = Own(
            steps=(own_seconds,),
            phases=clock.phases,
            bytes=self._shard.bytes,
            files=clock.files,
            files_synced=clock.files_synced,
            directories=synced,
            directories_synced=synced,
            commit_seconds=end - commit_start,
            committed_seconds=end - start,
        )
        self._durability.append(own)
        self._finish("save", index, own)

    def _load(self, engine: Engine, cache: HostCache, index: int) -> _Loaded:
        name = f"load {index}"
        folder = self._folder / checkpoint_name(index)
        with self._stage("residency", f"{name}: residency"):
            resident = cache.resident([folder / file.name for file in self._shard.files])
            steps = self._group.largest(engine.load_steps())
        clock = Clock(activity=self._activity)
        seconds, loaded_bytes = [], 0
        checks: list[Check] = []
        for step in range(steps):
            self._start(name, tell=step == 0)
            start = time.perf_counter()
            loaded_bytes += engine.load(folder, step, clock)
            seconds.append(time.perf_counter() - start)
            # Nobody compares while somebody still reads: that would leave the storage to fewer ranks.
            self._group.wait()
            with self._stage("verify", f"{name}: verify"):
                checks.append(engine.verify(index))
        own = Own(steps=tuple(seconds), phases=clock.phases, bytes=loaded_bytes, resident=resident)
        operation = self._finish("load", index, own)
        local = [
            Fault(
                kind=f.kind,
                rank=self._group.rank,
                host=self._group.host,
                checkpoint=index,
                file=f.file,
                tensor=f.tensor,
                offset=f.offset,
                bytes=f.bytes,
                detail=f.detail,
            )
            for check in checks
            for f in check.faults
        ]
        counts = (sum(c.bytes_checked for c in checks), sum(c.fault_count for c in checks))
        gathered = self._group.gather((*counts, local[:_MOST_FAULTS_OF_RANK]))
        return _Loaded(
            operation=operation,
            bytes_checked=sum(g[0] for g in gathered),
            fault_count=sum(g[1] for g in gathered),
            faults=[fault for g in gathered for fault in g[2]],
        )

    def _drop(self, cache: HostCache) -> tuple[list[str], list[Any]]:
        with self._stage("drop caches", "drop caches"):
            files = [
                self._folder / checkpoint_name(index) / file.name
                for index in range(1, self._task.operations + 1)
                for file in self._shard.files
            ]
            readings = cache.readings(self._shard.bytes, self._task.operations)
            policy = self._task.drop_caches
            way = ""
            if policy != "never":
                counts = cache.resident(files)
                seen = counts is not None and counts[0] > _RESIDENT_WITHOUT_DROP * counts[1]
                if self._group.any_of(policy != "auto" or seen or any(r.asks for r in readings)):
                    way = cache.drop(policy, files)
            gathered = self._group.gather((way, readings))
        ways = [f"{w}" for w, _ in gathered if w]
        by_host = {(r.host, r.rule): r for _, found in gathered for r in found}
        return ways, list(by_host.values())

    def _start(self, name: str, *, tell: bool = True) -> None:
        self._activity.begin(f"{self._task.subject} {name}")
        if tell:
            self._tell("start", operation=name)
        with self._stage("wait", ""):
            self._group.start_together()

    def _finish(self, kind: OperationKind, index: int, own: Own) -> Operation | None:
        """Gather the operation's times; on rank 0, tell and return it."""
        all_own: Sequence[Own] = self._group.gather(own)
        if self._group.rank != 0:
            return None
        operation = combine(kind, index, all_own)
        stage = "saves" if kind == "save" else "loads"
        self._stages[stage] = self._stages.get(stage, 0.0) + operation.seconds
        self._tell("operation", operation=to_plain(operation))
        return operation

    def _sum_durability(self) -> Durability | None:
        totals = [
            sum(getattr(own, name) for own in self._durability)
            for name in ("files", "files_synced", "directories", "directories_synced")
        ]
        gathered = self._group.gather(totals)
        if self._group.rank != 0:
            return None
        files, files_synced, directories, directories_synced = (sum(column) for column in zip(*gathered, strict=True))
        saves = self._task.operations
        return Durability(
            files=files,
            files_synced=files_synced,
            directories=directories,
            directories_synced=directories_synced,
            saves=saves,
            commits=sum((self._folder / checkpoint_name(index)).is_dir() for index in range(1, saves + 1)),
        )

    def _integrity(self, checked: int, count: int, faults: list[Fault]) -> Integrity:
        return Integrity(
            bytes_expected=self._layout.bytes * self._task.operations,
            bytes_checked=checked,
            fault_count=count,
            faults=tuple(faults),
        )

    def _rank_facts(self) -> RankFacts:
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return RankFacts(
            rank=self._group.rank, host=self._group.host, pid=os.getpid(), peak_memory_bytes=peak_kib * 1024
        )

    def _remove(self) -> None:
        """Remove this rank's own files, then, on rank 0, the folders that are left."""
        for index in range(1, self._task.operations + 1):
            folder = os.open(self._folder / checkpoint_name(index), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                for file in self._shard.files:
                    os.unlink(file.name, dir_fd=folder)
            finally:
                os.close(folder)
        self._group.wait()
        if self._group.rank == 0:
            for index in range(1, self._task.operations + 1):
                (self._folder / checkpoint_name(index)).rmdir()
            self._folder.rmdir()
        self._group.wait()

    @contextmanager
    def _stage(self, stage: str, doing: str) -> Iterator[None]:
        """Add the seconds inside, on this rank's clock, to a stage of the measurement."""
        if doing:
            self._activity.begin(f"{self._task.subject} {doing}")
        start = time.perf_counter()
        yield
        self._stages[stage] = self._stages.get(stage, 0.0) + time.perf_counter() - start

    def _tell(self, event: str, **facts: Any) -> None:
        if self._group.rank == 0:
            write_event(1, {"event": event, "subject": self._task.subject, **facts})


def _make_folder(folder: Path) -> None:
    """Make a folder that another rank may have made already; a symbolic link in its place is not one."""
    try:
        folder.mkdir()
    except FileExistsError:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise


def _sync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

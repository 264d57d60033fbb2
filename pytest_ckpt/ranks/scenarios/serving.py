"""Serving: replicas load a model's weights at once, cold and again warm; one client brings them into other files.

The weights are files of their own: written by all ranks, read by replicas in parts, rewritten by one rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pytest_ckpt.facts.events import PatternMeasured
from pytest_ckpt.facts.measurement import Consolidation, Serving, WeightsLoad
from pytest_ckpt.ranks.content import Content, TensorKey, compare, content_seed
from pytest_ckpt.ranks.engines.protocol import Clock, Comparison, LocalFault, write_in_order
from pytest_ckpt.ranks.strategies.sync import SyncStrategy
from pytest_ckpt.sizing.patterns import PATTERNS
from pytest_ckpt.sizing.reading import weights_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_ckpt.facts.measurement import IoMode
    from pytest_ckpt.ranks.content import Bytes
    from pytest_ckpt.ranks.operations import Operations
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.host_cache import Files, HostCache
    from pytest_ckpt.ranks.process.job import Task
    from pytest_ckpt.ranks.scenarios.context import ScenarioContext
    from pytest_ckpt.sizing.reading import Weights
    from pytest_ckpt.targets.protocol import CommittedCheckpoint, Draft, ReadableFile, Sink, Store

# Between windows the clock stops and what was read is compared.
_WINDOW_BYTES = 32 << 20
# What torch's consolidation reads at a time.
_COPIED_BYTES = 2 << 20


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
        do, number = self.do, self.task.operations + PATTERNS["serving"].first
        do.save(self._saving(self._engine(number, "reads")), number, role="serving", at=do.one("serving", "save", 1))
        ways: tuple[IoMode, ...] = ("reads", "mmap") if "paths" in self.store.capabilities else ("reads",)
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
            loads=tuple(loads),
        )
        do.send(PatternMeasured(subject=do.subject, name="serving", found=found))
        self._consolidate(number, number + 1)
        for each in (number, number + 1):
            do.delete(each)

    def _load(self, engine: WeightsEngine, number: int, way: IoMode, index: int, *, is_warm: bool) -> list[WeightsLoad]:
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
            io_mode=way,
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
            seconds=saved.seconds,
            integrity=loaded.integrity(self.weights.bytes * self.weights.replicas),
        )
        do.send(PatternMeasured(subject=do.subject, name="consolidation", found=found))

    def _engine(self, number: int, way: IoMode) -> WeightsEngine:
        return WeightsEngine(self.weights, self.group.rank, self.content, number, way)

    def _saving(self, engine: WeightsEngine) -> SyncStrategy:
        return SyncStrategy(engine=engine, store=self.store, group=self.group, activity=self.activity)


class WeightsEngine:
    """What one rank writes and reads of the weights; their content is that of checkpoint ``number``.

    A page that cannot be read of a mapped file ends the process, as it ends a serving engine.
    """

    def __init__(self, weights: Weights, rank: int, content: Content, number: int, way: IoMode) -> None:
        self._weights, self._rank, self._content, self._number, self._way = weights, rank, content, number, way
        self._windows = [
            (file, first, min(first + _WINDOW_BYTES, stop))
            for file, start, stop in weights.read_by(rank)
            for first in range(start, stop, _WINDOW_BYTES)
        ]
        self._buffer: Bytes = np.empty(0, dtype=np.uint8)
        self._file: tuple[int, ReadableFile | Bytes] | None = None
        self._loaded: tuple[int, int, int] | None = None

    def facts(self) -> dict[str, str]:
        """Return nothing: it is no engine of the subject's."""
        return {}

    def fill(self, checkpoint: int) -> None:
        """Make a window's memory; content is made as it is written."""
        self._buffer = np.zeros(_WINDOW_BYTES, dtype=np.uint8)

    def save(self, draft: Draft, clock: Clock) -> None:
        """Write this rank's files."""
        for file in self._weights.written_by(self._rank):
            write_in_order(draft, clock, self._weights.names[file], partial(self._write, file))

    def load_steps(self) -> int:
        """A window of a file is a step."""
        self.fill(self._number)
        return len(self._windows)

    def load(self, committed: CommittedCheckpoint, step: int, clock: Clock) -> int:
        """Read a window, all of it or up to the end of the file; a file that is not there is an error."""
        self._loaded = None
        if step >= len(self._windows):
            return 0
        file, start, stop = self._windows[step]
        source = self._opened(committed, file, clock)
        with clock.phase("read", self._weights.names[file]):
            count = self._read(source, start, stop)
        clock.moved(count)
        self._loaded = (file, start, count)
        if step + 1 == len(self._windows):
            self._close()
        return count

    def verify(self, checkpoint: int) -> Comparison:
        """Compare every byte of the window."""
        if self._loaded is None:
            return Comparison(bytes_checked=0, fault_count=0, faults=())
        file, start, count = self._loaded
        name, place = self._weights.names[file], TensorKey(checkpoint=self._number, rank=0, tensor=file)
        wrong, found = compare(self._content, self._buffer[:count], place, start)
        return Comparison(
            bytes_checked=count,
            fault_count=wrong,
            faults=tuple(LocalFault.of(finding, name, "weights") for finding in found),
        )

    def release(self) -> None:
        """Let go of the window and of an open file."""
        self._close()
        self._buffer = np.empty(0, dtype=np.uint8)

    def _write(self, file: int, sink: Sink) -> None:
        place = TensorKey(checkpoint=self._number, rank=0, tensor=file)
        size = self._weights.file_bytes(file)
        for start in range(0, size, _WINDOW_BYTES):
            window = self._buffer[: min(_WINDOW_BYTES, size - start)]
            self._content.fill(window, place, start)
            sink.write(window)

    def _opened(self, committed: CommittedCheckpoint, file: int, clock: Clock) -> ReadableFile | Bytes:
        if self._file is None or self._file[0] != file:
            self._close()
            name = self._weights.names[file]
            path = committed.local_path(name) if self._way == "mmap" else None
            if path is None:
                self._file = (file, committed.file(name))
            else:
                with clock.phase("open", name):
                    self._file = (file, _mapped(path))
        return self._file[1]

    def _read(self, source: ReadableFile | Bytes, start: int, stop: int) -> int:
        window = self._buffer[: stop - start]
        if isinstance(source, np.ndarray):
            found = source[start:stop]
            window[: len(found)] = found
            return len(found)
        source.seek(start)
        return source.readinto(window)

    def _close(self) -> None:
        if self._file is not None and not isinstance(self._file[1], np.ndarray):
            self._file[1].close()
        self._file = None


def _mapped(path: str) -> Bytes:
    """Return a mapping of a file; nothing of one that is empty, which cannot be mapped."""
    try:
        return np.memmap(path, dtype=np.uint8, mode="r")
    except ValueError:
        return np.empty(0, dtype=np.uint8)


class Consolidator(WeightsEngine):
    """Rank 0 reads the files of a committed checkpoint and writes them again; the other ranks only wait."""

    def __init__(
        self, weights: Weights, rank: int, content: Content, number: int, written: CommittedCheckpoint
    ) -> None:
        super().__init__(weights, rank, content, number, "reads")
        self._written = written

    def save(self, draft: Draft, clock: Clock) -> None:
        """Copy one file after the other through a small buffer."""
        for name in self._weights.names if self._rank == 0 else ():
            source = self._written.file(name)
            try:
                write_in_order(draft, clock, name, partial(self._copy, source))
            finally:
                source.close()

    def _copy(self, source: ReadableFile, sink: Sink) -> None:
        piece = self._buffer[:_COPIED_BYTES]
        while count := source.readinto(piece):
            sink.write(piece[:count])


def measure(at: ScenarioContext) -> None:
    """Load and rewrite weights without the optimizer."""
    task = at.task
    assert task.serving
    ServingScenario(
        group=at.group,
        activity=at.activity,
        do=at.do,
        cache=at.cache,
        store=at.store,
        content=Content(content_seed(task.seed, f"{task.subject}/serving"), compressible=task.compressible),
        weights=weights_of(at.layout, task.serving.readers),
        task=task,
        drop=at.drop,
    ).measure()

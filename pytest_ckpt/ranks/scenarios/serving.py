"""Serving: replicas load a model's weights concurrently, in some loads without and in others with cached data.

All ranks write the weights; each rank writes some of the files. Each rank of a replica reads a part of the weights.
Finally one rank reads all files and writes them again, as a new checkpoint.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pytest_ckpt.facts.events import PatternMeasured
from pytest_ckpt.facts.measurement import Consolidation, Serving, WeightsLoad
from pytest_ckpt.ranks.content import Content, TensorKey, compare, content_seed
from pytest_ckpt.ranks.engines.protocol import Clock, Comparison, FirstFaults, LocalFault, write_in_order
from pytest_ckpt.ranks.engines.stream.buffers import Buffers
from pytest_ckpt.ranks.engines.stream.ring import Arrival, Ring, one_pass
from pytest_ckpt.ranks.engines.stream.thread_pool import ThreadPool
from pytest_ckpt.ranks.strategies.sync import SyncStrategy
from pytest_ckpt.sizing.patterns import PATTERNS
from pytest_ckpt.sizing.reading import weights_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

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

# The size of a rank's reads, and the number of pieces that it keeps until they are compared.
_PIECE_BYTES = 4 << 20
_PIECES = 8
_COMPARING_THREADS = 2
_MAXIMUM_OPEN_FILES = 64
# The size of the reads of torch's consolidation.
_COPIED_BYTES = 2 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingScenario:
    """Measures loads of a model's weights by all ranks, and a copy of all weights by one rank.

    ``drop`` drops the cached data of the files that this rank will read next.
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
        """Write the weights, and load them in each I/O mode.

        Then copy them, compare the copy, and remove both checkpoints.
        """
        do, number = self.do, self.task.operations + PATTERNS["serving"].first
        do.save(self._saving(self._engine(number, "reads")), number, role="serving", at=do.one("serving", "save", 1))
        io_modes: tuple[IoMode, ...] = ("reads", "mmap") if "paths" in self.store.capabilities else ("reads",)
        loads: list[WeightsLoad] = []
        for io_mode in io_modes:
            engine = self._engine(number, io_mode)
            for is_warm in (False, True):
                loads += self._load(engine, number, io_mode, len(loads) + 1, is_warm=is_warm)
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

    def _load(
        self, engine: WeightsEngine, number: int, io_mode: IoMode, index: int, *, is_warm: bool
    ) -> list[WeightsLoad]:
        """Load the weights. Return a list with the result on rank 0, and an empty list elsewhere.

        If ``is_warm``, the weights may be in caches.
        """
        do, names = self.do, self.weights.names
        if not is_warm:
            self.drop([do.files(number, names)])
        loaded = do.load(engine, self.cache, index, number, counted=False, scenario="serving", names=names)
        engine.release()
        if loaded.operation is None:
            return []
        do.step("serving", index, loaded.operation.seconds)
        load = WeightsLoad(
            io_mode=io_mode,
            is_warm=is_warm,
            seconds=loaded.operation.seconds,
            slowest_rank=loaded.operation.slowest_rank or 0,
            resident_bytes=loaded.operation.resident_bytes,
            mapped_bytes=loaded.operation.mapped_bytes,
            stalled_seconds=loaded.operation.stalled_seconds or 0.0,
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

    def _engine(self, number: int, io_mode: IoMode) -> WeightsEngine:
        return WeightsEngine(self.weights, self.group.rank, self.content, number, io_mode)

    def _saving(self, engine: WeightsEngine) -> SyncStrategy:
        return SyncStrategy(engine=engine, store=self.store, group=self.group, activity=self.activity)


class WeightsEngine:
    """An engine for the weights that one rank writes and reads. The weights have the content of checkpoint ``number``.

    One thread reads all data in one pass, as in a rank of a serving engine. Other threads compare every byte
    concurrently. If a read waits for a comparison, the wait is timed. If a page of a mapped file cannot be read, the
    kernel kills this process. It would also kill a real serving engine.
    """

    def __init__(self, weights: Weights, rank: int, content: Content, number: int, io_mode: IoMode) -> None:
        self._weights, self._rank, self._content, self._number, self._io_mode = weights, rank, content, number, io_mode
        self._pieces = [
            _Piece(file, first, min(first + _PIECE_BYTES, stop))
            for file, start, stop in weights.read_by(rank)
            for first in range(start, stop, _PIECE_BYTES)
        ]
        self._pool = ThreadPool()
        self._slots: list[Bytes] = []
        self._open: dict[int, ReadableFile | Bytes] = {}
        self._found = FirstFaults()

    def facts(self) -> dict[str, str]:
        """Return an empty dictionary, because no subject uses this engine."""
        return {}

    def fill(self, checkpoint: int) -> None:
        """Allocate the buffers before the timed part. The content is generated when it is written."""
        if not self._slots:
            self._slots = Buffers(_PIECES, _PIECE_BYTES).slots

    def save(self, draft: Draft, clock: Clock) -> None:
        """Write this rank's files."""
        for file in self._weights.written_by(self._rank):
            write_in_order(draft, clock, self._weights.names[file], partial(self._write, file))

    def load_steps(self) -> int:
        """Return 1, because all data are read in one pass."""
        self.fill(self._number)
        return 1

    def load(self, committed: CommittedCheckpoint, step: int, clock: Clock) -> int:
        """Read and compare this rank's parts of all files. Return the number of bytes read.

        A missing file raises an error. The time of comparisons after the last byte has arrived is not counted.
        """
        self._found = FirstFaults()
        files = list(dict.fromkeys(piece.file for piece in self._pieces))
        if step or not files:
            return 0
        for start in range(0, len(files), _MAXIMUM_OPEN_FILES):
            together = files[start : start + _MAXIMUM_OPEN_FILES]
            for file in together:
                self._open[file] = self._opened(committed, file, clock)
            ring = self._read_files(together, clock)
            late = time.perf_counter() - ring.read_at
            self._close()
            is_last = together[-1] == files[-1]
            clock.end_pass(late_seconds=late, stalled_seconds=ring.stalled_seconds, is_last=is_last)
        return self._found.checked

    def verify(self, checkpoint: int) -> Comparison:
        """Return the results of the comparisons during the load."""
        found, self._found = self._found, FirstFaults()
        return found.comparison()

    def release(self) -> None:
        """Free buffers, threads and open files."""
        self._close()
        self._pool.dismiss()
        self._slots = []

    def _write(self, file: int, sink: Sink) -> None:
        place = TensorKey(checkpoint=self._number, rank=0, tensor=file)
        size = self._weights.file_bytes(file)
        for start in range(0, size, _PIECE_BYTES):
            piece = self._slots[0][: min(_PIECE_BYTES, size - start)]
            self._content.fill(piece, place, start)
            sink.write(piece)

    def _opened(self, committed: CommittedCheckpoint, file: int, clock: Clock) -> ReadableFile | Bytes:
        name = self._weights.names[file]
        path = committed.local_path(name) if self._io_mode == "mmap" else None
        if path is None:
            return committed.file(name)
        with clock.phase("open", name):
            return _mapped(path)

    def _read_files(self, files: Collection[int], clock: Clock) -> Ring[_Piece]:
        """Read this rank's parts of the open files in one pass, and compare them concurrently.

        Return the ring of buffers. ``files`` are the numbers of the files. The ring contains the times of the pass.
        """

        def read(piece: _Piece, buffer: Bytes) -> int:
            try:
                count = self._read(piece, buffer)
            except BaseException:
                # The phase of a pass names its first file.
                clock.activity.fails_at(self._weights.names[piece.file])
                raise
            clock.moved(count)
            return count

        pieces = [piece for piece in self._pieces if piece.file in files]
        with clock.phase("read", self._weights.names[pieces[0].file]):
            return one_pass(
                self._pool, self._slots, pieces, readers=1, takers=_COMPARING_THREADS, read=read, take=self._compare
            )

    def _read(self, piece: _Piece, buffer: Bytes) -> int:
        """Read a piece, up to its end or the end of the file. Return the number of bytes."""
        source, wanted = self._open[piece.file], buffer[: piece.stop - piece.start]
        if isinstance(source, np.ndarray):
            part = source[piece.start : piece.stop]
            wanted[: len(part)] = part
            return len(part)
        source.seek(piece.start)
        return source.readinto(wanted)

    def _compare(self, arrival: Arrival[_Piece]) -> None:
        piece, data = arrival.request, arrival.buffer[: arrival.count]
        name, place = self._weights.names[piece.file], TensorKey(checkpoint=self._number, rank=0, tensor=piece.file)
        wrong, found = compare(self._content, data, place, piece.start)
        faults = [LocalFault.of(finding, name, "weights") for finding in found]
        self._found.add(piece, faults, count=wrong, checked=len(data))

    def _close(self) -> None:
        for source in self._open.values():
            if not isinstance(source, np.ndarray):
                source.close()
        self._open = {}


class _Piece(NamedTuple):
    """Bytes ``start`` .. ``stop`` - 1 of file number ``file``."""

    file: int
    start: int
    stop: int


def _mapped(path: str) -> Bytes:
    """Map a file into memory, and return this memory. If the file is empty, return an empty array."""
    try:
        return np.memmap(path, dtype=np.uint8, mode="r")
    except ValueError:
        return np.empty(0, dtype=np.uint8)


class Consolidator(WeightsEngine):
    """An engine whose save copies a committed checkpoint on rank 0, while the other ranks wait."""

    def __init__(
        self, weights: Weights, rank: int, content: Content, number: int, written: CommittedCheckpoint
    ) -> None:
        super().__init__(weights, rank, content, number, "reads")
        self._written = written

    def save(self, draft: Draft, clock: Clock) -> None:
        """Copy the files one after the other, through a small buffer, on rank 0."""
        for name in self._weights.names if self._rank == 0 else ():
            source = self._written.file(name)
            try:
                write_in_order(draft, clock, name, partial(self._copy, source))
            finally:
                source.close()

    def _copy(self, source: ReadableFile, sink: Sink) -> None:
        piece = self._slots[0][:_COPIED_BYTES]
        while count := source.readinto(piece):
            sink.write(piece[:count])


def measure(at: ScenarioContext) -> None:
    """Run this scenario for a subject."""
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

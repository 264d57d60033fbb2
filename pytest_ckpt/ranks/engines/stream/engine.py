"""Engine ``stream``: the files of the torch engine with memory that does not depend on the model, and without torch.

A rank computes the containers of its files from its shard. It makes their bytes in small buffers just before they
are written, several requests in flight, around the page cache where the target takes that; it reads them into the
same buffers, a window at a time, and between windows, when the clocks of all ranks stand, compares every byte.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pytest_ckpt.facts.proofs import FaultKind
from pytest_ckpt.ranks.content import compare
from pytest_ckpt.ranks.engines.protocol import Clock, Comparison, LocalFault
from pytest_ckpt.ranks.engines.stream.buffers import MAXIMUM_ALIGNMENT_BYTES, Buffers
from pytest_ckpt.ranks.engines.stream.container import FileImage
from pytest_ckpt.ranks.engines.stream.container_layout import container_of
from pytest_ckpt.ranks.engines.stream.thread_pool import ThreadPool
from pytest_ckpt.support.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_ckpt.ranks.content import Bytes, Content
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import EngineOptions
    from pytest_ckpt.sizing.models import RankLayout, ShardFile
    from pytest_ckpt.targets.protocol import CommittedCheckpoint, Draft, Sink, Source

_WINDOW_BYTES = 32 << 20
_BLOCK_BYTES = 4096
_MAXIMUM_FAULTS = 20
_STAGED_PIECE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class _Request:
    """``bytes`` of file number ``file`` from ``offset`` on."""

    file: int
    offset: int
    bytes: int


class StreamEngine:
    """Holds the window's buffers and nothing that grows with the model."""

    def __init__(self, shard: RankLayout, content: Content, activity: Activity, options: EngineOptions) -> None:
        self._files = shard.files
        self._images: list[FileImage] = []
        first = 0
        for file in shard.files:
            self._images.append(FileImage(container_of(file.tensors), content, shard.rank, first))
            first += len(file.tensors)
        self._content = content
        self._activity = activity
        self._options = options
        self._pool = ThreadPool()
        self._use(options.request_bytes)
        self._open: dict[int, Source] = {}
        self._sizes: dict[int, int] = {}
        self._loaded: list[tuple[_Request, int]] = []
        self._way = ""
        self._staged: StagedFiles | None = None

    def facts(self) -> dict[str, str]:
        """Return how requests are made and which memory they use."""
        slots = self._buffers.slots
        held = sum(len(slot) for slot in slots)
        # The last huge page may hold more than the buffers.
        huge = min(1.0, self._buffers.huge_bytes() / held)
        return {
            "requests": f"{self._request_bytes >> 10} KiB, {self._depth} in flight for each rank",
            "bytes in flight": f"{format_bytes(self._request_bytes * self._depth)} for each rank",
            "buffers": f"{held >> 20} MiB a rank, {huge:.0%} in huge pages",
            "direct": self._way,
            "save": "a copy of the state"
            if self._options.stages
            else "content is made while it is written, on the clock",
            "load": f"in windows of {_WINDOW_BYTES >> 20} MiB a rank; between windows all clocks stop and every byte "
            "is compared; in each window the slowest rank counts",
        }

    def fill(self, checkpoint: int) -> None:
        """Turn the files to a checkpoint: only their checksums are computed, the bytes when they are written.

        Where a copy of the state is saved, there is a state: then the bytes are made here.
        """
        for image in self._images:
            image.become(checkpoint)
        if self._options.stages:
            self._staged = self._staged or StagedFiles(self._images)
            self._staged.fill()

    def expect_parts(self, part_bytes: Callable[[int], int]) -> None:
        """Make the buffers that the parts of the largest file need, before a clock runs: ``part_bytes`` of its size."""
        largest = max((part_bytes(image.bytes) for image in self._images), default=0)
        if largest > self._request_bytes:
            self._use(largest)

    def state(self) -> list[Bytes]:
        """Return the memory of the files as they are to be saved."""
        return self._staged.state if self._staged else []

    def stage(self) -> int:
        """Copy the files' bytes into the staging buffer."""
        return self._staged.stage() if self._staged else 0

    def save(self, draft: Draft, clock: Clock) -> None:
        """Write the files one after the other, each made durable before the next."""
        copies: Sequence[Bytes | None] = self._staged.take() if self._staged else [None] * len(self._files)
        for file, image, copy in zip(self._files, self._images, copies, strict=True):
            sink = draft.create(file.name, image.bytes)
            try:
                with clock.phase("write", file.name):
                    # One thread more than requests in flight: it makes the next bytes meanwhile.
                    self._in_flight(self._cut_sink(image, sink), _Writer(self, image, sink, copy), self._depth + 1)
            except BaseException:
                sink.abort()
                raise
            sink.finish()
            self._way = sink.way

    def load_steps(self) -> int:
        """One step a window."""
        return len(self._windows)

    def load(self, committed: CommittedCheckpoint, step: int, clock: Clock) -> int:
        """Read the requests of one window; a rank with fewer windows has nothing to do in the last ones."""
        window = self._windows[step] if step < len(self._windows) else ()
        for number in sorted({r.file for r in window} - set(self._open)):
            self._open[number] = committed.source(self._files[number].name)
        self._loaded = []
        if not window:
            return 0
        with clock.phase("read", self._files[window[0].file].name):
            self._in_flight(window, partial(self._read, clock), self._depth)
        # Only now: some clients cut what is read at an old length until they are asked for the size.
        self._sizes |= {number: source.size for number, source in self._open.items()}
        loaded = sum(self._tensor_bytes(request, count) for request, count in self._loaded)
        for number in self._ended(step):
            self._close(number)
        return loaded

    def verify(self, checkpoint: int) -> Comparison:
        """Compare what the last window brought."""
        checked, count = 0, 0
        faults: list[LocalFault] = []
        for image in self._images:
            image.become(checkpoint)
        for slot, (request, got) in enumerate(sorted(self._loaded, key=lambda pair: (pair[0].file, pair[0].offset))):
            file, image, size = self._files[request.file], self._images[request.file], self._sizes[request.file]
            # The requests of a window stand in the buffers in their own order.
            data = self._buffers.slots[slot][:got]
            wanted = min(request.bytes, image.bytes - request.offset)
            # A file is too long once: its size says so, or a read that went beyond its end if the size does not.
            end = request.offset + got
            if (request.offset == 0 and size > image.bytes) or (end > image.bytes >= size):
                count += 1
                size_seen = max(size, end)
                detail = f"the file has {size_seen} bytes, {image.bytes} were written"
                faults.append(_fault("foreign", file, "", image.bytes, size_seen - image.bytes, detail))
            # A file is short once, however many requests lie behind its end.
            if got < wanted and request.offset <= size:
                count += 1
                detail = f"the file ends at byte {end} of {image.bytes}"
                faults.append(_fault("short", file, "", end, image.bytes - end, detail))
            at = request.offset
            for part, number, place, offset, piece in image.parts(data[:wanted], request.offset):
                at += len(part)
                if place is None:
                    if piece is not None and not np.array_equal(part, piece):
                        count += 1
                        detail = "the container around the tensors is not what was written"
                        faults.append(_fault("unreadable", file, "", at - len(part), len(part), detail))
                    continue
                pages, findings = compare(self._content, part, place, offset)
                checked += len(part)
                count += pages
                name = file.tensors[number].name
                faults.extend(LocalFault.of(found, file.name, name) for found in findings)
        return Comparison(bytes_checked=checked, fault_count=count, faults=tuple(faults[:_MAXIMUM_FAULTS]))

    def release(self) -> None:
        """Close what is open and let the threads end; the buffers stay, they are touched."""
        self._pool.dismiss()
        for number in list(self._open):
            self._close(number)
        self._loaded, self._staged = [], None

    def _use(self, request_bytes: int) -> None:
        """Make buffers for requests of this size, and cut the loads into windows of them."""
        self._request_bytes = request_bytes
        # Those of another size go before these come: both would be twice the memory.
        self._loaded, self._buffers = [], Buffers(0, request_bytes)
        # A rank that has little takes no more memory than that: many of them share a host.
        requests = sum(-(-image.bytes // request_bytes) for image in self._images)
        largest = max((image.bytes for image in self._images), default=0)
        size = min(request_bytes, -(-max(largest, 1) // MAXIMUM_ALIGNMENT_BYTES) * MAXIMUM_ALIGNMENT_BYTES)
        self._buffers = Buffers(max(min(_WINDOW_BYTES // request_bytes, requests), 1), size)
        # Every request in flight has a buffer of its own.
        self._depth = min(self._options.depth, len(self._buffers.slots))
        self._flights = threading.Semaphore(self._depth)
        self._windows = self._cut_windows()

    def _close(self, number: int) -> None:
        source = self._open.pop(number)
        source.close()
        self._way = source.way

    def _cut_sink(self, image: FileImage, sink: Sink) -> list[_Request]:
        """Cut a file into requests that a sink takes: whole parts, where it has such, of whole blocks."""
        step = sink.part_bytes or self._request_bytes
        if step > self._request_bytes:
            self._use(step)
        stop = -(-image.bytes // sink.alignment) * sink.alignment
        return [_Request(0, offset, min(step, stop - offset)) for offset in range(0, stop, step)]

    def _cut_file(self, number: int, image: FileImage) -> list[_Request]:
        step = self._request_bytes
        start, stop = (block * _BLOCK_BYTES for block in self._options.span(_blocks(image.bytes) // _BLOCK_BYTES))
        return [_Request(number, offset, min(step, stop - offset)) for offset in range(start, stop, step)]

    def _cut_windows(self) -> list[tuple[_Request, ...]]:
        requests = [r for number, image in enumerate(self._images) for r in self._cut_file(number, image)]
        size = len(self._buffers.slots)
        return [tuple(requests[start : start + size]) for start in range(0, len(requests), size)]

    def _ended(self, step: int) -> list[int]:
        """Return the open files of which no later window has a request."""
        later = {r.file for window in self._windows[step + 1 : step + 2] for r in window}
        return [number for number in self._open if number not in later]

    def _in_flight(self, requests: Sequence[_Request], act: Callable[[_Request, int, int], None], maximum: int) -> None:
        """Let at most ``most`` threads, each of which can have a buffer, work through the requests.

        ``act`` gets a request, its number, and the thread's. The first error stops all and is raised here.
        """
        waiting: Iterator[tuple[int, _Request]] = iter(enumerate(requests))
        lock = threading.Lock()

        def work(thread: int) -> None:
            nonlocal waiting
            while True:
                with lock:
                    number, request = next(waiting, (0, None))
                if request is None:
                    return
                try:
                    act(request, number, thread)
                except BaseException:
                    # Nobody begins another one.
                    waiting = iter(())
                    raise

        self._pool.work(work, min(maximum, len(self._buffers.slots), len(requests)))

    def write(self, image: FileImage, sink: Sink, copy: Bytes | None, request: _Request, slot: int) -> None:
        """Make the bytes of one request in a buffer, or take them from a copy of the state, and write them."""
        if copy is None:
            data = self._buffers.slots[slot][: request.bytes]
            image.make(data, request.offset)
        else:
            data = copy[request.offset : request.offset + request.bytes]
        with self._flights:
            sink.write_at(request.offset, data)

    def _read(self, clock: Clock, request: _Request, number: int, _thread: int) -> None:
        data = self._buffers.slots[number][: request.bytes]
        try:
            count = self._open[request.file].read_into(request.offset, data)
        except BaseException:
            # The window's phase names its first file.
            clock.activity.fails_at(self._files[request.file].name)
            raise
        self._loaded.append((request, count))

    def _tensor_bytes(self, request: _Request, count: int) -> int:
        image = self._images[request.file]
        return image.tensor_bytes(request.offset, request.offset + count)


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the requests of one file; each thread has a buffer of its own, which so stays in the cache."""

    engine: StreamEngine
    image: FileImage
    sink: Sink
    copy: Bytes | None

    def __call__(self, request: _Request, _number: int, thread: int) -> None:
        self.engine.write(self.image, self.sink, self.copy, request, thread)


def _blocks(count: int) -> int:
    return -(-count // _BLOCK_BYTES) * _BLOCK_BYTES


def _fault(kind: FaultKind, file: ShardFile, tensor: str, offset: int, count: int, detail: str) -> LocalFault:
    return LocalFault(kind=kind, file=file.name, tensor=tensor, offset=offset, bytes=count, detail=detail)


def make(
    *, shard: RankLayout, content: Content, group: Group, activity: Activity, options: EngineOptions
) -> StreamEngine:
    """Return the engine of a rank's files. The ranks need not speak to each other for it."""
    del group
    return StreamEngine(shard, content, activity, options)


class StagedFiles:
    """Both buffers are touched when they are made, before any clock."""

    def __init__(self, images: Sequence[FileImage]) -> None:
        self._images = images
        self._state = self._made()
        self._copies = self._made()
        self._is_staged = False

    @property
    def state(self) -> list[Bytes]:
        """The bytes of each file, which a step of training changes."""
        return [data[: image.bytes] for image, data in zip(self._images, self._state, strict=True)]

    def fill(self) -> None:
        """Make the bytes of the checkpoint that the images are turned to."""
        for image, data in zip(self._images, self.state, strict=True):
            for start in range(0, image.bytes, _STAGED_PIECE_BYTES):
                image.make(data[start : start + _STAGED_PIECE_BYTES], start)

    def stage(self) -> int:
        """Copy the state; return the bytes copied."""
        for data, copy in zip(self.state, self._copies, strict=True):
            copy[: len(data)] = data
        self._is_staged = True
        return sum(image.bytes for image in self._images)

    def take(self) -> Sequence[Bytes | None]:
        """Return what the next save writes, one a file: the copies, once; None where nothing was staged for it."""
        is_staged, self._is_staged = self._is_staged, False
        return self._copies if is_staged else [None] * len(self._copies)

    def _made(self) -> list[Bytes]:
        return [Buffers(1, image.bytes + MAXIMUM_ALIGNMENT_BYTES).slots[0] for image in self._images]

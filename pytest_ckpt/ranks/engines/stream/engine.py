"""Engine ``stream`` writes the same files as engine ``torch``, without torch.

The memory use of the engine does not depend on the size of the model. A rank computes the containers of its files
(torch.save's file format) from the shapes of its tensors. It generates the bytes of the files in small buffers just
before it writes the bytes. Several requests are in flight, with direct I/O if the target supports it.

A load reads the files in groups of at most 64, each group in one pass, into the same buffers. During the reads, other
threads compare every byte and free the buffers. If a read waits for a free buffer, this wait is timed separately,
because the storage does not cause it.

If the strategy saves a copy of the state, the state and its copy are in memory too.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pytest_ckpt.facts.proofs import FaultKind
from pytest_ckpt.ranks.content import compare
from pytest_ckpt.ranks.engines.protocol import Clock, Comparison, FirstFaults, LocalFault
from pytest_ckpt.ranks.engines.stream.buffers import MAXIMUM_ALIGNMENT_BYTES, Buffers
from pytest_ckpt.ranks.engines.stream.container import FileImage
from pytest_ckpt.ranks.engines.stream.container_layout import container_of
from pytest_ckpt.ranks.engines.stream.ring import Arrival, Ring, one_pass
from pytest_ckpt.ranks.engines.stream.thread_pool import ThreadPool
from pytest_ckpt.ranks.engines.whole_state import copy_state
from pytest_ckpt.sizing.stream_buffers import buffer_count
from pytest_ckpt.support.units import format_binary_bytes, format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_ckpt.ranks.content import Bytes, Content
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import EngineOptions
    from pytest_ckpt.sizing.models import RankLayout, ShardFile
    from pytest_ckpt.targets.protocol import CommittedCheckpoint, Draft, Sink, Source

# The number of threads that compare filled buffers during the reads, each at 9 GB/s.
_COMPARING_THREADS = 2
_MAXIMUM_OPEN_FILES = 64
_BLOCK_BYTES = 4096
_STAGED_PIECE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class _Request:
    """A request for ``bytes`` bytes of file number ``file``, from ``offset`` on."""

    file: int
    offset: int
    bytes: int


class StreamEngine:
    """The engine ``stream``. It needs memory for its buffers and, during a load, a few machine words per request.

    If the strategy saves a copy of the state, the state and its copy are in memory too.
    """

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
        self._found = _Findings()
        self._io_mode = ""
        self._staged: StagedFiles | None = None
        self._prepared: list[Arrival[_Request]] = []

    def facts(self) -> dict[str, str]:
        """Return descriptions of how this engine makes requests, and of the memory that requests use."""
        slots = self._buffers.slots
        buffer_bytes = sum(len(slot) for slot in slots)
        # The last huge page may extend past the buffers.
        huge = min(1.0, self._buffers.huge_bytes() / buffer_bytes)
        return {
            "requests": f"{format_binary_bytes(self._request_bytes)}, {self._depth} in flight for each rank",
            "bytes in flight": f"{format_bytes(self._request_bytes * self._depth)} for each rank",
            "buffers": f"{format_bytes(buffer_bytes)} a rank, {huge:.0%} in huge pages",
            "direct": self._io_mode,
            "save": "a copy of the state"
            if self._options.stages
            else "content is made while it is written, on the clock",
            "load": f"in one pass; {_COMPARING_THREADS} threads compare every byte during the reads, and seconds "
            "in which reads wait for them are counted",
        }

    def fill(self, checkpoint: int) -> None:
        """Switch the files to the content of checkpoint number ``checkpoint``.

        Usually this method computes only checksums, and all other bytes are generated when they are written. If the
        strategy saves a copy of the state, this method generates all bytes of the state in memory.
        """
        for image in self._images:
            image.become(checkpoint)
        if self._options.stages:
            self._staged = self._staged or StagedFiles(self._images)
            self._staged.fill()

    def expect_parts(self, part_bytes: Callable[[int], int]) -> None:
        """Allocate larger buffers if the target writes files in parts that are larger than a request.

        ``part_bytes(size)`` returns the size of a part for a file of ``size`` bytes. Call this method outside the timed
        part.
        """
        largest = max((part_bytes(image.bytes) for image in self._images), default=0)
        if largest > self._request_bytes:
            self._use(largest)

    def state(self) -> list[Bytes]:
        """Return the memory of the files' content. If the state is not in memory, return an empty list."""
        return self._staged.state if self._staged else []

    def stage(self) -> int:
        """Copy the content of the files into the staging buffer. Return the number of bytes copied.

        If the state is not in memory, copy nothing and return 0.
        """
        return self._staged.stage(self._options.copy_threads) if self._staged else 0

    def save(self, draft: Draft, clock: Clock) -> None:
        """Write the files one after the other; each file is durable before the next one is begun."""
        copies: Sequence[Bytes | None] = self._staged.take_copies() if self._staged else [None] * len(self._files)
        for file, image, copy in zip(self._files, self._images, copies, strict=True):
            sink = draft.create(file.name, image.bytes)
            try:
                with clock.phase("write", file.name):
                    requests = self._cut_sink(image, sink)
                    write = functools.partial(self._write, image, sink, copy, deque(self._buffers.slots))
                    # One thread more than requests in flight: it generates the next bytes while the others write.
                    self._in_flight(requests, write, self._depth + 1)
            except BaseException:
                sink.abort()
                raise
            sink.finish()
            self._io_mode = sink.io_mode

    def load_steps(self) -> int:
        """Return 1, because the data are compared while they are read."""
        return 1

    def expect(self, checkpoint: int) -> None:
        """Switch the files to the checkpoint of the next load, because bytes are compared during the load."""
        for image in self._images:
            image.become(checkpoint)

    def load(self, committed: CommittedCheckpoint, step: int, clock: Clock) -> int:
        """Read and compare all files in step 0. Return the number of tensor bytes read.

        The time of comparisons after the last byte has arrived is not counted. In later steps, this rank does nothing
        and returns 0. Later steps exist if other ranks need several steps.
        """
        self._found = _Findings()
        if step:
            return 0
        files = [number for number in range(len(self._files)) if self._cut_file(number)]
        for start in range(0, len(files), _MAXIMUM_OPEN_FILES):
            together = files[start : start + _MAXIMUM_OPEN_FILES]
            for number in together:
                self._open[number] = committed.source(self._files[number].name)
            ring = self._read_files(together, clock)
            # The size is queried only now: some clients truncate reads at an old length until it is queried.
            self._found.sizes |= {number: self._open[number].size for number in together}
            for number in together:
                self._close(number)
            clock.end_pass(
                late_seconds=self._found.compared_at - ring.read_at,
                stalled_seconds=ring.stalled_seconds,
                is_last=together[-1] == files[-1],
            )
        return self._found.loaded

    def verify(self, checkpoint: int) -> Comparison:
        """Return the results of the comparisons during the last load, including faults in the sizes of files."""
        del checkpoint
        findings = self._found
        for request, got in findings.read:
            file, image, size = self._files[request.file], self._images[request.file], findings.sizes[request.file]
            wanted = min(request.bytes, image.bytes - request.offset)
            # A file that is too long is reported once: by its size, or if the size seems correct, by a read beyond its
            # end.
            end = request.offset + got
            if (request.offset == 0 and size > image.bytes) or (end > image.bytes >= size):
                size_seen = max(size, end)
                detail = f"the file has {size_seen} bytes, {image.bytes} were written"
                fault = _fault("foreign", file, "", image.bytes, size_seen - image.bytes, detail)
                findings.add_of(request, [fault], count=1, of_file=True)
            # A file that is too short is reported once, however many requests follow its end.
            if got < wanted and request.offset <= size:
                detail = f"the file ends at byte {end} of {image.bytes}"
                fault = _fault("short", file, "", end, image.bytes - end, detail)
                findings.add_of(request, [fault], count=1, of_file=True)
        # The results are returned only once.
        self._found = _Findings()
        return findings.comparison()

    def prepare_comparison(self) -> None:
        """Fill the buffers with the first bytes of the largest file, for `compare_prepared`."""
        self._prepared = []
        if not self._images:
            return
        number = max(range(len(self._images)), key=lambda of: self._images[of].bytes)
        image = self._images[number]
        for request, slot in zip(self._cut_file(number), self._buffers.slots, strict=False):
            count = min(request.bytes, image.bytes - request.offset)
            image.make(slot[:count], request.offset)
            self._prepared.append(Arrival(request, slot, count))

    def compare_prepared(self, seconds: float) -> int:
        """Compare the prepared data repeatedly, with as many threads as a load. Return the number of bytes compared.

        The comparison ends after ``seconds``. It ends earlier if the number of compared bytes reaches the total size of
        the files. Raises ValueError if the data in memory are wrong.
        """
        self._found = _Findings()
        ends, turns = time.perf_counter() + seconds, itertools.cycle(self._prepared)
        left, lock = sum(image.bytes for image in self._images), threading.Lock()
        compared = 0

        def work(_thread: int) -> None:
            nonlocal left, compared
            while True:
                with lock:
                    if left <= 0 or time.perf_counter() > ends:
                        return
                    arrival = next(turns)
                    left -= arrival.count
                self._compare(arrival)
                with lock:
                    compared += arrival.count
                    self._activity.bytes_done += arrival.count

        self._pool.work(work, _COMPARING_THREADS)
        faults, self._found = self._found.count, _Findings()
        if faults:
            raise ValueError("the client's memory changed the content of a checkpoint")
        return compared

    def release(self) -> None:
        """Close open files and end the threads. The buffers are kept for the next use."""
        self._pool.dismiss()
        for number in list(self._open):
            self._close(number)
        self._found, self._staged = _Findings(), None

    def _use(self, request_bytes: int) -> None:
        """Allocate buffers for requests of ``request_bytes`` bytes."""
        self._request_bytes = request_bytes
        # The old buffers are freed first, because both together would need twice the memory.
        self._buffers = Buffers(0, request_bytes)
        # A rank with few bytes uses little memory, because many such ranks share a host.
        requests = sum(-(-image.bytes // request_bytes) for image in self._images)
        largest = max((image.bytes for image in self._images), default=0)
        size = min(request_bytes, -(-max(largest, 1) // MAXIMUM_ALIGNMENT_BYTES) * MAXIMUM_ALIGNMENT_BYTES)
        # A rank cannot have more requests in flight than it makes.
        self._depth = max(min(self._options.depth, requests), 1)
        count = buffer_count(request_bytes, self._depth)
        self._buffers = Buffers(max(min(count, requests), 1), size)
        self._flights = threading.Semaphore(self._depth)

    def _close(self, number: int) -> None:
        source = self._open.pop(number)
        source.close()
        self._io_mode = source.io_mode

    def _cut_sink(self, image: FileImage, sink: Sink) -> list[_Request]:
        """Split a file into requests that ``sink`` accepts. ``sink`` is the file that is open for writing.

        If the sink has parts, each request is one part. If not, each request consists of complete blocks.
        """
        step = sink.part_bytes or self._request_bytes
        if step > self._request_bytes:
            self._use(step)
        stop = -(-image.bytes // sink.alignment) * sink.alignment
        return [_Request(0, offset, min(step, stop - offset)) for offset in range(0, stop, step)]

    def _cut_file(self, number: int) -> list[_Request]:
        step, image = self._request_bytes, self._images[number]
        start, stop = (block * _BLOCK_BYTES for block in self._options.span(_blocks(image.bytes) // _BLOCK_BYTES))
        return [_Request(number, offset, min(step, stop - offset)) for offset in range(start, stop, step)]

    def _read_files(self, numbers: Sequence[int], clock: Clock) -> Ring[_Request]:
        """Read the open files in one pass, while other threads compare the data. Return the ring of buffers.

        ``numbers`` are the numbers of the files. The ring contains the times of the pass.
        """
        requests = [request for number in numbers for request in self._cut_file(number)]
        readers, before = min(self._depth, len(requests)), len(self._found.read)

        def read(request: _Request, buffer: Bytes) -> int:
            count = self._read(clock, request, buffer)
            self._found.read.append((request, count))
            return count

        with clock.phase("read", self._files[numbers[0]].name):
            ring = one_pass(
                self._pool,
                self._buffers.slots,
                requests,
                readers=readers,
                takers=_COMPARING_THREADS,
                read=read,
                take=self._compare,
            )
        for request, got in self._found.read[before:]:
            self._found.loaded += self._images[request.file].tensor_bytes(request.offset, request.offset + got)
        self._found.compared_at = time.perf_counter()
        return ring

    def _compare(self, arrival: Arrival[_Request]) -> None:
        """Compare the data of a request, up to the expected end of the file.

        Add the faults to the results of the load.
        """
        request = arrival.request
        file, image = self._files[request.file], self._images[request.file]
        data = arrival.buffer[: min(arrival.count, image.bytes - request.offset)]
        checked = count = 0
        faults: list[LocalFault] = []
        at = request.offset
        for part, number, place, offset, piece in image.parts(data, request.offset):
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
            faults.extend(LocalFault.of(finding, file.name, name) for finding in findings)
        self._found.add_of(request, faults, count=count, checked=checked)

    def _in_flight(self, requests: Sequence[_Request], act: Callable[[_Request], None], maximum: int) -> None:
        """Call ``act`` for each request, with at most ``maximum`` threads and at most one thread per buffer.

        After the first error, no further request begins, and the error is raised.
        """
        waiting: Iterator[_Request] = iter(requests)
        lock = threading.Lock()

        def work(_thread: int) -> None:
            nonlocal waiting
            while True:
                with lock:
                    request = next(waiting, None)
                if request is None:
                    return
                try:
                    act(request)
                except BaseException:
                    # No thread begins another request.
                    waiting = iter(())
                    raise

        self._pool.work(work, min(maximum, len(self._buffers.slots), len(requests)))

    def _write(
        self, image: FileImage, sink: Sink, copy: Bytes | None, buffers: deque[Bytes], request: _Request
    ) -> None:
        """Write the bytes of one request to ``sink``.

        If ``copy`` is given, the bytes are taken from this copy of the file. If not, the bytes are generated in one of
        the ``buffers``.
        """
        if copy is not None:
            with self._flights:
                sink.write_at(request.offset, copy[request.offset : request.offset + request.bytes])
            return
        # The buffer whose write ended first. If a host copies the bytes of a virtual machine, a buffer that was just
        # written is slow to fill: its bytes are in the cache of the core that copied them.
        buffer = buffers.popleft()
        try:
            data = buffer[: request.bytes]
            image.make(data, request.offset)
            with self._flights:
                sink.write_at(request.offset, data)
        finally:
            buffers.append(buffer)

    def _read(self, clock: Clock, request: _Request, buffer: Bytes) -> int:
        try:
            return self._open[request.file].read_into(request.offset, buffer[: request.bytes])
        except BaseException:
            # The phase of a pass names its first file.
            clock.activity.fails_at(self._files[request.file].name)
            raise


@dataclass(slots=True)
class _Findings(FirstFaults):
    """The results of a load: the faults, and the fields below. Several threads may add results concurrently.

    ``read`` contains (request, number of bytes read) for each read. ``sizes`` is {file number: size of the file in
    bytes}. ``loaded`` is the number of tensor bytes read. ``compared_at`` is the time when all comparisons were done,
    on the clock of `time.perf_counter`.
    """

    read: list[tuple[_Request, int]] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    loaded: int = 0
    compared_at: float = 0.0

    def add_of(
        self,
        request: _Request,
        faults: Iterable[LocalFault],
        *,
        count: int,
        checked: int = 0,
        of_file: bool = False,
    ) -> None:
        """Add the results of one request: ``count`` faults, described in ``faults``, and ``checked`` compared bytes.

        If ``of_file``, the faults concern the size of the file. Faults in the size are listed before faults in the
        bytes of the same request.
        """
        self.add((request.file, request.offset, not of_file), faults, count=count, checked=checked)


def _blocks(count: int) -> int:
    return -(-count // _BLOCK_BYTES) * _BLOCK_BYTES


def _fault(kind: FaultKind, file: ShardFile, tensor: str, offset: int, count: int, detail: str) -> LocalFault:
    return LocalFault(kind=kind, file=file.name, tensor=tensor, offset=offset, bytes=count, detail=detail)


def make(
    *, shard: RankLayout, content: Content, group: Group, activity: Activity, options: EngineOptions
) -> StreamEngine:
    """Return the engine for a rank's files. It does not communicate with other ranks."""
    del group
    return StreamEngine(shard, content, activity, options)


class StagedFiles:
    """The content of a rank's files in memory, and a second memory for a copy of this content.

    Before any timed part, both memories are written once, so the kernel has already allocated their pages.
    """

    def __init__(self, images: Sequence[FileImage]) -> None:
        self._images = images
        self._state = self._allocate()
        self._copies = self._allocate()
        self._is_staged = False

    @property
    def state(self) -> list[Bytes]:
        """The memory of each file's content. Training steps change the content of this memory."""
        return [data[: image.bytes] for image, data in zip(self._images, self._state, strict=True)]

    def fill(self) -> None:
        """Generate the content of each file in memory, for the current checkpoint of the file's `FileImage`."""
        for image, data in zip(self._images, self.state, strict=True):
            for start in range(0, image.bytes, _STAGED_PIECE_BYTES):
                image.make(data[start : start + _STAGED_PIECE_BYTES], start)

    def stage(self, threads: int) -> int:
        """Copy the state with ``threads`` threads. Return the number of bytes copied."""
        self._is_staged = True
        return copy_state(self._copies, self.state, threads)

    def take_copies(self) -> Sequence[Bytes | None]:
        """Return the copy of each file, for the next save.

        If `stage` was not called after the previous call of `take_copies`, return None for each file.
        """
        is_staged, self._is_staged = self._is_staged, False
        return self._copies if is_staged else [None] * len(self._copies)

    def _allocate(self) -> list[Bytes]:
        return [Buffers(1, image.bytes + MAXIMUM_ALIGNMENT_BYTES).slots[0] for image in self._images]

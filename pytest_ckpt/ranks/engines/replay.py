"""Engine ``replay``: repeats the file operations of a recorded job with generated content.

Every load compares the content.

Each rank repeats the calls of one recorded rank: its writes with their offsets and lengths, its fsyncs and its renames.
For each thread of the recorded rank, one thread repeats the calls. The ranks wait for each other at the points where
the ranks of the recorded job waited.

pytest-ckpt adds one call for each file, which makes the file durable. The call is within the timed part and before the
commit. It is added even if the job has fsynced the file.

If pauses are replayed, a thread sleeps before a call. The sleep is as long as the other work of the recorded thread
before this call.

For a background save, a thread writes a copy of the state, even if the recorded job made no copy.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, cast

import numpy as np

from pytest_ckpt.facts.pattern import Step, read_pattern
from pytest_ckpt.ranks.content import TensorKey, compare
from pytest_ckpt.ranks.engines.protocol import MAXIMUM_FAULTS_OF_RANK, Comparison, LocalFault
from pytest_ckpt.ranks.engines.stream.thread_pool import ThreadPool
from pytest_ckpt.ranks.engines.whole_state import copy_state
from pytest_ckpt.ranks.process.group import longest_seconds
from pytest_ckpt.sizing.files import CONTENT, replayed_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_ckpt.facts.proofs import FaultKind
    from pytest_ckpt.ranks.content import Bytes, Content
    from pytest_ckpt.ranks.engines.protocol import Clock
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import EngineOptions
    from pytest_ckpt.sizing.models import RankLayout
    from pytest_ckpt.targets.protocol import CommittedCheckpoint, Draft, ReplayDraft, ReplayedCalls

_READ_BYTES = 4 << 20
_MICROSECONDS = 1_000_000
# Shorter pauses are left out, because a sleep is not much more precise than this.
_SHORTEST_PAUSE_US = 1_000


class ReplayEngine:
    """An engine that keeps all bytes of a rank's files in memory, like a training process."""

    def __init__(
        self, shard: RankLayout, content: Content, group: Group, activity: Activity, options: EngineOptions
    ) -> None:
        self._shard, self._content, self._group, self._activity = shard, content, group, activity
        self._pattern = read_pattern(options.pattern)
        self._files = {file.number: file for file in replayed_files(options.pattern, shard.rank, shard.bytes)}
        recorded = self._pattern.of_rank(shard.rank)
        self._steps = [step for step in self._pattern.steps if step.rank == recorded]
        self._pool = ThreadPool()
        # A background thread waits in a separate group, so its messages do not mix with the rank's.
        self._savers = group.duplicate(activity) if options.stages else group
        self._has_pauses = options.pauses
        self._stages, self._is_staged, self._copy_threads = options.stages, False, options.copy_threads
        self._data: dict[int, Bytes] = {}
        self._copy: dict[int, Bytes] = {}
        self._loaded: dict[int, Bytes | LocalFault] = {}
        self._added_seconds = 0.0

    def facts(self) -> dict[str, str]:
        """Return facts on the recorded job, on the replay of its calls, and on the duration of the added calls."""
        added = longest_seconds(self._group, self._added_seconds)
        ranks = self._pattern.ranks
        several = ranks > 1 and self._group.size > ranks
        others = f", ranks from {ranks} on as ranks 1 to {ranks - 1}" if several else ""
        others = ", all as its one rank" if ranks == 1 and self._group.size > 1 else others
        read = "the size that the job read by" if self._pattern.read_bytes else "no load was recorded"
        unsynced, kept = len(self._pattern.unsynced()), sum(file.kept for file in self._pattern.files)
        directories = sum(step.call == "fsync directory" for step in self._pattern.steps)
        whole = sum(step.call == "syncfs" for step in self._pattern.steps)
        pauses = self._pattern.pauses_us() if self._has_pauses else {}
        pause = max(pauses.values(), default=0) / _MICROSECONDS
        pause_facts = {"pauses": f"as recorded, {pause:.3f} s of a thread at most, within every save"} if pause else {}
        return pause_facts | {
            "the job itself": f"{unsynced} of {kept} files not flushed after the last write, {directories} fsyncs of "
            f"directories, {whole} flushes of the file system by syncfs",
            "save": f"the calls of {ranks} recorded ranks on {self._group.size}{others}; places and lengths scaled",
            "load": f"each rank its own files, in reads of {self._pattern.read_bytes or _READ_BYTES:,} bytes ({read})",
            "added": f"fsync of each file once more, in every save: {added * 1000:.1f} ms at most",
        }

    def fill(self, checkpoint: int) -> None:
        """Generate the content of every file for checkpoint number ``checkpoint``.

        The first call allocates the memory.
        """
        for number, file in self._files.items():
            if number not in self._data:
                self._data[number] = np.empty(file.bytes, dtype=np.uint8)
                if self._stages:
                    # Touched before the clock runs: a job makes its staging buffer once.
                    self._copy[number] = np.ones(file.bytes, dtype=np.uint8)
            self._content.fill(self._data[number], self._place(checkpoint, number))

    def state(self) -> Sequence[Bytes]:
        """Return the memory that contains the content of the files."""
        return list(self._data.values())

    def stage(self) -> int:
        """Copy every file's bytes into the staging buffer. Return the number of bytes copied."""
        self._is_staged = True
        copies = [self._copy[number] for number in self._data]
        return copy_state(copies, list(self._data.values()), self._copy_threads)

    def save(self, draft: Draft, clock: Clock) -> None:
        """Make the recorded calls. Then let the store make the written files durable.

        The recorded calls are divided into phases. All ranks wait for each other between two phases.
        """
        data = self._copy if self._is_staged else self._data
        calls = cast("ReplayDraft", draft).replay(self._files, data)
        try:
            for phase in range(max(step.phase for step in self._pattern.steps) + 1):
                if phase:
                    with clock.activity.wait():
                        self._savers.wait()
                self._perform([step for step in self._steps if step.phase == phase], calls, clock)
        finally:
            calls.close()
        self._is_staged = False
        began = time.perf_counter()
        draft.adopt([file.name for file in self._files.values() if file.kept])
        self._added_seconds = max(self._added_seconds, time.perf_counter() - began)

    def load_steps(self) -> int:
        """Return 1, because all data are loaded before they are compared."""
        return 1

    def load(self, committed: CommittedCheckpoint, step: int, clock: Clock) -> int:
        """Read the rank's files one after the other. Return the number of bytes read.

        The bytes of small files are not counted.
        """
        self.release()
        arrived = 0
        for number, file in self._files.items():
            if not file.kept:
                continue
            loaded = self._loaded[number] = self._read(committed, number, clock)
            if not file.is_small and not isinstance(loaded, LocalFault):
                arrived += len(loaded)
        return arrived

    def verify(self, checkpoint: int) -> Comparison:
        """Compare every byte of every file that was read.

        The bytes of small files are compared, but not counted.
        """
        checked, count = 0, 0
        faults: list[LocalFault] = []
        for number, loaded in self._loaded.items():
            file = self._files[number]
            if isinstance(loaded, LocalFault):
                count += 1
                faults.append(loaded)
                continue
            pages, findings = compare(self._content, loaded, self._place(checkpoint, number))
            checked += 0 if file.is_small else len(loaded)
            count += pages
            faults.extend(LocalFault.of(one, file.name, CONTENT) for one in findings)
        self._loaded = {}
        return Comparison(bytes_checked=checked, fault_count=count, faults=tuple(faults[:MAXIMUM_FAULTS_OF_RANK]))

    def release(self) -> None:
        """Free the content and the loaded data."""
        self._pool.dismiss()
        self._data, self._copy, self._loaded = {}, {}, {}

    def _perform(self, steps: Sequence[Step], calls: ReplayedCalls, clock: Clock) -> None:
        """Make this rank's calls between two points at which the ranks wait for each other.

        ``steps`` are the calls, sorted by lane (a thread of the recorded job). Each lane's calls are made in one
        thread.
        """
        lanes = [list(of_lane) for _, of_lane in groupby(steps, key=lambda step: step.lane)]
        if len(lanes) == 1:
            for step in self._in_pieces(lanes[0]):
                if step.pause_us:
                    with clock.phase("pause"):
                        _pause(step)
                with clock.phase("fsync" if "sync" in step.call else "write", self._named(step)):
                    calls.make(step)
        elif lanes:
            # A clock times one activity, so concurrent threads count as one.
            with clock.phase("write", self._named(steps[0])):
                self._pool.work(partial(self._perform_all, lanes, calls), len(lanes))

    def _perform_all(self, lanes: Sequence[Sequence[Step]], calls: ReplayedCalls, lane: int) -> None:
        for step in self._in_pieces(lanes[lane]):
            _pause(step)
            calls.make(step)

    def _in_pieces(self, steps: Sequence[Step]) -> Iterator[Step]:
        """Yield the steps, including their pauses if pauses are replayed.

        If a step has several calls, the step is divided and its pause is divided equally among the pieces. Pauses below
        1 ms are left out.
        """
        for step in steps:
            pieces = min(step.count, step.pause_us // _SHORTEST_PAUSE_US) if self._has_pauses else 0
            if not pieces:
                yield replace(step, pause_us=0)
            for piece in range(pieces):
                first, behind = (step.count * n // pieces for n in (piece, piece + 1))
                yield replace(
                    step,
                    offset=step.offset + first * step.bytes,
                    count=behind - first,
                    pause_us=step.pause_us // pieces,
                )

    def _named(self, step: Step) -> str:
        return self._files[step.file].name if step.file in self._files else ""

    def _place(self, checkpoint: int, number: int) -> TensorKey:
        return TensorKey(checkpoint=checkpoint, rank=self._shard.rank, tensor=list(self._files).index(number))

    def _read(self, committed: CommittedCheckpoint, number: int, clock: Clock) -> Bytes | LocalFault:
        """Read a file in requests of the size that the job used, and return its bytes.

        If the length of the file is wrong, return a fault.
        """
        file = self._files[number]
        piece = self._pattern.read_bytes or _READ_BYTES
        source = committed.file(file.name)
        try:
            if source.size != file.bytes:
                return _size_fault(file.name, source.size, file.bytes)
            data = np.empty(file.bytes, dtype=np.uint8)
            with clock.phase("read", file.name):
                for at in range(0, file.bytes, piece):
                    got = source.readinto(data[at : at + piece])
                    clock.moved(got)
                    if got < min(piece, file.bytes - at):
                        return _size_fault(file.name, at + got, file.bytes)
        finally:
            source.close()
        return data


def _pause(step: Step) -> None:
    if step.pause_us:
        time.sleep(step.pause_us / _MICROSECONDS)


def _size_fault(name: str, size: int, written: int) -> LocalFault:
    kind: FaultKind = "short" if size < written else "foreign"
    detail = f"the file has {size} bytes, {written} were written"
    return LocalFault(
        kind=kind, file=name, tensor="", offset=min(size, written), bytes=abs(size - written), detail=detail
    )


def make(
    *, shard: RankLayout, content: Content, group: Group, activity: Activity, options: EngineOptions
) -> ReplayEngine:
    """Return the engine for a rank's files."""
    return ReplayEngine(shard, content, group, activity, options)

"""Strategy ``tiered``: the state is saved to a local tier, then the save is drained to the target.

The job waits while the state is saved to the local tier. To drain a save is to copy it to the target. Every rank drains
its own files while the job continues. Some threads read the files from the local tier into buffers. The same number of
threads write the data unchanged to the target. Finally rank 0 commits the checkpoint on the target. A checkpoint
remains in the local tier until the next checkpoint is complete in the local tier.
"""

from __future__ import annotations

import errno
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ckpt.facts.strategy_results import LOCAL_TIER
from pytest_ckpt.ranks.engines.protocol import Clock
from pytest_ckpt.ranks.engines.stream.buffers import Buffers
from pytest_ckpt.ranks.engines.stream.ring import Arrival, one_pass
from pytest_ckpt.ranks.engines.stream.thread_pool import ThreadPool
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.strategies.asynchronous import Background
from pytest_ckpt.ranks.strategies.protocol import RankSave, leads, part_of, save_and_commit, store_and_commit
from pytest_ckpt.sizing.drains import drain_depth
from pytest_ckpt.support.units import format_binary_bytes, format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.targets import CheckpointRef
    from pytest_ckpt.ranks.content import Bytes
    from pytest_ckpt.ranks.engines.protocol import Engine
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import EngineOptions
    from pytest_ckpt.ranks.strategies.asynchronous import InFlight
    from pytest_ckpt.targets.protocol import CommittedCheckpoint, Draft, Sink, Source, Store


def read_piece(source: Source, offset: int, data: Bytes, name: str, clock: Clock) -> None:
    """Fill ``data`` with bytes of a file in the local tier, from ``offset`` on. The time counts as a read.

    Raises OSError if the file is too short.
    """
    with clock.phase("read", name):
        _read(source, offset, data, name)


def write_piece(sink: Sink, offset: int, count: int, data: Bytes, name: str, clock: Clock) -> None:
    """Write the first ``count`` bytes of ``data`` to a file at ``offset``. The time counts as a write.

    ``data`` must have space for padding.
    """
    with clock.phase("write", name):
        _write(sink, offset, count, data)


def _read(source: Source, offset: int, data: Bytes, name: str) -> None:
    got = source.read_into(offset, data)
    if got != len(data):
        raise OSError(errno.EIO, f"the local tier gave {got} of {len(data)} bytes at {offset}", name)


def _write(sink: Sink, offset: int, count: int, data: Bytes) -> None:
    """Write the first ``count`` bytes of ``data`` to ``sink`` at ``offset``, padded to the sink's alignment.

    The sink later removes the padding.
    """
    filled = -(-count // sink.alignment) * sink.alignment
    data[count:filled] = 0
    sink.write_at(offset, data[:filled])


class Copies:
    """Copies this rank's files of checkpoints from the local tier to the target, one file after the other.

    Several reads and as many writes of a file run concurrently. The number of reads is derived from the number of
    requests in flight in the options.
    """

    def __init__(self, store: Store, tier: Store, options: EngineOptions) -> None:
        self._store, self._tier, self._options = store, tier, options
        self._pool = ThreadPool()
        self._use(options.request_bytes)

    def facts(self) -> dict[str, str]:
        """Return descriptions of how requests are made, and of the memory that requests use."""
        return {
            "drain": f"requests of {format_binary_bytes(self._piece_bytes)}, {self._depth} read from the local tier "
            f"while {self._depth} are written to the target, for each rank",
            "drain buffers": f"{format_bytes(sum(map(len, self._slots)))} a rank",
        }

    def release(self) -> None:
        """End the threads."""
        self._pool.dismiss()

    def _use(self, piece_bytes: int) -> None:
        """Allocate buffers for pieces of ``piece_bytes`` bytes."""
        # The old buffers are freed first, because both together would need twice the memory.
        self._slots: list[Bytes] = []
        self._piece_bytes = piece_bytes
        self._depth = drain_depth(piece_bytes, self._options.request_bytes, self._options.depth)
        self._slots = Buffers(2 * self._depth, piece_bytes).slots

    def copy(self, ref: CheckpointRef, names: Sequence[str], clock: Clock) -> RankSave:
        """Copy the files ``names`` of a checkpoint from the local tier to the target, and make them durable.

        Return the record of the copied files. The checkpoint must be committed in the local tier.
        """
        store = self._tier
        draft, copy = self._store.begin(ref, clock), store.open(ref, clock)
        for name in names:
            self._copy_file(copy, draft, name, clock)
        return part_of(draft, clock)

    def _copy_file(self, copy: CommittedCheckpoint, draft: Draft, name: str, clock: Clock) -> None:
        """Copy a file to the target, and make it durable. Pieces of the file are read and written concurrently."""
        source = copy.source(name)
        try:
            size = source.size
            sink = draft.create(name, size)
            try:
                self._move(source, sink, name, clock)
            except BaseException:
                sink.abort()
                raise
            sink.finish()
        finally:
            source.close()

    def _move(self, source: Source, sink: Sink, name: str, clock: Clock) -> None:
        size, step = source.size, sink.part_bytes or self._options.request_bytes
        if step > self._piece_bytes:
            self._use(step)
        offsets = range(0, size, step)
        if not offsets:
            return
        depth, writing, lock, activity = min(self._depth, len(offsets)), 0, threading.Lock(), clock.activity

        def read(offset: int, buffer: Bytes) -> int:
            count = min(step, size - offset)
            _read(source, offset, buffer[:count], name)
            return count

        def write(arrival: Arrival[int]) -> None:
            nonlocal writing
            # If a pass hangs while a write is in flight, the target hangs; otherwise the local tier hangs.
            with lock:
                writing, activity.phase = writing + 1, "write"
            try:
                _write(sink, arrival.request, arrival.count, arrival.buffer)
            except BaseException:
                activity.fails_at(name, "write")
                raise
            with lock:
                writing -= 1
                activity.phase = "write" if writing else "read"

        before = clock.phases.get("read", 0.0)
        with clock.phase("read", name):
            ring = one_pass(self._pool, self._slots, offsets, readers=depth, takers=depth, read=read, take=write)
        # If no buffer is free, reads wait for the target; the remaining time of a pass is the local tier's.
        held_up = min(clock.phases["read"] - before, ring.stalled_seconds)
        clock.phases["read"] -= held_up
        clock.phases["write"] = clock.phases.get("write", 0.0) + held_up


class Drains:
    """Drains checkpoints from the local tier to the target, one at a time, concurrently with the ranks' work."""

    def __init__(self, store: Store, tier: Store, group: Group, activity: Activity, options: EngineOptions) -> None:
        self._store, self._copies = store, Copies(store, tier, options)
        self._background = Background(group, activity)

    def facts(self) -> dict[str, str]:
        """Return descriptions of how requests are made, and of the memory that requests use."""
        return self._copies.facts()

    def wait(self) -> float:
        """Wait until the previous drain has ended. Return the seconds of the wait."""
        return self._background.wait()

    def begin(
        self, ref: CheckpointRef, names: Sequence[str], *, start: float, local_seconds: float = 0.0, waited: float = 0.0
    ) -> InFlight:
        """Begin to drain this rank's files ``names`` of a checkpoint to the target. Return the save in flight.

        If ``names`` is empty, this rank only waits for the other ranks. The checkpoint must be committed in the local
        tier. ``start`` is the time when the save began. ``local_seconds`` is the time that the save has taken so far.
        ``waited`` is the part of ``local_seconds`` in which the save waited for the previous drain.
        """

        def drain() -> RankSave:
            lane = self._background.lane
            clock = Clock(activity=lane, phases={"stage": local_seconds - waited} if local_seconds else {})
            saved = store_and_commit(
                lambda: self._copies.copy(ref, names, clock),
                self._store,
                self._background.group,
                ref,
                clock,
                start=start,
                is_saving_rank=bool(names),
            )
            timing = replace(saved.timing, staged_seconds=local_seconds, waited_for_previous=waited)
            return replace(saved, timing=timing)

        return self._background.begin(drain, start)

    def release(self) -> None:
        """Wait for the drain in flight, and end the threads."""
        self._background.release()
        self._copies.release()


class TieredStrategy:
    """Saves to the local tier, then drains (copies) the save to the target.

    The local tier keeps the newest checkpoint. It keeps the previous checkpoint until the newest checkpoint is complete
    in the local tier.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        store: Store,
        group: Group,
        activity: Activity,
        options: EngineOptions,
        tier: Store | None = None,
    ) -> None:
        """Raises ValueError if there is no local tier."""
        if tier is None:
            raise ValueError("strategy tiered has no local tier")
        self.engine = engine
        self._tier, self._group, self._activity = tier, group, activity
        self._lane = activity.lane(LOCAL_TIER)
        self._drains = Drains(store, tier, group, activity, options)
        self._copies: list[tuple[CheckpointRef, tuple[str, ...]]] = []

    def save(self, ref: CheckpointRef, *, is_saving_rank: bool = True) -> InFlight:
        """Wait for the previous drain, save to the local tier, begin to drain this save, and return."""
        # A number may be saved again after its checkpoint was deleted from the target.
        self._delete([copy for copy in self._copies if copy[0].number == ref.number])
        start = time.perf_counter()
        waited = self._drains.wait()
        self._lane.begin(self._activity.operation)
        with self._activity.wait():
            local = save_and_commit(
                self.engine,
                self._tier,
                self._group,
                ref,
                Clock(activity=self._lane),
                start=start,
                is_saving_rank=is_saving_rank,
            )
            # The drain can only begin after rank 0 has committed.
            self._group.wait()
        self._lane.report_idle()
        names = tuple(entry.name for entry in local.entries)
        seconds = time.perf_counter() - start
        pending = self._drains.begin(ref, names, start=start, local_seconds=seconds, waited=waited)
        self._copies.append((ref, names))
        self._delete(self._copies[:-1])
        return pending

    def may_change_state(self, pending: InFlight) -> bool:
        """Return True, because the state is already in files of the local tier."""
        del pending
        return True

    def facts(self) -> dict[str, str]:
        """Return descriptions of how drains make requests, and of the memory that requests use."""
        return self._drains.facts()

    def release(self) -> None:
        """Wait for the drain in flight, and delete the files that are left in the local tier."""
        self._drains.release()
        self._delete(self._copies)

    def _delete(self, copies: Sequence[tuple[CheckpointRef, tuple[str, ...]]]) -> None:
        """Delete copies from the local tier. All ranks call this together."""
        for ref, names in copies:
            self._tier.delete(ref, names)
            self._group.wait()
            if leads(self._group, self._tier):
                self._tier.finish_delete(ref)
        self._copies = [copy for copy in self._copies if copy not in copies]

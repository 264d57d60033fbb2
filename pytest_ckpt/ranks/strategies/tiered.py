"""Strategy ``tiered``: the state is saved to a local tier while the job waits, and drained to the target meanwhile.

Every rank drains the files that it wrote, in a thread of its own: it reads them from the local tier and writes them to
the target as they are, where rank 0 commits them. The copy before stays in the local tier until the next is there.
"""

from __future__ import annotations

import errno
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ckpt.facts.strategy_results import LOCAL_TIER
from pytest_ckpt.ranks.engines.protocol import Clock
from pytest_ckpt.ranks.engines.stream.buffers import Buffers
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.strategies.asynchronous import Background
from pytest_ckpt.ranks.strategies.protocol import RankSave, leads, part_of, save_and_commit, store_and_commit
from pytest_ckpt.sizing.drains import DRAIN_BUFFER_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.targets import CheckpointRef
    from pytest_ckpt.ranks.content import Bytes
    from pytest_ckpt.ranks.engines.protocol import Engine
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.strategies.asynchronous import InFlight
    from pytest_ckpt.targets.protocol import CommittedCheckpoint, Draft, Sink, Source, Store


def read_piece(source: Source, offset: int, data: Bytes, name: str, clock: Clock) -> None:
    """Read a piece of a file of the local tier. Raises OSError where it is cut off."""
    with clock.phase("read", name):
        got = source.read_into(offset, data)
    if got != len(data):
        raise OSError(errno.EIO, f"the local tier gave {got} of {len(data)} bytes at {offset}", name)


def write_piece(sink: Sink, offset: int, count: int, data: Bytes, name: str, clock: Clock) -> None:
    """Write the first ``count`` bytes of ``data``, which has room for what is filled up and cut off again."""
    filled = -(-count // sink.alignment) * sink.alignment
    data[count:filled] = 0
    with clock.phase("write", name):
        sink.write_at(offset, data[:filled])


class Copies:
    """Copies this rank's files of checkpoints from the local tier to the target, one after the other."""

    def __init__(self, store: Store, tier: Store) -> None:
        self._store, self._tier = store, tier
        self._data: Bytes = Buffers(1, DRAIN_BUFFER_BYTES).slots[0]

    def copy(self, ref: CheckpointRef, names: Sequence[str], clock: Clock) -> RankSave:
        """Copy files of a checkpoint that is committed in the local tier, and make them durable."""
        store = self._tier
        draft, copy = self._store.begin(ref, clock), store.open(ref, clock)
        for name in names:
            self._copy_file(copy, draft, name, clock)
        return part_of(draft, clock)

    def _copy_file(self, copy: CommittedCheckpoint, draft: Draft, name: str, clock: Clock) -> None:
        """Read a file of the local tier in pieces, and write each to the target."""
        source = copy.source(name)
        try:
            size = source.size
            sink = draft.create(name, size)
            try:
                step = sink.part_bytes or DRAIN_BUFFER_BYTES
                if len(self._data) < step:
                    self._data = Buffers(1, step).slots[0]
                for offset in range(0, size, step):
                    count = min(step, size - offset)
                    read_piece(source, offset, self._data[:count], name, clock)
                    write_piece(sink, offset, count, self._data, name, clock)
            except BaseException:
                sink.abort()
                raise
            sink.finish()
        finally:
            source.close()


class Drains:
    """Copies of checkpoints from the local tier to the target, one at a time, beside what the ranks do."""

    def __init__(self, store: Store, tier: Store, group: Group, activity: Activity) -> None:
        self._store, self._copies = store, Copies(store, tier)
        self._background = Background(group, activity)

    def wait(self) -> float:
        """Wait for the drain before; return the seconds."""
        return self._background.wait()

    def begin(
        self, ref: CheckpointRef, names: Sequence[str], *, start: float, local_seconds: float = 0.0, waited: float = 0.0
    ) -> InFlight:
        """Begin to drain this rank's files of a checkpoint that is committed in the local tier; without, it waits.

        The save began at ``start``; ``waited`` of the ``local_seconds`` until now it waited for the drain before.
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
                takes_part=bool(names),
            )
            timing = replace(saved.timing, staged_seconds=local_seconds, waited_for_previous=waited)
            return replace(saved, timing=timing)

        return self._background.begin(drain, start)

    def release(self) -> None:
        """Wait for the drain in flight, and let the thread end."""
        self._background.release()


class TieredStrategy:
    """Holds the newest checkpoint in the local tier, and while one is drained that one, too."""

    def __init__(
        self, *, engine: Engine, store: Store, group: Group, activity: Activity, tier: Store | None = None
    ) -> None:
        """Raises ValueError without a local tier."""
        if tier is None:
            raise ValueError("strategy tiered has no local tier")
        self.engine = engine
        self._tier, self._group, self._activity = tier, group, activity
        self._lane = activity.lane(LOCAL_TIER)
        self._drains = Drains(store, tier, group, activity)
        self._copies: list[tuple[CheckpointRef, tuple[str, ...]]] = []

    def save(self, ref: CheckpointRef, *, takes_part: bool = True) -> InFlight:
        """Wait for the drain before, save to the local tier, begin to drain that, and return."""
        # A number may be saved again when it was deleted from the target.
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
                takes_part=takes_part,
            )
            # Before rank 0 has committed there is nothing to be drained.
            self._group.wait()
        self._lane.rest()
        names = tuple(entry.name for entry in local.entries)
        seconds = time.perf_counter() - start
        pending = self._drains.begin(ref, names, start=start, local_seconds=seconds, waited=waited)
        self._copies.append((ref, names))
        self._delete(self._copies[:-1])
        return pending

    def may_change_state(self, pending: InFlight) -> bool:
        """Return True: what is drained lies in the local tier."""
        del pending
        return True

    def release(self) -> None:
        """Wait for the drain in flight, and delete what is left in the local tier."""
        self._drains.release()
        self._delete(self._copies)

    def _delete(self, copies: Sequence[tuple[CheckpointRef, tuple[str, ...]]]) -> None:
        """Delete copies that are drained; called by all ranks together."""
        for ref, names in copies:
            self._tier.delete(ref, names)
            self._group.wait()
            if leads(self._group, self._tier):
                self._tier.finish_delete(ref)
        self._copies = [copy for copy in self._copies if copy not in copies]

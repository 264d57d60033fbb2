"""Strategies ``async`` and ``hybrid``, whose saves continue in a background thread while the job continues.

With ``async``, the job waits while the state is copied, and continues while the copy is written. With ``hybrid``, the
job waits for full saves, and continues while deltas are written.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ckpt.facts.strategy_results import BACKGROUND
from pytest_ckpt.ranks.engines.protocol import Clock, staging
from pytest_ckpt.ranks.engines.whole_state import copy_facts
from pytest_ckpt.ranks.strategies.protocol import RankSave, save_and_commit
from pytest_ckpt.ranks.strategies.sync import SyncStrategy

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ckpt.facts.targets import CheckpointRef
    from pytest_ckpt.ranks.engines.protocol import Engine
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import EngineOptions
    from pytest_ckpt.ranks.strategies.protocol import Pending
    from pytest_ckpt.targets.protocol import Store


class Background:
    """The thread of a rank that writes in the background. All ranks create the object together.

    ``lane`` reports the thread's activity. ``group`` is an additional group of all ranks, in which the background
    threads wait for each other.
    """

    def __init__(self, group: Group, activity: Activity) -> None:
        self._activity = activity
        self.lane = activity.lane(BACKGROUND)
        # The threads of all ranks wait for each other, concurrently with the ranks.
        self.group = group.duplicate(self.lane)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=BACKGROUND)
        self._in_flight: InFlight | None = None

    def wait(self) -> float:
        """Wait until the previous background work has ended. Return the seconds of the wait.

        If the previous work failed, raises its error.
        """
        start = time.perf_counter()
        if self._in_flight:
            with self._activity.wait():
                self._in_flight.wait()
        return time.perf_counter() - start

    def begin(self, work: Callable[[], RankSave], start: float) -> InFlight:
        """Start ``work``, the background part of a save. Return the running save.

        ``start`` is the time when the save began. The save ends when the work of all ranks has ended.
        """
        self.lane.begin(self._activity.operation)

        def finish_save() -> RankSave:
            saved = work()
            # A save ends only when the checkpoint is committed; until then the next save may not replace it.
            self.group.wait()
            self.lane.report_idle()
            return saved

        self._in_flight = InFlight(self._thread.submit(finish_save), time.perf_counter() - start)
        return self._in_flight

    def release(self) -> None:
        """Wait for the current work, then end the thread."""
        self._thread.shutdown()
        self._in_flight = None


class InFlight:
    """A save that continues in a thread.

    ``returned`` is the number of seconds from the start of the save until the job could continue.
    """

    def __init__(self, work: Future[RankSave], returned: float) -> None:
        self._work, self._returned = work, returned

    def poll(self) -> RankSave | None:
        """Return the save's result; None while the save runs. If the save failed, raises its error."""
        return self.wait() if self._work.done() else None

    def wait(self) -> RankSave:
        """Wait until the save has ended, and return its result. If the save failed, raises its error."""
        saved = self._work.result()
        return replace(saved, timing=replace(saved.timing, returned_seconds=self._returned))


class AsyncStrategy:
    """Copies the state, then saves the copy in the background. At most one save is in flight."""

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
        del tier
        self.engine = engine
        self._state = staging(engine)
        self._copy_threads = options.copy_threads
        self._store, self._activity = store, activity
        self._background = Background(group, activity)

    def save(self, ref: CheckpointRef, *, is_saving_rank: bool = True) -> InFlight:
        """Wait for the previous save, copy the state, begin to write the copy, and return."""
        start = time.perf_counter()
        waited = self._background.wait()
        clock = Clock(activity=self._activity)
        staged_bytes, begun = 0, time.perf_counter()
        if is_saving_rank:
            with clock.phase("stage"):
                staged_bytes = self._state.stage()
        ended = time.perf_counter()
        staged, copying = ended - start, ended - begun

        def write() -> RankSave:
            saved = self._write(ref, start, clock.phases, is_saving_rank=is_saving_rank)
            timing = replace(
                saved.timing,
                staged_seconds=staged,
                waited_for_previous=waited,
                copying_seconds=copying,
                staged_bytes=staged_bytes,
            )
            return replace(saved, timing=timing)

        return self._background.begin(write, start)

    def facts(self) -> dict[str, str]:
        """Return a description of how the state is copied."""
        return copy_facts(self._copy_threads)

    def wait(self) -> None:
        """Wait for the save in flight."""
        self._background.wait()

    def may_change_state(self, pending: InFlight) -> bool:
        """Return True, because the save writes a copy of the state."""
        del pending
        return True

    def release(self) -> None:
        """Wait for the save in flight, and end the thread."""
        self._background.release()

    def _write(self, ref: CheckpointRef, start: float, phases: dict[str, float], *, is_saving_rank: bool) -> RankSave:
        clock, group = Clock(activity=self._background.lane, phases=dict(phases)), self._background.group
        return save_and_commit(self.engine, self._store, group, ref, clock, start=start, is_saving_rank=is_saving_rank)


class HybridStrategy:
    """Saves deltas (only the changed pages) in the background, and full checkpoints while the job waits.

    The engine's attribute ``contains_delta`` is true if the next save is a delta. If an engine does not have this
    attribute, all saves are full.
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
        del tier
        self.engine = engine
        self._full = SyncStrategy(engine=engine, store=store, group=group, activity=activity, options=options)
        self._delta = AsyncStrategy(engine=engine, store=store, group=group, activity=activity, options=options)

    def save(self, ref: CheckpointRef, *, is_saving_rank: bool = True) -> Pending:
        """Save a checkpoint. If it is full, the job waits; if it is a delta, the save continues in the background.

        The background thread writes a copy of the delta. Before a full save, this method waits for the delta in flight.
        """
        if getattr(self.engine, "contains_delta", False):
            return self._delta.save(ref, is_saving_rank=is_saving_rank)
        self._delta.wait()
        return self._full.save(ref, is_saving_rank=is_saving_rank)

    def facts(self) -> dict[str, str]:
        """Return a description of how the state is copied."""
        return self._delta.facts()

    def may_change_state(self, pending: Pending) -> bool:
        """Return True, because full saves have already ended, and deltas are written from a copy of the state."""
        del pending
        return True

    def release(self) -> None:
        """Wait for the delta in flight, and end its thread."""
        self._delta.release()

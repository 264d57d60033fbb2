"""Strategy ``async``: the state is copied while the job waits; a thread writes the copy while the job goes on."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ckpt.facts.training import BACKGROUND
from pytest_ckpt.ranks.engines.protocol import Clock, staging
from pytest_ckpt.ranks.strategies.protocol import Saved, save_and_commit

if TYPE_CHECKING:
    from pytest_ckpt.facts.targets import CheckpointRef
    from pytest_ckpt.ranks.engines.protocol import Engine
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.targets.protocol import Store


class AsyncStrategy:
    """One save is in flight at most: the next one waits for it before it copies."""

    def __init__(self, *, engine: Engine, store: Store, group: Group, activity: Activity) -> None:
        self.engine = engine
        self._state = staging(engine)
        self._store, self._activity = store, activity
        self._lane = activity.lane(BACKGROUND)
        # The ranks' threads wait for each other while the ranks do, too.
        self._group = group.duplicate(self._lane)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=BACKGROUND)
        self._in_flight: InFlight | None = None

    def save(self, ref: CheckpointRef, *, takes_part: bool = True) -> InFlight:
        """Wait for the save before, copy the state, begin to write the copy, and return."""
        start = time.perf_counter()
        if self._in_flight:
            with self._activity.wait():
                self._in_flight.wait()
        waited = time.perf_counter() - start
        clock = Clock(activity=self._activity)
        staged_bytes = 0
        if takes_part:
            with clock.phase("stage"):
                staged_bytes = self._state.stage()
        staged = time.perf_counter() - start
        self._lane.begin(self._activity.operation)

        def go_on() -> Saved:
            saved = self._write(ref, start, clock.phases, takes_part=takes_part)
            timing = replace(saved.timing, staged=staged, waited_for_previous=waited, staged_bytes=staged_bytes)
            return replace(saved, timing=timing)

        work = self._thread.submit(go_on)
        self._in_flight = InFlight(work, time.perf_counter() - start)
        return self._in_flight

    def may_change_state(self, pending: InFlight) -> bool:
        """Return True: what is written is a copy, made before ``save`` returned."""
        del pending
        return True

    def release(self) -> None:
        """Wait for the save in flight, and let the thread end."""
        self._thread.shutdown()
        self._in_flight = None

    def _write(self, ref: CheckpointRef, start: float, phases: dict[str, float], *, takes_part: bool) -> Saved:
        clock = Clock(activity=self._lane, phases=dict(phases))
        saved = save_and_commit(self.engine, self._store, self._group, ref, clock, start=start, takes_part=takes_part)
        # Nobody's save is over before the checkpoint is one: until then the next may not take its place.
        self._group.wait()
        self._lane.rest()
        return saved


class InFlight:
    """A save that goes on in a thread. ``returned`` are the seconds after which the job could go on."""

    def __init__(self, work: Future[Saved], returned: float) -> None:
        self._work, self._returned = work, returned

    def poll(self) -> Saved | None:
        """Return what came of it; None while it goes on. Raises what the save met."""
        return self.wait() if self._work.done() else None

    def wait(self) -> Saved:
        """Wait for its end and return what came of it. Raises what the save met."""
        saved = self._work.result()
        return replace(saved, timing=replace(saved.timing, returned=self._returned))

"""Strategies whose saves go on in the background while the job does.

``async``: the state is copied while the job waits; a thread writes the copy while the job goes on. ``hybrid``: the job
stands still for a full save, and goes on while a delta is written.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ckpt.ranks.engines.protocol import Clock, staging
from pytest_ckpt.ranks.strategies.background import Background
from pytest_ckpt.ranks.strategies.protocol import RankSave, save_and_commit
from pytest_ckpt.ranks.strategies.sync import SyncStrategy

if TYPE_CHECKING:
    from pytest_ckpt.facts.targets import CheckpointRef
    from pytest_ckpt.ranks.engines.protocol import Engine
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.strategies.background import InFlight
    from pytest_ckpt.ranks.strategies.protocol import Pending
    from pytest_ckpt.targets.protocol import Store


class AsyncStrategy:
    """One save is in flight at most: the next one waits for it before it copies."""

    def __init__(
        self, *, engine: Engine, store: Store, group: Group, activity: Activity, tier: Store | None = None
    ) -> None:
        del tier
        self.engine = engine
        self._state = staging(engine)
        self._store, self._activity = store, activity
        self._background = Background(group, activity)

    def save(self, ref: CheckpointRef, *, takes_part: bool = True) -> InFlight:
        """Wait for the save before, copy the state, begin to write the copy, and return."""
        start = time.perf_counter()
        waited = self._background.wait()
        clock = Clock(activity=self._activity)
        staged_bytes = 0
        if takes_part:
            with clock.phase("stage"):
                staged_bytes = self._state.stage()
        staged = time.perf_counter() - start

        def write() -> RankSave:
            saved = self._write(ref, start, clock.phases, takes_part=takes_part)
            timing = replace(saved.timing, staged=staged, waited_for_previous=waited, staged_bytes=staged_bytes)
            return replace(saved, timing=timing)

        return self._background.begin(write, start)

    def wait(self) -> None:
        """Wait for the save in flight."""
        self._background.wait()

    def may_change_state(self, pending: InFlight) -> bool:
        """Return True: what is written is a copy, made before ``save`` returned."""
        del pending
        return True

    def release(self) -> None:
        """Wait for the save in flight, and let the thread end."""
        self._background.release()

    def _write(self, ref: CheckpointRef, start: float, phases: dict[str, float], *, takes_part: bool) -> RankSave:
        clock, group = Clock(activity=self._background.lane, phases=dict(phases)), self._background.group
        return save_and_commit(self.engine, self._store, group, ref, clock, start=start, takes_part=takes_part)


class HybridStrategy:
    """Asks the engine whether what it holds is a delta: one without ``holds_delta`` saves fully."""

    def __init__(
        self, *, engine: Engine, store: Store, group: Group, activity: Activity, tier: Store | None = None
    ) -> None:
        del tier
        self.engine = engine
        self._full = SyncStrategy(engine=engine, store=store, group=group, activity=activity)
        self._delta = AsyncStrategy(engine=engine, store=store, group=group, activity=activity)

    def save(self, ref: CheckpointRef, *, takes_part: bool = True) -> Pending:
        """Save fully while the job waits, or begin to save a delta."""
        if getattr(self.engine, "holds_delta", False):
            return self._delta.save(ref, takes_part=takes_part)
        self._delta.wait()
        return self._full.save(ref, takes_part=takes_part)

    def may_change_state(self, pending: Pending) -> bool:
        """Return True: a full save is over, and of a delta a copy is written."""
        del pending
        return True

    def release(self) -> None:
        """Wait for the delta in flight, and let its thread end."""
        self._delta.release()

"""A save strategy for tests: its save returns before the commit. A thread of each rank completes the save."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from pytest_ckpt.ranks.engines.protocol import Clock
from pytest_ckpt.ranks.strategies.protocol import RankSave, save_and_commit

LANE = "background"


class LateStrategy:
    def __init__(self, *, engine, store, group, activity, tier=None) -> None:
        assert tier is None
        self.engine = engine
        self._store, self._activity, self._lane = store, activity, activity.lane(LANE)
        self._group = group.duplicate(self._lane)
        self._thread = ThreadPoolExecutor(1)

    def save(self, ref, *, is_saving_rank=True):
        assert is_saving_rank
        start = time.perf_counter()
        self._lane.begin(self._activity.operation)
        pending = Late(self._thread.submit(self._save, ref, start))
        pending.returned = time.perf_counter() - start
        return pending

    def _save(self, ref, start) -> RankSave:
        clock = Clock(activity=self._lane)
        saved = save_and_commit(self.engine, self._store, self._group, ref, clock, start=start, is_saving_rank=True)
        end = time.perf_counter() - start
        self._lane.report_idle()
        return replace(saved, timing=replace(saved.timing, staged_seconds=end))

    def may_change_state(self, pending) -> bool:
        return pending.poll() is not None

    def release(self) -> None:
        self._thread.shutdown()


class Late:
    def __init__(self, work: Future[RankSave]) -> None:
        self._work, self.returned = work, 0.0

    def poll(self) -> RankSave | None:
        return self.wait() if self._work.done() else None

    def wait(self) -> RankSave:
        saved = self._work.result()
        return replace(saved, timing=replace(saved.timing, returned_seconds=self.returned))

"""Strategy ``sync``: the job waits until the bytes of all ranks are durable and the checkpoint is committed."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ckpt.facts.targets import CheckpointRef
from pytest_ckpt.ranks.engines.protocol import Clock
from pytest_ckpt.ranks.strategies.protocol import Pending, RankSave, save_and_commit

if TYPE_CHECKING:
    from pytest_ckpt.ranks.engines.protocol import Engine
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import EngineOptions
    from pytest_ckpt.targets.protocol import Store


class SyncStrategy:
    """A strategy without threads or copies. A save has ended when `save` returns."""

    def __init__(
        self,
        *,
        engine: Engine,
        store: Store,
        group: Group,
        activity: Activity,
        options: EngineOptions | None = None,
        tier: Store | None = None,
    ) -> None:
        del tier, options
        self.engine = engine
        self._store, self._group, self._activity = store, group, activity

    def save(self, ref: CheckpointRef, *, is_saving_rank: bool = True) -> Pending:
        """Write the files, wait for all ranks, and commit.

        On the target, rank 0 commits. In a local tier, one rank of each host commits.
        """
        clock, start = Clock(activity=self._activity), time.perf_counter()
        saved = save_and_commit(
            self.engine, self._store, self._group, ref, clock, start=start, is_saving_rank=is_saving_rank
        )
        ended = time.perf_counter() - start
        return CompletedSave(replace(saved, timing=replace(saved.timing, returned_seconds=ended, staged_seconds=ended)))

    def facts(self) -> dict[str, str]:
        """Return an empty dictionary, because this strategy has no facts."""
        return {}

    def may_change_state(self, pending: Pending) -> bool:
        """Return whether the save has ended. This is always true after `save` has returned."""
        return pending.poll() is not None

    def release(self) -> None:
        """Do nothing, because no save is running."""


class CompletedSave:
    """A save that has already completed."""

    def __init__(self, saved: RankSave) -> None:
        self._saved = saved

    def poll(self) -> RankSave:
        """Return the save's result."""
        return self._saved

    def wait(self) -> RankSave:
        """Return the save's result."""
        return self._saved

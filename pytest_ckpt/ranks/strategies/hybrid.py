"""Strategy ``hybrid``: the job stands still for a full save, and goes on while a delta is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.ranks.strategies.asynchronous import AsyncStrategy
from pytest_ckpt.ranks.strategies.sync import SyncStrategy

if TYPE_CHECKING:
    from pytest_ckpt.facts.targets import CheckpointRef
    from pytest_ckpt.ranks.engines.protocol import Engine
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.strategies.protocol import Pending
    from pytest_ckpt.targets.protocol import Store


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

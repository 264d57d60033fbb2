"""How a save in the background is begun that will be killed: with a copy of the state, or from a local tier."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pytest_ckpt.ranks.engines.protocol import staging
from pytest_ckpt.ranks.strategies.protocol import write_files
from pytest_ckpt.ranks.strategies.sync import SyncStrategy
from pytest_ckpt.ranks.strategies.tiered import Copies
from pytest_ckpt.ranks.training import change_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ckpt.facts.subject import OperationRef
    from pytest_ckpt.facts.targets import CheckpointRef
    from pytest_ckpt.ranks.engines.protocol import Clock, Engine
    from pytest_ckpt.ranks.operations import Operations
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.strategies.protocol import Saved
    from pytest_ckpt.targets.protocol import Store


class InBackground(Protocol):
    """A way to save in a process that is killed."""

    def before(self, ref: CheckpointRef, at: OperationRef) -> None:
        """Do, on all ranks together, what a job waits for before that process is there."""

    def begin(self, ref: CheckpointRef, store: Store, clock: Clock, group: Group) -> Callable[[], Saved]:
        """Do, in that process, what a job waits for; return what writes this rank's files to ``store``.

        ``group`` are the processes of all ranks.
        """

    def after(self, ref: CheckpointRef) -> None:
        """Clean up, on all ranks together, when that process is gone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ByCopy:
    """The state is copied, and changed while the copy is written.

    ``make(group)`` returns an engine that saves a copy, for one of the processes of a group.
    """

    make: Callable[[Group], Engine]

    def before(self, ref: CheckpointRef, at: OperationRef) -> None:
        """Nothing: each process has a state of its own."""

    def begin(self, ref: CheckpointRef, store: Store, clock: Clock, group: Group) -> Callable[[], Saved]:
        """Copy the state, and begin to change it."""
        engine = self.make(group)
        state = staging(engine)
        engine.fill(ref.number)
        state.stage()
        threading.Thread(target=change_all, args=(state.state(),), daemon=True).start()
        return lambda: write_files(engine, store, ref, clock)

    def after(self, ref: CheckpointRef) -> None:
        """Nothing is left of it."""


@dataclass(kw_only=True, slots=True)
class ByDrain:
    """The ranks save to the local tier, and the process drains it. ``make()`` returns an engine; ``do`` works there.

    ``attach()`` returns the local tier for another process.
    """

    group: Group
    activity: Activity
    do: Operations
    tier: Store
    make: Callable[[], Engine]
    attach: Callable[[], Store]
    _names: tuple[str, ...] = field(default=())

    def before(self, ref: CheckpointRef, at: OperationRef) -> None:
        """Save to the local tier."""
        engine = self.make()
        saves = SyncStrategy(engine=engine, store=self.tier, group=self.group, activity=self.activity)
        self.do.save(saves, ref.number, role="crash", at=at, stage="crashes")
        engine.release()
        self._names = self.do.own_names(ref.number)

    def begin(self, ref: CheckpointRef, store: Store, clock: Clock, group: Group) -> Callable[[], Saved]:
        """Return what drains this rank's files."""
        copies = Copies(store, self.attach())
        return lambda: copies.copy(ref, self._names, clock)

    def after(self, ref: CheckpointRef) -> None:
        """Delete the copy in the local tier."""
        self.do.delete(ref.number)

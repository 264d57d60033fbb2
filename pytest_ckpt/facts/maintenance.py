"""What a run saw when the storage was maintained beside saves and loads: changed while it served, and snapshotted."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ckpt.facts.commands import CommandRun, TriedOperation
from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.facts.proofs import Integrity

PAIRS = 6
"""Saves with a snapshot in their middle; before each there is one without."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Upgrade:
    """Saves and loads beside the one command that restarts or upgrades the storage; none is the subject's own.

    ``undisturbed`` are a save and a load before. ``operations`` took turns from the save in which the command was run,
    ``moment_seconds`` after it began, until the command had returned; the first that failed is the last. ``lost`` says
    why the newest committed checkpoint could not be loaded at the end. ``integrity`` counts every checkpoint that was
    loaded to compare it; ``resident_fraction`` is the largest share of one that a page cache held before, None where
    that could not be seen. ``failure`` is how the ranks ended where they did not come to the end; ``ran_after`` is the
    command where it ended, or was left, after the ranks.
    """

    command: str
    undisturbed: tuple[TriedOperation, ...] = ()
    moment_seconds: float = 0.0
    operations: tuple[TriedOperation, ...] = ()
    run: CommandRun | None = None
    lost: str = ""
    integrity: Integrity | None = None
    resident_fraction: float | None = None
    is_declared_cold: bool = False
    failure: Failure | None = None
    ran_after: CommandRun | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotTrial:
    """A save without a snapshot (``alone``), then one in which a snapshot was taken, ``moment_seconds`` into it.

    ``taken`` says where the clone is. ``is_before_commit``: the command had returned before the save was committed.
    ``is_committed``: the clone shows the save as committed. ``lost`` says why a checkpoint that is committed, in the
    clone or on the target, could not be loaded. ``not_judged`` says why the clone says nothing.
    """

    alone: TriedOperation
    beside: TriedOperation
    moment_seconds: float
    taken: CommandRun
    is_before_commit: bool = False
    is_committed: bool = False
    lost: str = ""
    not_judged: str = ""
    removed: CommandRun | None = None

    @property
    def cost(self) -> float:
        """How much longer the save with the snapshot took than the one without, as a fraction."""
        return self.beside.seconds / self.alone.seconds - 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshots:
    """Saves in which snapshots were taken; none is the subject's own.

    ``integrity`` counts every checkpoint that was loaded to compare it, from clones and from the target. ``not_run``
    says why there are fewer trials than there should be. ``failure`` is how the ranks ended where they did not come to
    the end; ``ran_after`` is the command that removed a snapshot when they were gone.
    """

    command: str
    remove_command: str
    trials: tuple[SnapshotTrial, ...] = ()
    integrity: Integrity | None = None
    not_run: str = ""
    failure: Failure | None = None
    ran_after: CommandRun | None = None

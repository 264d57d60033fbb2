"""What saves by strategies other than sync left: beside training, as chains of deltas, and to a local tier.

No model is trained: a stand-in for training goes on beside the saves.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Annotated, Literal

from pytest_ckpt.facts.bounds import Bounds, Count, NotNegative, Share
from pytest_ckpt.facts.proofs import Integrity

BACKGROUND = "background save"
"""The piece of work of a rank that writes while the job goes on: the lane that failures in it name."""


LOCAL_TIER = "local tier"
"""The piece of work of a rank that saves to its local tier: failures in it are none of the target."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepBatch:
    """Steps one after the other: how many, and the seconds of all."""

    steps: Count
    seconds: NotNegative


@dataclass(frozen=True, kw_only=True, slots=True)
class StepsOfSave:
    """Steps around one save, by rank 0's clock: each one before it and after it, and those beside it in batches.

    A step ends when all ranks have ended it.
    """

    checkpoint: Count
    before_seconds: tuple[NotNegative, ...]
    beside: tuple[StepBatch, ...]
    after_seconds: tuple[NotNegative, ...]

    @property
    def undisturbed_seconds(self) -> float:
        """The median of the steps before and after the save."""
        return statistics.median((*self.before_seconds, *self.after_seconds))

    @property
    def steps(self) -> int:
        """How many steps went on beside the save."""
        return sum(batch.steps for batch in self.beside)

    @property
    def extra_seconds(self) -> float:
        """By how much longer the steps beside the save took than as many alone; negative where they took less."""
        return sum(batch.seconds for batch in self.beside) - self.steps * self.undisturbed_seconds


Reached = Literal["copied", "written", "committed"]
"""What a save had reached when its processes were killed: the state was copied, all bytes were durable, it was one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kill:
    """The processes of all ranks were killed ``moment_seconds`` after the last had copied its state.

    ``reached``: what they had told until then; ``is_committed``: whether the checkpoint that they saved stands there.
    ``lost`` says what is wrong with the newest checkpoint that does; empty where it loaded whole. ``deletes_older``:
    the checkpoint before the newest committed one was deleted while the save went on.
    """

    moment_seconds: NotNegative
    reached: Reached
    is_committed: bool
    lost: str = ""
    deletes_older: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Crashes:
    """Saves of ``bytes`` in the background whose processes were killed, after one that nobody disturbed.

    ``usual_seconds`` is the shortest time from the copy to the commit that was seen. After every kill the newest
    checkpoint that is committed was loaded and compared. ``planned`` kills were to be made.
    """

    planned: Count
    bytes: Count
    usual_seconds: NotNegative
    kills: tuple[Kill, ...]
    integrity: Integrity


@dataclass(frozen=True, kw_only=True, slots=True)
class Preempted:
    """Jobs that were given notice: seconds from when rank 0 told it until a save that it began was committed.

    Where a save goes on in the background, one had just begun when the notice came. The saves were of ``bytes``.
    """

    bytes: Count
    committed_seconds: Annotated[tuple[NotNegative, ...], Bounds(min_length=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """A stand-in for training that went on beside every save: no model is trained.

    A step waits ``step_seconds`` less the share ``cpu_share``, as for an accelerator, and works for that share: it
    changes the state that is saved, in place. Then all ranks wait for each other.
    """

    step_seconds: NotNegative
    cpu_share: Share
    saves: tuple[StepsOfSave, ...]

    def of(self, checkpoint: int) -> StepsOfSave | None:
        """Return the steps around the save of a checkpoint."""
        return next((s for s in self.saves if s.checkpoint == checkpoint), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chains:
    """A full save and ``deltas`` behind it, loaded after ``deleted`` older checkpoints were deleted.

    The deleted ones had ``deleted_bytes`` of tensors; ``freed_bytes`` is by how much the volume's used space fell, None
    where the target does not tell. ``misses_deleted``: with one delta deleted, its file was no longer found by any
    rank.
    """

    deltas: Count
    deleted: Count
    deleted_bytes: Count
    freed_bytes: Annotated[int, Bounds(ge=-(10**18), le=10**18)] | None
    integrity: Integrity
    misses_deleted: bool


Tier = Literal["", "local", "target"]
"""Where a checkpoint is taken from; empty: no whole one was found."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DrainRule:
    """Every ``every``-th save is drained to the target; ``target_share`` of failures leave nothing but the target."""

    every: Count
    target_share: Share


@dataclass(frozen=True, kw_only=True, slots=True)
class TierRestore:
    """A restore of the newest checkpoint that is whole on all ranks: which it should be, and which it was.

    ``integrity`` is None where no checkpoint was taken, or another one than it should be: then none was loaded.
    """

    expected_tier: Literal["local", "target"]
    expected: Count
    tier: Tier
    number: Count
    seconds: NotNegative
    integrity: Integrity | None

    @property
    def is_right(self) -> bool:
        """Whether the checkpoint was taken that should be."""
        return (self.tier, self.number) == (self.expected_tier, self.expected)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeLoss:
    """Host ``lost`` lost all that its local tier held; copies that ``partner`` held came back, and all ranks loaded.

    ``copied_bytes`` of files went to partners over the network of the ranks when a checkpoint was saved, in
    ``copy_seconds``; ``returned_bytes`` came back in ``return_seconds``. ``missing`` are files whose copies were no
    longer there: then nothing was loaded, and ``integrity`` is None.
    """

    hosts: Count
    lost: str
    partner: str
    copied_bytes: Count
    copy_seconds: NotNegative
    returned_bytes: Count
    return_seconds: NotNegative
    load_seconds: NotNegative
    missing: Count
    integrity: Integrity | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Tiers:
    """Saves of ``bytes`` to the local tier, alone and beside a drain, in turns; seconds of these, and of the drains.

    Then two restores: ``complete``, when the newest checkpoint is in the local tier alone, and ``incomplete``, when
    the files of one rank are missing there. ``node_loss`` is None where the ranks are on one host.
    """

    bytes: Count
    undisturbed_seconds: tuple[NotNegative, ...]
    during_drain_seconds: tuple[NotNegative, ...]
    drain_seconds: tuple[NotNegative, ...]
    complete: TierRestore
    incomplete: TierRestore
    node_loss: NodeLoss | None = None

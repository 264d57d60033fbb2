"""The results of saves by strategies other than sync: during training, as chains of deltas, to a local tier.

No model is trained: simulated training steps run during the saves.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Annotated, Literal

from pytest_ckpt.facts.bounds import Bounds, Count, NotNegative, Share
from pytest_ckpt.facts.proofs import Integrity

BACKGROUND = "background save"
"""The lane (concurrent activity) of a rank that writes while the job continues. Failures in the background name it."""


LOCAL_TIER = "local tier"
"""The lane of a rank that saves to its local tier. A failure in this lane is not attributed to the target."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepBatch:
    """Consecutive steps during a save: their count, and their total seconds."""

    steps: Count
    seconds: NotNegative


@dataclass(frozen=True, kw_only=True, slots=True)
class StepsOfSave:
    """The training steps before, during and after one save, by rank 0's clock.

    A step ends when all ranks have ended it. Steps during the save (``during``) are summed in batches.
    """

    checkpoint: Count
    before_seconds: tuple[NotNegative, ...]
    during: tuple[StepBatch, ...]
    after_seconds: tuple[NotNegative, ...]

    @property
    def undisturbed_seconds(self) -> float:
        """The median time of the steps before and after the save."""
        return statistics.median((*self.before_seconds, *self.after_seconds))

    @property
    def steps(self) -> int:
        """The number of steps during the save."""
        return sum(batch.steps for batch in self.during)

    @property
    def extra_seconds(self) -> float:
        """The additional time of the steps during the save, compared with as many undisturbed steps.

        It is negative if the steps during the save were faster.
        """
        return sum(batch.seconds for batch in self.during) - self.steps * self.undisturbed_seconds


Reached = Literal["copied", "written", "committed"]
"""The last stage of a save before its processes were killed: state copied, all bytes durable, or committed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kill:
    """One kill of all ranks' processes, ``moment_seconds`` after the last rank had copied its state.

    ``reached`` is the last stage that the ranks reported. ``is_committed``: the checkpoint that the ranks were saving
    exists. ``lost`` describes what is wrong with the newest existing checkpoint; empty if it loaded completely.
    ``deletes_older``: the checkpoint before the newest committed one was deleted during the save.
    ``is_commit_withheld``: at the time of the kill, no rank had begun the commit.
    """

    moment_seconds: NotNegative
    reached: Reached
    is_committed: bool
    lost: str = ""
    deletes_older: bool = False
    is_commit_withheld: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Crashes:
    """Background saves of ``bytes`` whose processes were killed, after one undisturbed save.

    ``usual_seconds`` is the shortest observed time from the end of the copy to the commit. After every kill the newest
    committed checkpoint was loaded and compared. ``planned`` is the planned number of kills.
    """

    planned: Count
    bytes: Count
    usual_seconds: NotNegative
    kills: tuple[Kill, ...]
    integrity: Integrity


@dataclass(frozen=True, kw_only=True, slots=True)
class Preempted:
    """The seconds from a preemption notice on rank 0 to the commit of the next save, for each notice.

    If saves run in the background, a save had just begun when the notice came. Each save has ``bytes``.
    """

    bytes: Count
    committed_seconds: Annotated[tuple[NotNegative, ...], Bounds(min_length=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """Simulated training during every save: no model is trained.

    A step takes ``step_seconds``. During the share ``cpu_share`` of a step, the rank works and changes the saved state
    in place; during the rest it waits, as for an accelerator. At the end of a step, all ranks wait for each other.
    """

    step_seconds: NotNegative
    cpu_share: Share
    saves: tuple[StepsOfSave, ...]

    def of(self, checkpoint: int) -> StepsOfSave | None:
        """Return the steps around the save of this checkpoint."""
        return next((s for s in self.saves if s.checkpoint == checkpoint), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chains:
    """The load of a chain (a full save and ``deltas`` deltas) after ``deleted`` older checkpoints were deleted.

    The deleted checkpoints had ``deleted_bytes`` of tensors. ``freed_bytes`` is the decrease of the volume's used
    space; None if the target does not report it. After the load, a delta of the chain was deleted. ``misses_deleted``:
    no rank then found its file of this delta.
    """

    deltas: Count
    deleted: Count
    deleted_bytes: Count
    freed_bytes: Annotated[int, Bounds(ge=-(10**18), le=10**18)] | None
    integrity: Integrity
    misses_deleted: bool


Tier = Literal["", "local", "target"]
"""The tier from which a checkpoint was restored; empty: no complete checkpoint was found."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DrainRule:
    """Which saves are drained to the target: every ``every``-th save.

    ``target_share`` is the share of failures that destroy the local tier, so that only checkpoints on the target
    remain.
    """

    every: Count
    target_share: Share


@dataclass(frozen=True, kw_only=True, slots=True)
class TierRestore:
    """A restore of the newest checkpoint that is complete on all ranks.

    The checkpoint number ``expected`` in ``expected_tier`` should be restored; the checkpoint ``number`` in ``tier``
    was chosen. ``integrity`` is None if no checkpoint or an unexpected one was chosen; then nothing was loaded.
    """

    expected_tier: Literal["local", "target"]
    expected: Count
    tier: Tier
    number: Count
    seconds: NotNegative
    integrity: Integrity | None

    @property
    def is_right(self) -> bool:
        """Whether the restore loaded the expected checkpoint."""
        return (self.tier, self.number) == (self.expected_tier, self.expected)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeLoss:
    """The loss of the local tier of host ``lost``. Its ``partner`` returned the copies of the lost files, and all ranks
    loaded.

    During the save, ``copied_bytes`` were copied to partners over the ranks' network in ``copy_seconds``.
    ``returned_bytes`` were returned in ``return_seconds``. ``missing`` is the number of files whose copies no longer
    existed; if there are any, no checkpoint was loaded, and ``integrity`` is None.
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
    """The seconds of saves of ``bytes`` to the local tier, alternately undisturbed and during a drain; and the seconds
    of the drains.

    Two restores follow. Before ``complete``, the newest checkpoint is only in the local tier. Before ``incomplete``,
    the files of one rank are missing in the local tier. ``node_loss`` is None if the ranks are on one host.
    """

    bytes: Count
    undisturbed_seconds: tuple[NotNegative, ...]
    during_drain_seconds: tuple[NotNegative, ...]
    drain_seconds: tuple[NotNegative, ...]
    complete: TierRestore
    incomplete: TierRestore
    node_loss: NodeLoss | None = None

"""The results of all strategies except sync: saves during training, chains of deltas, saves to a local tier.

Training is simulated: steps run during saves, and no model is trained. A tier is a level of storage. Checkpoints are
saved to the local tier, and some are drained (copied) to the target.
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
    """The number (``steps``) and the total time of consecutive training steps during a save."""

    steps: Count
    seconds: NotNegative


@dataclass(frozen=True, kw_only=True, slots=True)
class StepsOfSave:
    """The training steps before, during and after one save, by rank 0's clock.

    A step is complete when all ranks have completed it. ``during`` contains the steps during the save, summed in
    batches.
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
        """The additional time of the steps during the save, compared with the same number of undisturbed steps.

        If the steps during the save were faster than undisturbed steps, the result is negative.
        """
        return sum(batch.seconds for batch in self.during) - self.steps * self.undisturbed_seconds


Reached = Literal["copied", "written", "committed"]
"""The last stage of a save before its processes were killed: state copied, all bytes durable, or committed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kill:
    """One kill of all ranks' processes during a background save.

    - ``moment_seconds``: the time from the moment when the last rank had copied its state to the kill.
    - ``reached``: the last stage that the ranks reported.
    - ``is_committed``: after the kill, the checkpoint of this save exists as a committed checkpoint.
    - ``lost``: the fault of the newest committed checkpoint; empty if this checkpoint loaded completely.
    - ``deletes_older``: during the save, the checkpoint before the newest committed one was deleted.
    - ``is_commit_withheld``: no rank had begun the commit at the time of the kill.
    """

    moment_seconds: NotNegative
    reached: Reached
    is_committed: bool
    lost: str = ""
    deletes_older: bool = False
    is_commit_withheld: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Crashes:
    """Background saves of ``bytes`` whose processes were killed.

    - ``planned``: the planned number of kills.
    - ``usual_seconds``: the shortest observed time from the end of the copy to the commit.
    - ``integrity``: the comparison of loaded with saved bytes. After every kill, the newest committed checkpoint was
      loaded.
    """

    planned: Count
    bytes: Count
    usual_seconds: NotNegative
    kills: tuple[Kill, ...]
    integrity: Integrity


@dataclass(frozen=True, kw_only=True, slots=True)
class Preempted:
    """The time from a preemption notice to the commit of the next save, for each notice.

    Rank 0 receives the notice. If saves run in the background, the notice comes when a save has just begun. A save has
    ``bytes``.
    """

    bytes: Count
    committed_seconds: Annotated[tuple[NotNegative, ...], Bounds(min_length=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """Simulated training around every save: no model is trained.

    A step takes ``step_seconds``. For the share ``cpu_share`` of a step, a rank computes and changes the saved state in
    place. For the rest of the step the rank waits, as a job waits for an accelerator. At the end of a step, all ranks
    wait for each other.
    """

    step_seconds: NotNegative
    cpu_share: Share
    saves: tuple[StepsOfSave, ...]

    def of(self, checkpoint: int) -> StepsOfSave | None:
        """Return the steps around the save of this checkpoint; None if unknown."""
        return next((s for s in self.saves if s.checkpoint == checkpoint), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chains:
    """The load of a chain (a full save and ``deltas`` deltas) after ``deleted`` older checkpoints were deleted.

    - ``deleted_bytes``: the size of the tensors in the deleted checkpoints.
    - ``freed_bytes``: the decrease of the volume's used space; None if the target does not report the used space.
    - ``misses_deleted``: a delta of the chain was deleted after the load. True if then every rank missed its file of
      this delta.
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
    """How many saves to the local tier are drained (copied) to the target: one of ``every`` saves.

    ``target_share`` is the share of failures that destroy the local tier. After such a failure, only the target has
    checkpoints.
    """

    every: Count
    target_share: Share


@dataclass(frozen=True, kw_only=True, slots=True)
class TierRestore:
    """A restore that chooses the newest checkpoint that is complete on all ranks.

    - ``expected``, ``expected_tier``: the number of the checkpoint that should be restored, and its tier.
    - ``number``, ``tier``: the number of the checkpoint that was chosen, and its tier.
    - ``integrity``: None if nothing was loaded, because no checkpoint or an unexpected checkpoint was chosen.
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
    """The loss of the local tier of the host ``lost``, and a restore from the copies on its ``partner``.

    - ``copied_bytes``, ``copy_seconds``: the copies to partners during the save, over the ranks' network.
    - ``returned_bytes``, ``return_seconds``: the copies that the partner returned.
    - ``load_seconds``: the load by all ranks after the return.
    - ``missing``: the number of lost files without a copy. If a copy was missing, nothing was loaded.
    - ``integrity``: the comparison of the loaded checkpoint; None if nothing was loaded.
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
    """The seconds of saves of ``bytes`` to the local tier, and of the drains of these saves to the target.

    Undisturbed saves alternate with saves during a drain. Two restores follow the saves:

    - ``complete``: the newest checkpoint is only in the local tier.
    - ``incomplete``: the files of one rank are missing in the local tier.

    ``node_loss`` is None if all ranks are on one host.
    """

    bytes: Count
    undisturbed_seconds: tuple[NotNegative, ...]
    during_drain_seconds: tuple[NotNegative, ...]
    drain_seconds: tuple[NotNegative, ...]
    complete: TierRestore
    incomplete: TierRestore
    node_loss: NodeLoss | None = None

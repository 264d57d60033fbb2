"""The table of save strategies: when a job may go on while a checkpoint is saved. One row a strategy. Pure.

The choices of ``--ckpt-strategy``, the memory that a run is planned with, what ranks import, which requirements judge
a save and the documentation come from these rows.

Every pytest run of an environment imports this module: NamedTuples, whose classes are made faster than dataclasses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pytest_ckpt.facts.subject import Subject


class StrategySpec(NamedTuple):
    """One strategy. ``help`` says in a few words what it does.

    ``make`` is "module:class", imported in the ranks alone (`pytest_ckpt.ranks.strategies.protocol.MakeStrategy`).
    ``blocks`` says whether the job stands still until a save is committed; where it does not, steps of a stand-in for
    training go on beside every save. ``stages`` says whether the state is copied before it is written: then a rank
    holds it twice, and an engine must be able to do so. ``saves_deltas``: between full saves it
    saves only what changed. ``tiers``: it saves to a local tier, and drains some saves from there to the target.
    ``compresses``: files pass a codec on their way, and content compresses as a training state does.
    """

    name: str
    help: str
    make: str
    blocks: bool = True
    stages: bool = False
    saves_deltas: bool = False
    tiers: bool = False
    compresses: bool = False

    def memory_bytes(self, state_bytes: int, shard_bytes: int) -> int:
        """Return what a rank needs for its state: that of its engine, or the state and a copy of it."""
        return max(state_bytes, shard_bytes) + shard_bytes if self.stages else state_bytes


STRATEGIES = (
    StrategySpec(
        name="sync",
        help="the job stands still until the checkpoint is committed",
        make="pytest_ckpt.ranks.strategies.sync:SyncStrategy",
    ),
    StrategySpec(
        name="async",
        help="the state is copied and the job goes on while the copy is written and committed",
        make="pytest_ckpt.ranks.strategies.asynchronous:AsyncStrategy",
        blocks=False,
        stages=True,
    ),
    StrategySpec(
        name="incremental",
        help="between full saves only the pages that changed are saved, and a restore reads the chain",
        make="pytest_ckpt.ranks.strategies.sync:SyncStrategy",
        saves_deltas=True,
    ),
    StrategySpec(
        name="hybrid",
        help="a full save as by sync, and between two of them deltas as by async",
        make="pytest_ckpt.ranks.strategies.asynchronous:HybridStrategy",
        blocks=False,
        stages=True,
        saves_deltas=True,
    ),
    StrategySpec(
        name="tiered",
        help="the job stands still for a save to a local tier, from where it is drained to the target meanwhile",
        make="pytest_ckpt.ranks.strategies.tiered:TieredStrategy",
        blocks=False,
        tiers=True,
    ),
    StrategySpec(
        name="compressed",
        help="the job stands still as for sync, and every file is compressed on its way to the storage",
        make="pytest_ckpt.ranks.strategies.sync:SyncStrategy",
        compresses=True,
    ),
)
"""The first is the default."""

STRATEGY_OF = {spec.name: spec for spec in STRATEGIES}


def strategy_of(subject: Subject) -> StrategySpec:
    """Return the strategy that a subject names."""
    return STRATEGY_OF[subject.strategy]

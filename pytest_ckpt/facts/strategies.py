"""The table of save strategies, one row per strategy: when a job may continue while a checkpoint is saved. Pure.

These rows define the choices of ``--ckpt-strategy``, the planned memory, the imports of ranks, the requirements on a
save, and the documentation.

If pytest-ckpt is installed, every pytest run imports this module. Rows are NamedTuples because Python creates these
classes faster than dataclasses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pytest_ckpt.facts.subject import Subject


class StrategySpec(NamedTuple):
    """One strategy.

    - ``make``: "module:class", imported only by the ranks (`pytest_ckpt.ranks.strategies.protocol.StrategyFactory`).
    - ``blocks``: the job waits until a save is committed. If False, simulated training steps run during every save.
    - ``stages``: the state is copied, and then the copy is written. A rank needs memory for two copies, and the engine
      must be able to save a copy.
    - ``own_process``: a process of the engine's library writes the copy. The engine must have such a process.
    - ``saves_deltas``: the saves between full saves contain only changed pages.
    - ``tiers``: the job saves to a local tier. Some saves are then drained (copied) to the target.
    - ``compresses``: a codec compresses the files. The content of the files is as compressible as a training state.
    """

    name: str
    help: str
    make: str
    blocks: bool = True
    stages: bool = False
    own_process: bool = False
    saves_deltas: bool = False
    tiers: bool = False
    compresses: bool = False

    def memory_bytes(self, state_bytes: int, shard_bytes: int) -> int:
        """Return the memory in bytes that a rank needs for its state.

        ``state_bytes`` is the engine's memory for the state, ``shard_bytes`` the size of the rank's tensors. If the
        strategy does not copy the state, the result is ``state_bytes``. If the strategy copies the state, the result is
        the larger of the two sizes, plus ``shard_bytes`` for the copy.
        """
        return max(state_bytes, shard_bytes) + shard_bytes if self.stages else state_bytes


STRATEGIES = (
    StrategySpec(
        name="sync",
        help="training waits until the checkpoint is committed",
        make="pytest_ckpt.ranks.strategies.sync:SyncStrategy",
    ),
    StrategySpec(
        name="async",
        help="the state is copied, and training continues while the copy is written and committed",
        make="pytest_ckpt.ranks.strategies.asynchronous:AsyncStrategy",
        blocks=False,
        stages=True,
    ),
    StrategySpec(
        name="async:process",
        help="as async, but a process of the engine's library writes the copy",
        make="pytest_ckpt.ranks.strategies.asynchronous:AsyncStrategy",
        blocks=False,
        stages=True,
        own_process=True,
    ),
    StrategySpec(
        name="incremental",
        help="between full saves only the pages that changed are saved, and a restore reads the chain",
        make="pytest_ckpt.ranks.strategies.sync:SyncStrategy",
        saves_deltas=True,
    ),
    StrategySpec(
        name="hybrid",
        help="full saves as with sync, and deltas between them as with async",
        make="pytest_ckpt.ranks.strategies.asynchronous:HybridStrategy",
        blocks=False,
        stages=True,
        saves_deltas=True,
    ),
    StrategySpec(
        name="tiered",
        help="the job is blocked during a save to a local tier; the save is then drained to the target in the "
        "background",
        make="pytest_ckpt.ranks.strategies.tiered:TieredStrategy",
        blocks=False,
        tiers=True,
    ),
    StrategySpec(
        name="compressed",
        help="training waits as for sync, and every file is compressed on its way to the storage",
        make="pytest_ckpt.ranks.strategies.sync:SyncStrategy",
        compresses=True,
    ),
)
"""All strategies; the first is the default."""

STRATEGY_OF = {spec.name: spec for spec in STRATEGIES}


def strategy_of(subject: Subject) -> StrategySpec:
    """Return the strategy of a subject."""
    return STRATEGY_OF[subject.strategy]

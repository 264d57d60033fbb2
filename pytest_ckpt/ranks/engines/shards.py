"""The files of several ranks, loaded by one rank: one shard after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ckpt.ranks.engines.protocol import Clock, Comparison, Loader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_ckpt.targets.protocol import CommittedCheckpoint


class ShardsInTurn:
    """Loads what each of ``makers`` makes a loader for; without any, this rank only waits for the others.

    A loader is made, outside the clock, when the one before has been compared and has let go of its memory.
    """

    def __init__(self, makers: Sequence[Callable[[], Loader]]) -> None:
        self._makers = makers
        self._loader: Loader | None = None
        # Every step of all shards: which shard it belongs to, and its number there.
        self._steps = [(shard, step) for shard in range(len(makers)) for step in range(self._turn_to(shard))]
        self._turn_to(0)
        self._done: int | None = None

    def load_steps(self) -> int:
        """Return the steps of all shards."""
        return len(self._steps)

    def load(self, committed: CommittedCheckpoint, step: int, clock: Clock) -> int:
        """Load what belongs to a step; a rank with fewer shards has nothing to do in the last ones."""
        self._done = step if step < len(self._steps) else None
        if self._done is None or self._loader is None:
            return 0
        return self._loader.load(committed, self._steps[step][1], clock)

    def verify(self, checkpoint: int) -> Comparison:
        """Compare what the last step brought, and have the next shard's loader ready."""
        if self._done is None or self._loader is None:
            return Comparison(bytes_checked=0, fault_count=0, faults=())
        check = self._loader.verify(checkpoint)
        following = (self._done + 1) % len(self._steps)
        if self._steps[following][0] != self._steps[self._done][0]:
            self._turn_to(self._steps[following][0])
        return check

    def release(self) -> None:
        """Give back all memory."""
        self._turn_to(len(self._makers))

    def _turn_to(self, shard: int) -> int:
        """Make the loader of a shard, in place of the one before; return its steps."""
        if self._loader is not None:
            self._loader.release()
        self._loader = None
        if shard >= len(self._makers):
            return 0
        self._loader = self._makers[shard]()
        return self._loader.load_steps()

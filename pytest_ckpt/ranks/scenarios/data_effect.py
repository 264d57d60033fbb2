"""Saves and loads of unique and of constant data in turns: does content change the storage's speed?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.facts.measurement import DataEffect, Operation

if TYPE_CHECKING:
    from pytest_ckpt.ranks.operations import Loaded, Operations
    from pytest_ckpt.ranks.process.host_cache import Files, HostCache
    from pytest_ckpt.ranks.strategies.protocol import Strategy


@dataclass(frozen=True, kw_only=True, slots=True)
class DataInTurns:
    """Measures pairs, each of a checkpoint that is none of the subject's own, saved under ``number``.

    ``strategy`` makes what saves, of constant data where it is told so; ``drop`` empties the caches of files.
    """

    do: Operations
    cache: HostCache
    number: int
    strategy: Callable[[bool], Strategy]
    drop: Callable[[Sequence[Files]], None]

    def measure(self, pairs: int) -> DataEffect | None:
        """Return what came of all pairs; rank 0 knows it."""
        seconds: dict[tuple[str, bool], list[float]] = {}
        fault_count = steps = 0
        for pair in range(pairs):
            # Who goes first takes turns, so that a drift of the storage favours neither.
            for constant in (bool(pair % 2), not pair % 2):
                saved, loaded = self._save_and_load(constant=constant)
                for operation in filter(None, (saved, loaded.operation)):
                    steps += 1
                    self.do.step("data", steps, operation.seconds)
                fault_count += loaded.fault_count
                if saved and loaded.operation:
                    seconds.setdefault(("save", constant), []).append(saved.seconds)
                    seconds.setdefault(("load", constant), []).append(loaded.operation.seconds)
        if not seconds:
            return None
        return DataEffect(
            unique_save_seconds=tuple(seconds["save", False]),
            constant_save_seconds=tuple(seconds["save", True]),
            unique_load_seconds=tuple(seconds["load", False]),
            constant_load_seconds=tuple(seconds["load", True]),
            fault_count=fault_count,
        )

    def _save_and_load(self, *, constant: bool) -> tuple[Operation | None, Loaded]:
        do, strategy = self.do, self.strategy(constant)
        saved = do.save(strategy, self.number, role="data")
        strategy.release()
        strategy.engine.release()
        self.drop([do.files(self.number)])
        loaded = do.load(strategy.engine, self.cache, self.number, self.number, counted=False)
        strategy.engine.release()
        do.delete(self.number)
        return saved, loaded

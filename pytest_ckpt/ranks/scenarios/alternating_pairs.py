"""Saves and loads one checkpoint in two ways, in turns, so that drift of the storage affects both ways equally.

For example, one way saves unique data, and the other way saves constant data. The times then show whether the content
affects the storage's speed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_ckpt.facts.measurement import DataEffect
from pytest_ckpt.ranks.process.job import OF_DATA

if TYPE_CHECKING:
    from pytest_ckpt.facts.measurement import OperationKind
    from pytest_ckpt.facts.subject import StepKind
    from pytest_ckpt.facts.targets import Role
    from pytest_ckpt.ranks.engines.protocol import Engine
    from pytest_ckpt.ranks.operations import Operations
    from pytest_ckpt.ranks.process.host_cache import Files, HostCache
    from pytest_ckpt.ranks.scenarios.context import ScenarioContext
    from pytest_ckpt.ranks.strategies.protocol import Strategy


@dataclass(kw_only=True, slots=True)
class PairTimes:
    """The results of saves and loads in two ways.

    ``seconds`` is {(kind of operation, whether this is the second way): durations in seconds}. ``fault_count`` is the
    number of faults in all loads.
    """

    seconds: dict[tuple[OperationKind, bool], tuple[float, ...]] = field(default_factory=dict)
    fault_count: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class AlternatingPairs:
    """Saves, loads and deletes an extra checkpoint in two ways, in turns. The checkpoint has number ``number``.

    ``strategy`` creates a strategy. Its argument is True for the second way, and False for the first way. ``drop``
    removes files from the caches. ``looked_at`` is called with the engine and the kind of operation after every save
    and load.
    """

    do: Operations
    cache: HostCache
    number: int
    role: Role
    kind: StepKind
    strategy: Callable[[bool], Strategy]
    drop: Callable[[Sequence[Files]], None]
    looked_at: Callable[[Engine, OperationKind], None] = lambda _engine, _kind: None

    def measure(self, pairs: int) -> PairTimes:
        """Save and load ``pairs`` times in each way. Return the results; only rank 0 has the times."""
        timed, steps = PairTimes(), 0
        for pair in range(pairs):
            # Pairs alternate in which way comes first.
            for second in (bool(pair % 2), not pair % 2):
                for kind, seconds in self._save_and_load(timed, second=second):
                    steps += 1
                    self.do.step(self.kind, steps, seconds)
                    timed.seconds[kind, second] = (*timed.seconds.get((kind, second), ()), seconds)
        return timed

    def _save_and_load(self, timed: PairTimes, *, second: bool) -> list[tuple[OperationKind, float]]:
        do, strategy = self.do, self.strategy(second)
        engine = strategy.engine
        saved = do.save(strategy, self.number, role=self.role)
        self.looked_at(engine, "save")
        strategy.release()
        engine.release()
        self.drop([do.files(self.number)])
        loaded = do.load(engine, self.cache, self.number, self.number, counted=False)
        self.looked_at(engine, "load")
        engine.release()
        do.delete(self.number)
        timed.fault_count += loaded.fault_count
        return [(o.kind, o.seconds) for o in (saved, loaded.operation) if o]


def measure_data(turns: AlternatingPairs, pairs: int) -> DataEffect | None:
    """Save and load unique data and constant data, ``pairs`` times each.

    Return both results on rank 0, and None elsewhere. ``turns`` must save constant data in the second way.
    """
    timed = turns.measure(pairs)
    seconds = timed.seconds
    if not seconds:
        return None
    return DataEffect(
        unique_save_seconds=seconds["save", False],
        constant_save_seconds=seconds["save", True],
        unique_load_seconds=seconds["load", False],
        constant_load_seconds=seconds["load", True],
        fault_count=timed.fault_count,
    )


def measure_data_of(at: ScenarioContext) -> None:
    """Compare saves and loads of unique data with those of constant data, and store the results in the context."""
    turns = AlternatingPairs(
        do=at.do,
        cache=at.cache,
        number=at.task.operations + OF_DATA,
        role="data",
        kind="data",
        strategy=lambda constant: at.strategy(constant=constant),
        drop=at.drop_own,
    )
    at.found.data = measure_data(turns, at.task.data_pairs)

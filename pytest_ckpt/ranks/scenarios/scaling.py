"""Scaling: 1, 2, 4 … clients perform the same saves and loads. Measurements of different numbers alternate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_ckpt.facts.events import PatternMeasured
from pytest_ckpt.facts.measurement import ClientCount, ScaledOperation, Scaling
from pytest_ckpt.facts.proofs import Fault, Integrity
from pytest_ckpt.ranks.engines.factory import ShardsInTurn
from pytest_ckpt.sizing.patterns import PATTERNS, TURNS_OF_A_COUNT, client_counts, clients_of
from pytest_ckpt.sizing.record import MAXIMUM_FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_ckpt.ranks.operations import Operations
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.host_cache import Files, HostCache
    from pytest_ckpt.ranks.process.job import Task
    from pytest_ckpt.ranks.scenarios.context import ScenarioContext
    from pytest_ckpt.ranks.strategies.protocol import Strategy

_ONE_CLIENT = "With one client no growth can be measured; two hosts, or two ranks on one host, are needed."
_TOGETHER = "The ranks of this engine save and load together: a rank cannot be left out."


@dataclass(slots=True)
class _CountResults:
    """The results so far for one count of clients. Only rank 0 has results."""

    ranks: int
    bytes: int = 0
    saves: list[ScaledOperation] = field(default_factory=list)
    loads: list[ScaledOperation] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingScenario:
    """Saves, loads and deletes checkpoints with some of the ranks while the other ranks wait.

    ``drop`` drops the cached data of the files that this rank will read next.
    """

    group: Group
    do: Operations
    cache: HostCache
    strategy: Callable[[], Strategy]
    task: Task
    drop: Callable[[Sequence[Files]], None]

    def measure(self) -> None:
        """Save and load with each count of clients, `TURNS_OF_A_COUNT` times. Rank 0 reports the results."""
        unit, clients = clients_of(self.group.share(self.group.gather(self.group.host)))
        counts = client_counts(max(clients) + 1)
        if self.task.is_collective or len(counts) < 2:
            reason = _TOGETHER if self.task.is_collective else _ONE_CLIENT
            self.do.send(PatternMeasured(subject=self.do.subject, name="scaling", not_run=reason))
            return
        strategy = self.strategy()
        results = {count: _CountResults(sum(client < count for client in clients)) for count in counts}
        checked, expected, fault_count, index = 0, 0, 0, 0
        faults: list[Fault] = []
        for turn in range(TURNS_OF_A_COUNT):
            # Counts increase and then decrease, so that gradual changes affect every count equally.
            for count in counts if turn % 2 == 0 else reversed(counts):
                index += 1
                integrity = self._one(strategy, index, results[count], is_saving_rank=clients[self.group.rank] < count)
                checked, expected = checked + integrity.bytes_checked, expected + integrity.bytes_expected
                fault_count += integrity.fault_count
                faults = (faults + list(integrity.faults))[:MAXIMUM_FAULTS]
        strategy.release()
        strategy.engine.release()
        result = Scaling(
            unit=unit,
            counts=tuple(
                ClientCount(clients=count, ranks=of.ranks, bytes=of.bytes, saves=tuple(of.saves), loads=tuple(of.loads))
                for count, of in results.items()
            ),
            integrity=Integrity(
                bytes_expected=expected, bytes_checked=checked, fault_count=fault_count, faults=tuple(faults)
            ),
        )
        self.do.send(PatternMeasured(subject=self.do.subject, name="scaling", found=result))

    def _one(self, strategy: Strategy, index: int, of: _CountResults, *, is_saving_rank: bool) -> Integrity:
        """Save, load and delete one checkpoint, and add its times to ``of``. Return the comparison of the loaded data.

        Only rank 0 has the complete result.
        """
        do, number = self.do, self.task.operations + PATTERNS["scaling"].first + index
        at = do.one("scaling", "save", index)
        saved = do.save(strategy, number, role="scaling", at=at, is_saving_rank=is_saving_rank)
        if saved:
            of.bytes = saved.bytes
            of.saves.append(ScaledOperation(seconds=saved.seconds))
            do.step("scaling", 2 * index - 1, saved.seconds)
        self.drop([do.files(number)] if is_saving_rank else [])
        loader = strategy.engine if is_saving_rank else ShardsInTurn([])
        loaded = do.load(loader, self.cache, index, number, counted=False, scenario="scaling")
        if loaded.operation:
            of.loads.append(
                ScaledOperation(
                    seconds=loaded.operation.seconds,
                    resident_bytes=loaded.operation.resident_bytes,
                    mapped_bytes=loaded.operation.mapped_bytes,
                )
            )
            do.step("scaling", 2 * index, loaded.operation.seconds)
        with do.stage("remove", at.at("remove")):
            if is_saving_rank:
                do.delete_files_of_rank(number)
            do.finish_delete([number])
        return loaded.integrity(of.bytes)


def measure(at: ScenarioContext) -> None:
    """Run this scenario for a subject."""
    ScalingScenario(
        group=at.group,
        do=at.do,
        cache=at.cache,
        strategy=lambda: at.strategy(aside="scaling"),
        task=at.task,
        drop=at.drop,
    ).measure()

"""Resharded loads: loads in which ranks do not simply load their own files.

Four cases are measured: all replicas load concurrently, ranks of another host load, fewer readers load, or more readers
load.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pytest_ckpt.facts.events import PatternMeasured
from pytest_ckpt.facts.measurement import LoadPattern, Operation
from pytest_ckpt.facts.proofs import Fault, Integrity
from pytest_ckpt.ranks.engines.factory import ShardsInTurn
from pytest_ckpt.ranks.process.job import EngineOptions
from pytest_ckpt.sizing.patterns import LOADS_OF_A_PATTERN
from pytest_ckpt.sizing.reading import Reading, joined, restart_reads, shifted, split, storm
from pytest_ckpt.sizing.record import MAXIMUM_FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pytest_ckpt.facts.measurement import RestartReads
    from pytest_ckpt.facts.subject import Scenario
    from pytest_ckpt.ranks.engines.protocol import Loader
    from pytest_ckpt.ranks.operations import Operations
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.host_cache import Files, HostCache
    from pytest_ckpt.ranks.scenarios.context import ScenarioContext
    from pytest_ckpt.sizing.models import Layout, RankLayout


_TOGETHER = "The ranks of this engine load together, each only its own files: they cannot load files of other ranks."


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadPatterns:
    """Measures all kinds of resharded loads. Rank 0 reports the result of each kind as soon as it is measured.

    ``loader`` creates a loader for any shard. It is None if the engine's ranks can only load together, each rank its
    own files. ``drop`` drops the cached data of the files that this rank will read next.
    """

    group: Group
    do: Operations
    cache: HostCache
    layout: Layout
    options: EngineOptions
    loader: Callable[[RankLayout, EngineOptions], Loader] | None
    drop: Callable[[Sequence[Files]], None]

    def measure(self, checkpoint: int) -> None:
        """Load ``checkpoint`` in every kind of resharded load, `LOADS_OF_A_PATTERN` times each, without cached data."""
        hosts = self.group.share(self.group.gather(self.group.host))
        for reading in (storm(self.layout), shifted(self.layout, hosts), joined(self.layout), split(self.layout)):
            if reading.not_run or self.loader is None:
                reason = reading.not_run or _TOGETHER
                self.do.send(PatternMeasured(subject=self.do.subject, name=reading.name, not_run=reason))
            else:
                self._measure(reading, checkpoint, self.loader)

    def _measure(self, reading: Reading, checkpoint: int, load: Callable[[RankLayout, EngineOptions], Loader]) -> None:
        mine = reading.of(self.group.rank)
        options = [replace(self.options, part=piece.part, parts=piece.parts) for piece in mine]
        makers = [partial(load, piece.shard, of) for piece, of in zip(mine, options, strict=True)]
        names = self.do.names_of_loads(piece.shard for piece in mine)
        with self.do.stage("content", self.do.all("content", reading.name)):
            loader = ShardsInTurn(makers)
        pattern = repeated_loads(
            loader,
            do=self.do,
            cache=self.cache,
            checkpoint=checkpoint,
            scenario=reading.name,
            names=names,
            drop=self.drop,
            reads=reading.description,
            bytes_each=reading.bytes,
            restart=restart_reads(self.layout, reading.copies) if reading.name == "storm" else None,
        )
        self.do.send(PatternMeasured(subject=self.do.subject, name=reading.name, found=pattern))


def repeated_loads(
    loader: Loader,
    *,
    do: Operations,
    cache: HostCache,
    checkpoint: int,
    scenario: Scenario,
    names: Collection[str],
    drop: Callable[[Sequence[Files]], None],
    reads: str,
    bytes_each: int,
    restart: RestartReads | None = None,
) -> LoadPattern:
    """Load a checkpoint `LOADS_OF_A_PATTERN` times without cached data, then free the loader. Return the results.

    Only rank 0 has the complete results. ``names`` are the files that this rank reads. ``drop`` drops the cached data
    of these files. In each load, all ranks together read ``bytes_each`` bytes of tensors. ``reads`` describes the
    files that each rank reads, for the report.
    """
    operations: list[Operation] = []
    checked, fault_count = 0, 0
    faults: list[Fault] = []
    rank_bytes: tuple[int, ...] = ()
    for number in range(1, LOADS_OF_A_PATTERN + 1):
        drop([do.files(checkpoint, names)])
        loaded = do.load(loader, cache, number, checkpoint, counted=False, scenario=scenario, names=names)
        checked, fault_count = checked + loaded.bytes_checked, fault_count + loaded.fault_count
        faults = (faults + loaded.faults)[:MAXIMUM_FAULTS]
        if loaded.operation:
            operations.append(loaded.operation)
            do.step(scenario, number, loaded.operation.seconds)
            rank_bytes = loaded.rank_bytes
    loader.release()
    return LoadPattern(
        reads=reads,
        rank_bytes=rank_bytes,
        operations=tuple(operations),
        integrity=Integrity(
            bytes_expected=bytes_each * LOADS_OF_A_PATTERN,
            bytes_checked=checked,
            fault_count=fault_count,
            faults=tuple(faults),
        ),
        restart=restart,
    )


def measure(at: ScenarioContext) -> None:
    """Run this scenario for a subject."""
    LoadPatterns(
        group=at.group,
        do=at.do,
        cache=at.cache,
        layout=at.layout,
        options=at.options,
        loader=None if at.task.is_collective else at.loader,
        drop=at.drop,
    ).measure(at.own.newest_full)

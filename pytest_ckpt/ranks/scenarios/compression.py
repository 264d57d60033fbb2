"""Compares saves and loads of the same content without and with compression, in turns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ckpt.facts.compression import PAIRS, Compression
from pytest_ckpt.facts.events import PatternMeasured
from pytest_ckpt.ranks.content import AS_NUMBERS
from pytest_ckpt.ranks.engines.compressed import CompressedEngine
from pytest_ckpt.ranks.scenarios.alternating_pairs import AlternatingPairs
from pytest_ckpt.sizing.patterns import PATTERNS

if TYPE_CHECKING:
    from pytest_ckpt.facts.measurement import OperationKind
    from pytest_ckpt.ranks.engines.protocol import Engine
    from pytest_ckpt.ranks.operations import Operations
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import Task
    from pytest_ckpt.ranks.scenarios.context import ScenarioContext


class _Counts:
    """The size of all ranks' files after compression, and the codec's CPU time in each save and load.

    The CPU time is the longest time of a rank. Only rank 0 has the values.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._seconds_before = 0.0
        self.stored_bytes = 0
        self.seconds: dict[OperationKind, tuple[float, ...]] = {"save": (), "load": ()}

    def record(self, engine: Engine, kind: OperationKind) -> None:
        """If ``engine`` compresses, add the values of its last save or load."""
        if not isinstance(engine, CompressedEngine):
            return
        before = 0.0 if kind == "save" else self._seconds_before
        self._seconds_before = engine.codec_seconds
        values = self._group.gather((engine.codec_seconds - before, engine.stored_bytes))
        if values:
            self.seconds[kind] = (*self.seconds[kind], max(seconds for seconds, _ in values))
            self.stored_bytes = sum(stored for _, stored in values)


def measure_compression(group: Group, do: Operations, task: Task, turns: AlternatingPairs, *, whole_bytes: int) -> None:
    """Save and load in pairs, without and with compression, and report the results.

    ``turns`` must compress in the second way. ``whole_bytes`` is the size of a checkpoint before compression.
    """
    counts = _Counts(group)
    timed = replace(turns, looked_at=counts.record).measure(PAIRS)
    seconds = timed.seconds
    if not seconds:
        return
    found = Compression(
        codec=task.codec,
        content=AS_NUMBERS,
        bytes=whole_bytes,
        stored_bytes=counts.stored_bytes,
        plain_save_seconds=seconds["save", False],
        compressed_save_seconds=seconds["save", True],
        plain_load_seconds=seconds["load", False],
        compressed_load_seconds=seconds["load", True],
        save_codec_seconds=counts.seconds["save"],
        load_codec_seconds=counts.seconds["load"],
        fault_count=timed.fault_count,
    )
    do.send(PatternMeasured(subject=task.subject, name="compression", found=found))


def measure(at: ScenarioContext) -> None:
    """Run this scenario for a subject."""
    turns = AlternatingPairs(
        do=at.do,
        cache=at.cache,
        number=at.task.operations + PATTERNS["compression"].first,
        role="compression",
        kind="compression",
        strategy=lambda compressed: at.strategy(aside="compression", plain=not compressed),
        drop=at.drop_own,
    )
    measure_compression(at.group, at.do, at.task, turns, whole_bytes=at.layout.bytes)

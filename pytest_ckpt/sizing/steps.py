"""The steps of a run in their order, counted in advance for the progress display and for ``pytest-ckpt plan``.

All functions are pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.analysis.statistics import MAXIMUM_ROUNDS, WINDOW_ROUNDS
from pytest_ckpt.facts.commands import BREAKS, PAIRS
from pytest_ckpt.sizing.many_names import REMOVALS
from pytest_ckpt.sizing.near_full import LEVELS
from pytest_ckpt.sizing.pacing import PacedSaves
from pytest_ckpt.sizing.patterns import (
    LOADS_OF_A_PATTERN,
    PATTERNS,
    TURNS,
    TURNS_OF_A_COUNT,
    Amount,
    resizes,
)
from pytest_ckpt.support.units import counted, format_rate, format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.engines import EngineSpec
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.facts.strategies import StrategySpec
    from pytest_ckpt.facts.subject import StepKind, Subject
    from pytest_ckpt.facts.targets import TargetFacts
    from pytest_ckpt.sizing.many_names import ManyNames
    from pytest_ckpt.sizing.plan import PlannedCheckpoint

_LABELS = {
    "retention": "save during a deletion",
    "data": "save or load of unique or constant data",
    **{row.name: row.label for row in PATTERNS.values()},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """All steps of one kind in the measurement of a subject, such as the loads of one pattern.

    A pattern is an additional measurement. ``bytes_each`` are the bytes of each step. ``limit_seconds`` is the total
    time if each step just meets its limit. ``turn_seconds`` is the fixed duration of a step; None if the storage
    determines it. ``parts`` is the maximum number of saves in a step. For example, endurance without a duration is one
    step of several saves.
    """

    subject: Subject
    kind: StepKind
    count: int
    bytes_each: int
    limit_seconds: float
    turn_seconds: float | None = None
    parts: int = 1

    @property
    def is_maximum(self) -> bool:
        """Whether a step may move fewer bytes than planned, because a step of several saves may end early."""
        return self.parts > 1

    def label(self, index: int) -> str:
        """Return the name of a step for people: ``llama3-8b-full storm load 2 of 3``."""
        what = f"{self.subject} {_LABELS.get(self.kind, self.kind)}"
        return what if self.count == 1 else f"{what} {index} of {self.count}"


def planned_steps(planned: PlannedCheckpoint, settings: Settings, target: TargetFacts | None) -> Sequence[Steps]:
    """Return the steps in the measurement of a subject, in the order of their execution."""
    size, demand, count = planned.layout.bytes, planned.demand, planned.operations
    save, load = demand.save_limit_seconds, demand.load_limit_seconds
    found = [("save", Amount(count, planned.saved_bytes // count, save))]
    if 0 < settings.keep_last <= count:
        found.append(("retention", Amount(1, size, save)))
    found.append(("load", Amount(count, planned.loaded_bytes // count, load)))
    if settings.data_pairs and not planned.strategy.compresses:
        found.append(("data", Amount(4 * settings.data_pairs, size, (save + load) / 2)))
    for row in PATTERNS.values():
        if row.is_requested(planned, settings) and (amount := row.amount(planned, settings, target)):
            found.append((row.name, amount))
    return [
        Steps(
            subject=planned.subject,
            kind=kind,
            count=amount.number,
            bytes_each=amount.bytes_each,
            limit_seconds=amount.number * amount.each_seconds,
            turn_seconds=amount.turn_seconds,
            parts=amount.parts,
        )
        for kind, amount in found
    ]


def scenarios(
    settings: Settings,
    pace: PacedSaves | None,
    names: ManyNames | None,
    engine: EngineSpec,
    strategy: StrategySpec,
) -> tuple[str, ...]:
    """Return a sentence on each measurement of a subject in addition to its own saves and loads.

    ``pace`` is the pace of saves during other work. ``names`` are the empty files of the suite metadata. If
    ``pace`` or ``names`` is None, the measurements that need it are left out.
    """
    listed = []
    if pace and not engine.is_collective:
        listed.append("12 loads by other ranks than the writers")
    if pace:
        listed.append(_paced(pace, settings))
    if resizes(engine, strategy, settings):
        listed.append(
            f"one save, then {LOADS_OF_A_PATTERN} loads by twice as many ranks and {LOADS_OF_A_PATTERN} by half as "
            "many, in separate launches"
        )
    if settings.includes_serving:
        listed.append("cold and warm loads of only the weights by replicas, by reads and mapped; one copy of them")
    if settings.includes_scaling:
        listed.append(f"{TURNS_OF_A_COUNT} saves and loads by each of 1, 2, 4 … of the clients, in turns")
    if settings.includes_endurance:
        seconds = settings.duration_seconds
        listed.append(
            f"saves for {format_seconds(seconds)}" if seconds else f"{WINDOW_ROUNDS} to {MAXIMUM_ROUNDS} saves"
        )
    if names:
        listed.append(
            f"{counted(names.files, 'empty file')} in {counted(names.directories, 'directory', 'directories')}: "
            f"created, looked up, listed and removed; {REMOVALS} removals of a directory with "
            f"{counted(names.checkpoint_files, 'file')}"
        )
    if settings.includes_failover:
        saves, loads = BREAKS.count("save"), BREAKS.count("load")
        # One of each without a fault; a save after each fault; a load of every saved checkpoint.
        listed.append(
            f"at least {1 + saves + len(BREAKS)} saves and {1 + len(BREAKS) + saves + loads} loads after everything "
            f"else, with something broken in {saves} saves and {loads} loads"
        )
    if settings.includes_snapshots:
        listed.append(
            f"{2 * PAIRS} saves after everything else, with a snapshot in {PAIRS} of them, and {3 * PAIRS} loads"
        )
    if settings.includes_upgrade:
        listed.append(
            "saves and loads in turns after everything else, until the command of --ckpt-actions [upgrade] "
            "command has returned"
        )
    if settings.includes_endurance and settings.near_full:
        listed.append(
            f"15 saves while ballast fills the volume to {LEVELS[0]:.0%} and {LEVELS[1]:.0%}: that much is written"
        )
    return tuple(listed)


def _paced(pace: PacedSaves, settings: Settings) -> str:
    """Return a sentence on the paced saves during other work. If they are not run, the sentence states the reason."""
    if pace.not_run:
        return f"no saves during other work (NEIGHBOUR, MIXED): {pace.not_run}"
    return (
        f"{TURNS} saves of half of the ranks while the other half saves, paced to {format_seconds(pace.seconds)} each, "
        f"and {TURNS} turns of {format_seconds(pace.turn_seconds)} in which each host reads samples at "
        f"{format_rate(settings.loader_bytes_per_second)}, {TURNS // 2} of them during paced saves: about "
        f"{format_seconds(TURNS * (pace.seconds + pace.turn_seconds))} in total"
    )

"""The table of patterns: measurements in addition to a subject's own saves and loads. Pure functions.

A subject is a model with mode, engine and strategy. The rows of the table define the plan, the progress of a run and
the tasks of ranks. `--ckpt-resume` and the names of removable files also depend on the rows. The name of a row is the
field of `facts.measurement.Patterns` that contains the record of the pattern. A requirement names this field as a
parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from pytest_ckpt.analysis.statistics import MAXIMUM_ROUNDS
from pytest_ckpt.facts.commands import BREAKS, PAIRS
from pytest_ckpt.facts.compression import PAIRS as CODEC_PAIRS
from pytest_ckpt.sizing.deltas import OF_CHAIN
from pytest_ckpt.sizing.many_names import REMOVALS, STEPS
from pytest_ckpt.sizing.near_full import LEVELS, Volume, ballast_name
from pytest_ckpt.sizing.reading import storm, weights_of
from pytest_ckpt.sizing.resharding import SIZES, ranks_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ckpt.facts.engines import EngineSpec
    from pytest_ckpt.facts.measurement import ClientUnit
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.facts.strategies import StrategySpec
    from pytest_ckpt.facts.subject import Pattern
    from pytest_ckpt.facts.targets import TargetFacts
    from pytest_ckpt.sizing.plan import PlannedCheckpoint

LOADS_OF_A_PATTERN = 3
"""The number of loads of each restore pattern, and of each number of ranks."""

TURNS = 6
"""The number of saves of the two jobs together, and of turns of a data loader.

Each job makes half of the saves; half of the turns run during saves.
"""
SAVES_OF_A_LEVEL = 5
KILLS = 60
"""The number of background saves that are killed, at the full effort of a profile."""

NOTICES = 3
"""The number of preemption notices, each followed by a save."""

LOADS_OF_A_WAY = 2
"""The number of loads of only the weights for each I/O mode: one uncached, one repeated immediately."""

TURNS_OF_A_COUNT = 3
"""The number of saves, and of loads, for each client count.

The counts take turns, so that drift of the storage affects all counts equally.
"""


class Amount(NamedTuple):
    """The number of steps of a pattern, with the bytes and the limit in seconds of each step.

    ``turn_seconds`` is the fixed duration of a step; None if the storage determines it. ``parts`` is the maximum number
    of saves in one step.
    """

    number: int
    bytes_each: int
    each_seconds: float
    turn_seconds: float | None = None
    parts: int = 1


class PatternRow(NamedTuple):
    """One pattern (additional measurement) in the table of patterns.

    ``label`` names one step of the pattern. ``scenario`` names a function that takes a `ScenarioContext`, as
    ``module:name``; only ranks import this function. Patterns that are measured together name the same function. With
    ``has_own_launch``, ``scenario`` is a class with the parameters of `RunWithCommands`, for a separate launch.

    ``is_requested`` returns whether the planned checkpoint and the settings require the pattern. ``amount`` returns the
    number and size of the pattern's steps; None if the run's ranks cannot measure the pattern. ``first`` plus the
    number of the subject's own saves is the number of the pattern's first checkpoint. With ``lasts``, the pattern takes
    hours or much space, so it runs after all other patterns. ``names`` are files that only the pattern's checkpoints
    contain. ``other_files`` are files that the pattern writes outside of checkpoints.
    """

    name: Pattern
    label: str
    scenario: str
    is_requested: Callable[[PlannedCheckpoint, Settings], bool]
    amount: Callable[[PlannedCheckpoint, Settings, TargetFacts | None], Amount | None]
    first: int = 0
    lasts: bool = False
    has_own_launch: bool = False
    names: Callable[[PlannedCheckpoint], Collection[str]] = lambda planned: ()
    other_files: Callable[[PlannedCheckpoint], Collection[str]] = lambda planned: ()


def kills_of(strategy: StrategySpec, settings: Settings) -> int:
    """Return the number of background saves of a strategy that the run kills.

    The result is 0 if saves of the strategy block the job. It is also 0 if the suite strategies is not part of the run.
    """
    return 0 if strategy.blocks or not settings.includes_strategies else max(1, round(KILLS * settings.effort))


def serves(planned: PlannedCheckpoint, settings: Settings) -> bool:
    """Return whether the run also measures weights-only loads of a subject; false if the subject has deltas."""
    return settings.includes_serving and planned.deltas is None


def saves_complete_checkpoints(strategy: StrategySpec) -> bool:
    """Return whether a job waits for each save, and each save contains the complete, uncompressed checkpoint.

    Only for such a strategy, the storage alone determines how rates grow with the number of clients.
    """
    return strategy.blocks and not strategy.saves_deltas and not strategy.compresses


def scales(planned: PlannedCheckpoint, settings: Settings) -> bool:
    """Return whether a run measures increasing client counts for a subject (see `saves_complete_checkpoints`)."""
    return settings.includes_scaling and saves_complete_checkpoints(planned.strategy)


def client_counts(clients: int) -> tuple[int, ...]:
    """Return the client counts to measure: the powers of two below ``clients``, and ``clients``."""
    counts = [2**power for power in range(clients.bit_length()) if 2**power < clients]
    return (*counts, clients)


def clients_of(hosts: Sequence[str]) -> tuple[ClientUnit, tuple[int, ...]]:
    """Return (unit of clients, client number of each rank); ``hosts`` contains the host of each rank.

    The clients are hosts. If there is only one host, the clients are ranks.
    """
    named = list(dict.fromkeys(hosts))
    if len(named) > 1:
        return "hosts", tuple(named.index(host) for host in hosts)
    return "ranks", tuple(range(len(hosts)))


def resizes(engine: EngineSpec, strategy: StrategySpec, settings: Settings) -> bool:
    """Return whether the run also loads the checkpoints of a subject with twice and half as many ranks.

    Such loads need full, uncompressed checkpoints, and an engine whose library supports them.
    """
    is_full = not strategy.saves_deltas and not strategy.compresses
    return is_full and settings.includes_contention and bool(engine.resizes)


def planned_counts(processes: int, settings: Settings) -> tuple[int, ...]:
    """Return the client counts that a run with these settings measures.

    The launcher is assumed to fill the slots of one host before it uses the next host.
    """
    slots = [host.name for host in settings.hosts for _ in range(host.slots)]
    hosts = (slots + [settings.hosts[-1].name if slots else ""] * processes)[:processes]
    return client_counts(max(clients_of(hosts)[1]) + 1)


def _save(planned: PlannedCheckpoint) -> float:
    return planned.demand.save_limit_seconds


def _load(planned: PlannedCheckpoint) -> float:
    return planned.demand.load_limit_seconds


def _contended(planned: PlannedCheckpoint, settings: Settings) -> bool:
    return settings.includes_contention


def _can_share(planned: PlannedCheckpoint) -> bool:
    """Return whether some ranks can save and load while the other ranks do not."""
    return planned.layout.processes > 1 and not planned.engine.is_collective


def _crashes(planned: PlannedCheckpoint, settings: Settings, target: TargetFacts | None) -> Amount:
    # The checkpoints are small, so their bytes and times do not count. The result is whether they survive the kills.
    return Amount(kills_of(planned.strategy, settings), 0, 0.0)


def _compression(planned: PlannedCheckpoint, settings: Settings, target: TargetFacts | None) -> Amount:
    return Amount(4 * CODEC_PAIRS, planned.layout.bytes, (_save(planned) + _load(planned)) / 2)


def _storm(planned: PlannedCheckpoint, settings: Settings, target: TargetFacts | None) -> Amount | None:
    if not _can_share(planned):
        return None
    return Amount(LOADS_OF_A_PATTERN, storm(planned.layout).bytes, _load(planned))


def _resharded(planned: PlannedCheckpoint, settings: Settings, target: TargetFacts | None) -> Amount | None:
    return Amount(LOADS_OF_A_PATTERN, planned.layout.bytes, _load(planned)) if _can_share(planned) else None


def _resized(planned: PlannedCheckpoint, settings: Settings, target: TargetFacts | None) -> Amount:
    # One save, then the loads of each number of ranks.
    sizes = sum(ranks_of(size, planned.layout.processes) > 0 for size in SIZES)
    return Amount(1 + sizes * LOADS_OF_A_PATTERN, planned.layout.bytes, max(_save(planned), _load(planned)))


def _neighbour(planned: PlannedCheckpoint, settings: Settings, target: TargetFacts | None) -> Amount | None:
    pace = planned.pace
    if pace is None or pace.not_run or not _can_share(planned):
        return None
    return Amount(TURNS, 0, pace.limit_seconds, turn_seconds=pace.seconds)


def _mixed(planned: PlannedCheckpoint, settings: Settings, target: TargetFacts | None) -> Amount | None:
    pace = planned.pace
    if pace is None or pace.not_run:
        return None
    return Amount(TURNS, 0, max(pace.limit_seconds, pace.turn_seconds), turn_seconds=pace.turn_seconds)


def _tiers(planned: PlannedCheckpoint, settings: Settings, target: TargetFacts | None) -> Amount:
    # Seven saves to the local tier, drains during three of them, and a restore from each tier.
    return Amount(1, 4 * planned.layout.bytes, 3 * _save(planned) + _load(planned))


def _preempt(planned: PlannedCheckpoint, settings: Settings, target: TargetFacts | None) -> Amount:
    # A save is in progress when the notice comes.
    return Amount(NOTICES, 2 * planned.layout.bytes, 2 * _save(planned))


def _chains(planned: PlannedCheckpoint, settings: Settings, target: TargetFacts | None) -> Amount | None:
    if planned.deltas is None:
        return None
    # A separate chain is saved, loaded after the others are deleted, and deleted.
    moved = 2 * sum(planned.deltas.save_bytes(planned.layout, n) for n in planned.deltas.surviving_chain)
    return Amount(1, moved, 3 * _save(planned) + _load(planned))


def _serving(planned: PlannedCheckpoint, settings: Settings, target: TargetFacts | None) -> Amount:
    weights = weights_of(planned.layout, settings.serving_readers)
    limit = (settings.serving_limit_seconds or _load(planned)) * weights.bytes / weights.full_bytes
    # Mapping needs paths.
    ways = 2 if target is None or "paths" in target.capabilities else 1
    return Amount(ways * LOADS_OF_A_WAY, weights.bytes * weights.replicas, limit)


def _consolidation(planned: PlannedCheckpoint, settings: Settings, target: TargetFacts | None) -> Amount:
    weights = weights_of(planned.layout, settings.serving_readers)
    return Amount(1, 3 * weights.bytes, settings.consolidate_limit_seconds * weights.bytes / weights.full_bytes)


def _scaling(planned: PlannedCheckpoint, settings: Settings, target: TargetFacts | None) -> Amount | None:
    counts = planned_counts(planned.layout.processes, settings)
    if planned.engine.is_collective or len(counts) < 2:
        return None
    part = sum(counts) / len(counts) / counts[-1]
    each = part * (_save(planned) + _load(planned)) / 2
    return Amount(2 * TURNS_OF_A_COUNT * len(counts), round(part * planned.layout.bytes), each)


def _metadata(planned: PlannedCheckpoint, settings: Settings, target: TargetFacts | None) -> Amount | None:
    # No bytes are moved, and no limit applies to the time.
    return None if target and "paths" not in target.capabilities else Amount(STEPS + REMOVALS, 0, 0.0)


def _endurance(planned: PlannedCheckpoint, settings: Settings, target: TargetFacts | None) -> Amount:
    if seconds := settings.duration_seconds:
        return Amount(1, 0, seconds + _save(planned), turn_seconds=seconds)
    size, save = planned.layout.bytes, _save(planned)
    return Amount(1, MAXIMUM_ROUNDS * size, MAXIMUM_ROUNDS * save, parts=MAXIMUM_ROUNDS)


def _near_full(planned: PlannedCheckpoint, settings: Settings, target: TargetFacts | None) -> Amount | None:
    if not settings.near_full:
        return None
    count = SAVES_OF_A_LEVEL * (1 + len(LEVELS))
    return Amount(count, planned.layout.bytes + _ballast_bytes(target) // count, _save(planned))


def _snapshots(planned: PlannedCheckpoint, settings: Settings, target: TargetFacts | None) -> Amount:
    # A save without a snapshot and a save with one. Then at most three loads: of the second save from the target, and
    # of both saves from the clone.
    return Amount(PAIRS, 5 * planned.layout.bytes, 2 * _save(planned) + 3 * _load(planned))


def _upgrade(planned: PlannedCheckpoint, settings: Settings, target: TargetFacts | None) -> Amount:
    # Saves and loads run until the command ends; its duration is not known in advance, so this is an estimate.
    return Amount(1, 4 * planned.layout.bytes, 2 * _save(planned) + 2 * _load(planned))


def _failover(planned: PlannedCheckpoint, settings: Settings, target: TargetFacts | None) -> Amount:
    # In addition to the operation with the fault: a save after it, and a load that compares.
    return Amount(len(BREAKS), 3 * planned.layout.bytes, 2 * _save(planned) + _load(planned))


def _ballast_bytes(target: TargetFacts | None) -> int:
    """Return the bytes of ballast for the highest fill level; 0 if the size of the volume is unknown."""
    if target is None or target.capacity is None:
        return 0
    volume = Volume(used_bytes=target.capacity.used_bytes, free_bytes=target.capacity.free_bytes)
    return volume.ballast_bytes(LEVELS[-1])


_IN = "pytest_ckpt.ranks.scenarios"
_RESTORES, _INTERFERENCE = f"{_IN}.restore_patterns:measure", f"{_IN}.interference:measure"

PATTERNS: Mapping[Pattern, PatternRow] = {
    row.name: row
    for row in (
        PatternRow(
            name="crashes",
            label="kill of a save in the background",
            scenario=f"{_IN}.crashes:measure",
            is_requested=lambda planned, settings: kills_of(planned.strategy, settings) > 0,
            amount=_crashes,
            first=32,
        ),
        PatternRow(
            name="compression",
            label="save or load through the codec or past it",
            scenario=f"{_IN}.compression:measure",
            is_requested=lambda planned, settings: planned.strategy.compresses and settings.includes_strategies,
            amount=_compression,
            first=224,
        ),
        PatternRow("storm", "storm load", _RESTORES, _contended, _storm),
        PatternRow("shifted", "shifted load", _RESTORES, _contended, _resharded),
        PatternRow("joined", "joined load", _RESTORES, _contended, _resharded),
        PatternRow("split", "split load", _RESTORES, _contended, _resharded),
        PatternRow("neighbour", "save of half of the ranks", _INTERFERENCE, _contended, _neighbour, first=4),
        PatternRow("mixed", "turn of reading samples", _INTERFERENCE, _contended, _mixed, first=3),
        PatternRow(
            name="tiers",
            label="saves and restores in two tiers",
            scenario=f"{_IN}.tiers:measure",
            is_requested=lambda planned, settings: planned.strategy.tiers and settings.includes_strategies,
            amount=_tiers,
            first=160,
        ),
        PatternRow(
            name="preempt",
            label="save at notice",
            scenario=f"{_IN}.notice:measure",
            is_requested=lambda planned, settings: settings.includes_notice,
            amount=_preempt,
            first=192,
        ),
        PatternRow(
            name="chains",
            label="chain that outlives those before it",
            scenario=f"{_IN}.chains:measure",
            is_requested=lambda planned, settings: planned.deltas is not None and settings.includes_strategies,
            amount=_chains,
            first=OF_CHAIN,
        ),
        PatternRow(
            name="serving",
            label="load of the weights",
            scenario=f"{_IN}.serving:measure",
            is_requested=serves,
            amount=_serving,
            first=208,
            names=lambda planned: weights_of(planned.layout, planned.layout.processes).names,
        ),
        PatternRow(
            name="consolidation",
            label="copy of the weights",
            scenario=f"{_IN}.serving:measure",
            is_requested=serves,
            amount=_consolidation,
        ),
        PatternRow(
            name="scaling",
            label="save or load by some of the clients",
            scenario=f"{_IN}.scaling:measure",
            is_requested=scales,
            amount=_scaling,
            first=240,
        ),
        PatternRow(
            name="endurance",
            label="endurance",
            scenario=f"{_IN}.endurance:measure",
            is_requested=lambda planned, settings: settings.includes_endurance,
            amount=_endurance,
            first=5,
            lasts=True,
        ),
        PatternRow(
            name="near_full",
            label="save on a filled volume",
            scenario=f"{_IN}.endurance:measure",
            is_requested=lambda planned, settings: settings.includes_endurance,
            amount=_near_full,
            lasts=True,
            other_files=lambda planned: {ballast_name(n, rank.rank) for n in LEVELS for rank in planned.layout.ranks()},
        ),
        PatternRow(
            name="metadata",
            label="calls on many names",
            scenario=f"{_IN}.many_names:measure",
            is_requested=lambda planned, settings: planned.many_names is not None,
            amount=_metadata,
            lasts=True,
        ),
        PatternRow(
            name="resized",
            label="save, or load by another number of ranks",
            scenario=f"{_IN}.resized:ResizedRun",
            is_requested=lambda planned, settings: resizes(planned.engine, planned.strategy, settings),
            amount=_resized,
            first=30,
            has_own_launch=True,
        ),
        PatternRow(
            name="snapshots",
            label="snapshot in a save",
            scenario=f"{_IN}.with_commands:SnapshotRun",
            is_requested=lambda planned, settings: settings.includes_snapshots,
            amount=_snapshots,
            first=28,
            has_own_launch=True,
        ),
        PatternRow(
            name="upgrade",
            label="change of the storage",
            scenario=f"{_IN}.with_commands:UpgradeRun",
            is_requested=lambda planned, settings: settings.includes_upgrade,
            amount=_upgrade,
            first=26,
            has_own_launch=True,
        ),
        PatternRow(
            name="failover",
            label="injected fault",
            scenario=f"{_IN}.with_commands:FailoverRun",
            is_requested=lambda planned, settings: settings.includes_failover,
            amount=_failover,
            first=24,
            has_own_launch=True,
        ),
    )
}
"""All patterns by name, in the order in which ranks measure them.

The pattern ``training`` has no row, because it is part of the subject's own saves.
"""

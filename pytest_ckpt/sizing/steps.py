"""What ranks do one after the other in a run, counted before it: progress and `plan` add it up. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.analysis.steadiness import MAXIMUM_ROUNDS, WINDOW_ROUNDS
from pytest_ckpt.facts.commands import BREAKS, PAIRS
from pytest_ckpt.facts.compression import PAIRS as CODEC_PAIRS
from pytest_ckpt.facts.events import StepKind
from pytest_ckpt.sizing.near_full import LEVELS, Volume
from pytest_ckpt.sizing.reading import storm, weights_of
from pytest_ckpt.support.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.facts.measurement import ClientUnit
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.facts.strategies import StrategySpec
    from pytest_ckpt.facts.subject import Subject
    from pytest_ckpt.facts.targets import TargetFacts
    from pytest_ckpt.sizing.plan import PlannedCheckpoint

LOADS_OF_A_PATTERN = 3
TURNS = 6
"""Saves and turns of contention: half of them alone, half beside the other."""
MINIMUM_TURN_SECONDS, MAXIMUM_TURN_SECONDS = 1.0, 30.0
SAVES_OF_A_LEVEL = 5
KILLS = 60
"""Saves in the background that are killed, at the full effort of a profile."""

NOTICES = 3
"""Times that a job is given notice and saves."""

LOADS_OF_A_WAY = 2
"""Of weights alone, by reads and from mappings: cold, and again at once."""

TURNS_OF_A_COUNT = 3
"""Saves, and loads, of each count of clients; in turns, so that a drift of the storage favours none."""

_LABELS: dict[StepKind, str] = {
    "storm": "storm load",
    "shifted": "shifted load",
    "joined": "joined load",
    "split": "split load",
    "retention": "save beside a deletion",
    "data": "save or load of unique or constant data",
    "neighbour": "save of half of the ranks",
    "mixed": "turn of reading samples",
    "near_full": "save on a filled volume",
    "crashes": "kill of a save in the background",
    "chains": "chain that outlives those before it",
    "tiers": "saves and restores in two tiers",
    "preempt": "save at notice",
    "serving": "load of the weights",
    "consolidation": "copy of the weights",
    "compression": "save or load through the codec or past it",
    "scaling": "save or load by some of the clients",
    "snapshots": "snapshot in a save",
    "upgrade": "change of the storage",
    "failover": "break of a component",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """Steps of one kind of a subject. Endurance is one step, of ``parts`` saves at most where no time decides it.

    ``bytes_each`` are those moved; ``limit_seconds`` is what all take together where each just meets its limit.
    ``turn_seconds`` is how long a step lasts by the clock and not by the storage, None where the storage decides, 0
    where a save decides it.
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
        """Whether it may be less."""
        return self.parts > 1

    def label(self, index: int) -> str:
        """Return the name of a step for a person: ``llama3-8b-full storm load 2 of 3``."""
        what = f"{self.subject} {_LABELS.get(self.kind, self.kind)}"
        return what if self.count == 1 else f"{what} {index} of {self.count}"


def kills_of(strategy: StrategySpec, settings: Settings) -> int:
    """Return how many saves by a strategy are killed in a run: none where the job stands still."""
    return 0 if strategy.blocks or not settings.asks_strategies else max(1, round(KILLS * settings.effort))


def serves(planned: PlannedCheckpoint, settings: Settings) -> bool:
    """Return whether weights alone are loaded beside a subject: not where restores are of chains."""
    return settings.asks_serving and planned.deltas is None


def saves_whole(strategy: StrategySpec) -> bool:
    """Whether a job waits for saves of the whole checkpoint as it is: what grows is then the storage's alone."""
    return strategy.blocks and not strategy.saves_deltas and not strategy.compresses


def scales(planned: PlannedCheckpoint, settings: Settings) -> bool:
    """Return whether growing counts of clients save and load a subject's parts: where a job waits for whole saves."""
    return settings.asks_scaling and saves_whole(planned.strategy)


def planned_steps(planned: PlannedCheckpoint, settings: Settings, target: TargetFacts | None) -> Sequence[Steps]:
    """Return what is measured of a checkpoint, in the order in which ranks do it."""
    size, demand, count = planned.layout.bytes, planned.demand, planned.operations
    save, load = demand.save_limit_seconds, demand.load_limit_seconds

    def steps(kind: StepKind, number: int, bytes_each: int, each_seconds: float, **more: float | None) -> Steps:
        return Steps(
            subject=planned.subject,
            kind=kind,
            count=number,
            bytes_each=bytes_each,
            limit_seconds=number * each_seconds,
            turn_seconds=more.get("turn_seconds"),
            parts=int(more.get("parts") or 1),
        )

    found = [steps("save", count, planned.saved_bytes // count, save)]
    if 0 < settings.keep_last <= count:
        found.append(steps("retention", 1, size, save))
    found.append(steps("load", count, planned.loaded_bytes // count, load))
    if settings.data_pairs and not planned.strategy.compresses:
        found.append(steps("data", 4 * settings.data_pairs, size, (save + load) / 2))
    if kills := kills_of(planned.strategy, settings):
        # Of small checkpoints: what counts is what is left of them.
        found.append(steps("crashes", kills, 0, 0.0))
    if planned.deltas and settings.asks_strategies:
        # A chain of its own is saved, loaded when the others are deleted, and deleted.
        found.append(
            steps(
                "chains",
                1,
                2 * sum(planned.deltas.save_bytes(planned.layout, n) for n in planned.deltas.own_chain),
                3 * save + load,
            )
        )
    if planned.strategy.compresses and settings.asks_strategies:
        found.append(steps("compression", 4 * CODEC_PAIRS, size, (save + load) / 2))
    if settings.asks_notice:
        # A save is under way when the notice comes.
        found.append(steps("preempt", NOTICES, 2 * size, 2 * save))
    if planned.drains and settings.asks_strategies:
        # Seven saves to the local tier, drains beside three of them, and a restore from each tier.
        found.append(steps("tiers", 1, 4 * size, 3 * save + load))
    if serves(planned, settings):
        weights = weights_of(planned.layout, settings.serving_readers)
        part = weights.bytes / weights.full_bytes
        limit = (settings.serving_limit_seconds or planned.demand.load_limit_seconds) * part
        # Without paths there is nothing to map.
        ways = 2 if target is None or "paths" in target.capabilities else 1
        found.append(steps("serving", ways * LOADS_OF_A_WAY, weights.bytes * weights.replicas, limit))
        found.append(steps("consolidation", 1, 3 * weights.bytes, settings.consolidate_limit_seconds * part))
    found += _scaling_steps(planned, settings)
    if settings.asks_contention:
        if planned.layout.processes > 1 and not planned.engine.is_collective:
            found.append(steps("storm", LOADS_OF_A_PATTERN, storm(planned.layout).bytes, load))
            kinds: tuple[StepKind, ...] = ("shifted", "joined", "split")
            found += [steps(kind, LOADS_OF_A_PATTERN, size, load) for kind in kinds]
            found.append(steps("neighbour", TURNS, size, save))
        found.append(steps("mixed", TURNS, 0, max(MAXIMUM_TURN_SECONDS, save), turn_seconds=0.0))
    if settings.asks_endurance:
        if settings.duration_seconds:
            seconds = settings.duration_seconds
            found.append(steps("endurance", 1, 0, seconds + save, turn_seconds=seconds))
        else:
            found.append(steps("endurance", 1, MAXIMUM_ROUNDS * size, MAXIMUM_ROUNDS * save, parts=MAXIMUM_ROUNDS))
        if settings.near_full:
            number = SAVES_OF_A_LEVEL * (1 + len(LEVELS))
            found.append(steps("near_full", number, size + _ballast_bytes(target) // number, save))
    if settings.asks_snapshots:
        # A save without, a save with; a load of that one, and of both from the clone at most.
        found.append(steps("snapshots", PAIRS, 5 * size, 2 * save + 3 * load))
    if settings.asks_upgrade:
        # As long as the command takes, which nobody knows before.
        found.append(steps("upgrade", 1, 4 * size, 2 * save + 2 * load))
    if settings.asks_failover:
        # Beside the operation in which something is broken: a save after it, and a load that compares.
        found.append(steps("failover", len(BREAKS), 3 * size, 2 * save + load))
    return found


def scenarios(settings: Settings, *, is_collective: bool) -> tuple[str, ...]:
    """Say what is measured beside the saves and loads, and how long it takes or how much it writes.

    The ranks of an engine that ``is_collective`` save and load together only.
    """
    listed = []
    if settings.asks_contention:
        alone = (
            "12 loads by other ranks than those that wrote; 6 saves of half of the ranks, 3 of them beside the other "
            "half; "
        )
        turns = "6 turns of 1 to 30 s in which samples are read, 3 of them beside saves"
        listed.append(turns if is_collective else alone + turns)
    if settings.asks_serving:
        listed.append("cold and warm loads of the weights alone by replicas, by reads and mapped; one copy of them")
    if settings.asks_scaling:
        listed.append(f"{TURNS_OF_A_COUNT} saves and loads by each of 1, 2, 4 … of the clients, in turns")
    if settings.asks_endurance:
        seconds = settings.duration_seconds
        listed.append(
            f"saves for {format_seconds(seconds)}" if seconds else f"{WINDOW_ROUNDS} to {MAXIMUM_ROUNDS} saves"
        )
    if settings.asks_failover:
        saves, loads = BREAKS.count("save"), BREAKS.count("load")
        # One of each with nothing broken; a save after each break; a load of whatever was saved.
        listed.append(
            f"at least {1 + saves + len(BREAKS)} saves and {1 + len(BREAKS) + saves + loads} loads after everything "
            f"else, with something broken in {saves} saves and {loads} loads"
        )
    if settings.asks_snapshots:
        listed.append(
            f"{2 * PAIRS} saves after everything else, with a snapshot in {PAIRS} of them, and {3 * PAIRS} loads"
        )
    if settings.asks_upgrade:
        listed.append(
            "saves and loads in turns after everything else, until the command of --ckpt-upgrade-command has returned"
        )
    if settings.asks_endurance and settings.near_full:
        listed.append(
            f"15 saves while ballast fills the volume to {LEVELS[0]:.0%} and {LEVELS[1]:.0%}: that much is written"
        )
    return tuple(listed)


def client_counts(clients: int) -> tuple[int, ...]:
    """Return the counts that are measured: 1, 2, 4 and so on, and all clients."""
    counts = [2**power for power in range(clients.bit_length()) if 2**power < clients]
    return (*counts, clients)


def clients_of(hosts: Sequence[str]) -> tuple[ClientUnit, tuple[int, ...]]:
    """Return what counts as a client, and the number of each rank's; ``hosts`` are those of the ranks, in order."""
    named = list(dict.fromkeys(hosts))
    if len(named) > 1:
        return "hosts", tuple(named.index(host) for host in hosts)
    return "ranks", tuple(range(len(hosts)))


def planned_counts(processes: int, settings: Settings) -> tuple[int, ...]:
    """Return the counts that a run with these settings will measure: launchers fill a host's slots first."""
    slots = [host.name for host in settings.hosts for _ in range(host.slots)]
    hosts = (slots + [settings.hosts[-1].name if slots else ""] * processes)[:processes]
    return client_counts(max(clients_of(hosts)[1]) + 1)


def _scaling_steps(planned: PlannedCheckpoint, settings: Settings) -> list[Steps]:
    """Return the saves and loads by growing counts of clients; none where there is one client, or none can wait."""
    counts = planned_counts(planned.layout.processes, settings)
    if not scales(planned, settings) or planned.engine.is_collective or len(counts) < 2:
        return []
    count = 2 * TURNS_OF_A_COUNT * len(counts)
    part = sum(counts) / len(counts) / counts[-1]
    seconds = count * part * (planned.demand.save_limit_seconds + planned.demand.load_limit_seconds) / 2
    size = round(part * planned.layout.bytes)
    return [Steps(subject=planned.subject, kind="scaling", count=count, bytes_each=size, limit_seconds=seconds)]


def _ballast_bytes(target: TargetFacts | None) -> int:
    """Return what is written to fill the volume; 0 where nobody has seen it yet."""
    if target is None or target.capacity is None:
        return 0
    volume = Volume(used_bytes=target.capacity.used_bytes, free_bytes=target.capacity.free_bytes)
    return volume.ballast_bytes(LEVELS[-1])

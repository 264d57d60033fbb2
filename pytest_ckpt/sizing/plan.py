"""The plan of a run: its writes, reads and launches, and the space and memory that it needs. Pure functions.

``plan --json`` prints the plan in plain types, and a run stores this form. The preflight compares the plan with machine
and target before the first write. The run executes the plan, and the report repeats it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.compression import THREAD_BYTES
from pytest_ckpt.facts.engines import STREAM, EngineSpec
from pytest_ckpt.facts.file_rules import FileRule
from pytest_ckpt.facts.gate_tables import GATE_TABLES
from pytest_ckpt.facts.strategies import StrategySpec
from pytest_ckpt.facts.strategy_results import DrainRule
from pytest_ckpt.facts.targets import TARGETS
from pytest_ckpt.sizing.architectures import CHECKPOINT_SIZES
from pytest_ckpt.sizing.content_places import check_places
from pytest_ckpt.sizing.deltas import DeltaRule
from pytest_ckpt.sizing.drains import drain_buffers_bytes, drain_rule, with_drains
from pytest_ckpt.sizing.files import (
    consolidating_bytes,
    extra_file_bytes,
    file_count,
    files_of,
    largest_file_bytes,
)
from pytest_ckpt.sizing.limits import ClusterLimits, Demand, demand, limits_of
from pytest_ckpt.sizing.many_names import NAME_BYTES, ManyNames
from pytest_ckpt.sizing.models import SUBSET_PROCESSES, Layout, layout
from pytest_ckpt.sizing.object_parts import part_bytes
from pytest_ckpt.sizing.pacing import READERS, PacedSaves, paced_saves, sample_bytes
from pytest_ckpt.sizing.patterns import saves_complete_checkpoints
from pytest_ckpt.sizing.ramp import RAMP_BYTES, PlannedRamp, planned_ramp
from pytest_ckpt.sizing.steps import scenarios
from pytest_ckpt.sizing.stream_buffers import USUAL_DEPTH, beyond_usual_bytes
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.units import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ckpt.facts.models import Model
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.facts.subject import Subject
    from pytest_ckpt.facts.targets import TargetFacts
    from pytest_ckpt.sizing.models import RankLayout

SCHEMA = "pytest-ckpt/plan/1"

_FILE_OVERHEAD_BYTES = 64 << 10
"""The maximum bytes of a file in addition to its tensors: container header, directory, pickle, and rounding by file
systems."""

# The memory, without samples, of a host's process that reads samples during saves.
_SAMPLES_BYTES = 30_000_000
_TENSOR_OVERHEAD_BYTES = 8 << 10
# The size of the file with which probes of residency are tested.
_CANARY_BYTES = 4 << 20
# The process of pytest: pages of its own, with 2 to 64 ranks, ten saves and ten loads, and no other plugins.
_CONTROLLER_BYTES, _CONTROLLER_RANK_BYTES = 39_000_000, 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedCheckpoint:
    """One planned measurement: a layout, its demands on the storage, and its needs, in bytes.

    ``checkpoint_bytes`` is the space of one checkpoint. ``space_bytes`` is the space of all checkpoints that exist at
    the same time. ``state_bytes`` is the memory of each rank that grows with the model. A ramp finds the depth (the
    number of requests in flight). ``rank_memory_bytes`` is the memory of each rank with the largest depth that a ramp
    tries. ``memory_after_ramp`` is {depth that the ramp may find: memory of the largest rank with this depth}.

    ``not_run`` is the reason if the measurement cannot run as requested. ``rehearsal`` is the reason if the measurement
    can run but cannot be certified. ``scenarios`` describes additional measurements.

    The following fields are None if not used. ``deltas`` defines which saves contain only changed pages. ``drains``
    defines which saves are drained from a local tier. ``pace`` is the pace of saves during other work. ``ramp`` is the
    planned ramp. ``many_names`` are the empty files of the suite metadata.
    """

    layout: Layout
    engine: EngineSpec
    strategy: StrategySpec
    demand: Demand
    operations: int
    checkpoint_bytes: int
    space_bytes: int
    largest_rank_memory_bytes: int
    rank_memory_bytes: tuple[int, ...]
    state_bytes: tuple[int, ...]
    host_memory_bytes: tuple[int, ...]
    not_run: str
    rehearsal: str
    scenarios: tuple[str, ...]
    memory_after_ramp: Mapping[int, int]
    deltas: DeltaRule | None = None
    drains: DrainRule | None = None
    pace: PacedSaves | None = None
    ramp: PlannedRamp | None = None
    many_names: ManyNames | None = None

    @property
    def subject(self) -> Subject:
        """The subject of the measurement."""
        return self.layout.subject(self.engine.name, self.strategy.name)

    @property
    def files(self) -> int:
        """The number of files of one checkpoint."""
        return file_count(self.layout, self.engine.files)

    @property
    def hosts(self) -> int:
        """The number of hosts that run the ranks."""
        return sum(1 for memory in self.host_memory_bytes if memory)

    @property
    def save_bytes(self) -> tuple[int, ...]:
        """The bytes of tensors that each save writes; empty if every save is full."""
        return self.deltas.saves_bytes(self.layout) if self.deltas else ()

    @property
    def load_bytes(self) -> tuple[int, ...]:
        """The bytes of tensors that a restore of each checkpoint reads; empty if every save is full."""
        return self.deltas.loads_bytes(self.layout) if self.deltas else ()

    @property
    def saved_bytes(self) -> int:
        """The bytes of tensors that all saves write."""
        return sum(self.save_bytes) or self.operations * self.layout.bytes

    @property
    def loaded_bytes(self) -> int:
        """The bytes of tensors that all loads read."""
        return sum(self.load_bytes) or self.operations * self.layout.bytes

    def files_of_saves(self, saves: int) -> int:
        """Return the number of files of the first ``saves`` saves. For a delta, each rank writes one file."""
        deltas = sum(self.deltas.is_delta(n) for n in range(1, saves + 1)) if self.deltas else 0
        return (saves - deltas) * self.files + deltas * self.layout.processes


@dataclass(frozen=True, kw_only=True, slots=True)
class FilesOfHost:
    """The number of files that each of ``hosts`` hosts creates in one save of ``model``, and the save limit."""

    model: str
    files: int
    hosts: int
    save_limit_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The limits of the cluster and the measurements of a run."""

    limits: ClusterLimits
    checkpoints: tuple[PlannedCheckpoint, ...]

    @property
    def runnable(self) -> tuple[PlannedCheckpoint, ...]:
        """The measurements that can run."""
        return tuple(c for c in self.checkpoints if not c.not_run)

    @property
    def space_bytes(self) -> int:
        """The free space that the run needs on the target, in bytes.

        It is the space of the largest measurement, because files are deleted before the next measurement begins.
        """
        return max((c.space_bytes for c in self.runnable), default=0)

    @property
    def controller_memory_bytes(self) -> int:
        """The memory of pytest's process in bytes, without the ranks and without other plugins of pytest."""
        return _CONTROLLER_BYTES + _CONTROLLER_RANK_BYTES * max((c.layout.processes for c in self.runnable), default=0)

    @property
    def files_of_host(self) -> FilesOfHost | None:
        """The save that requires the highest rate of file creation per host; None if no checkpoint can run."""
        found = [
            FilesOfHost(
                model=c.layout.model.name,
                files=-(-c.files // c.hosts),
                hosts=c.hosts,
                save_limit_seconds=self.limits.save_seconds(c.strategy),
            )
            for c in self.runnable
        ]
        return max(found, key=lambda one: one.files / one.save_limit_seconds, default=None)

    def of(self, subject: Subject) -> PlannedCheckpoint:
        """Return the planned measurement of a subject."""
        return next(c for c in self.checkpoints if c.subject == subject)

    def to_plain(self, *, ranks: bool = False) -> dict[str, Any]:
        """Return the plan as ``plan --json`` prints it; ``ranks`` adds every file of every rank."""
        return {
            "schema": SCHEMA,
            "cluster": self.limits.to_plain(),
            "controller_memory_bytes": self.controller_memory_bytes,
            "checkpoints": [_checkpoint_to_plain(c, ranks=ranks) for c in self.checkpoints],
        }


_OF_OWN_MODELS = {
    "--ckpt-parallel": "the workload defines how its models are sharded",
    "--ckpt-optimizer": "the workload defines the optimizer of its models",
}


def refuse_user_model_options(settings: Settings) -> None:
    """Raise UsageError if an option for users' models is set and no model is from a file."""
    for option, why in _OF_OWN_MODELS.items():
        if settings.is_set(option) and not any(model.own for model in settings.models):
            raise UsageError(
                f"{option}: {why}.",
                "Also name your own model, such as --ckpt-model=./my-model.toml, or leave the option out.",
            )


def plan_run(settings: Settings, target: TargetFacts | None, table: str = "") -> Plan:
    """Return the plan of a run; ``target`` is None if the target is not known yet.

    ``table`` is the name of the run's built-in gate table, or of the built-in table that the user's table extends. If
    ``table`` is empty, ``--ckpt-gate-table`` is used. Raises UsageError if the settings fit no layout or no limit can
    be derived.
    """
    limits = limits_of(settings)
    for option in ("--ckpt-engine=replay:file", "--ckpt-engine=replay:timing"):
        if settings.is_set(option) and not any(engine.replays for engine in settings.engines):
            raise UsageError(f"{option}: no engine that was chosen replays a job.", "Say --ckpt-engine=replay.")
    refuse_user_model_options(settings)
    checkpoints = tuple(
        _plan_checkpoint(settings, model, engine, strategy, limits, target, table)
        for model in settings.models
        for engine in settings.engines
        for strategy in settings.strategies
    )
    misfits = [_misfit(settings, model) for model in settings.models]
    if all(misfits):
        raise UsageError(
            f"{counted(settings.ranks, 'process fits', 'processes fit')} no layout of the requested models: "
            f"{'; '.join(filter(None, misfits))}.",
            "Use --ckpt-ranks=8, a count of a full layout "
            f"({', '.join(f'{m.name}: {m.processes}' for m in settings.models)}), or --ckpt-mode=open with a multiple "
            f"of tensor x pipeline parallel ({', '.join(f'{m.name}: {m.model_parallel}' for m in settings.models)}).",
        )
    return Plan(limits=limits, checkpoints=checkpoints)


def checkpoints_at_once(settings: Settings) -> int:
    """Return the maximum number of checkpoints that exist concurrently on the target.

    A new checkpoint is written before the oldest is deleted.
    """
    kept = min(settings.keep_last or settings.operations, settings.operations)
    at_once = kept + (1 if settings.keep_last or settings.data_pairs or settings.includes_contention else 0)
    if settings.includes_serving or settings.includes_scaling:
        # The weights and their copy: two times 2 of the 14 bytes that a checkpoint has per parameter. Increasing client
        # counts need one checkpoint at a time.
        at_once = max(at_once, kept + 1)
    if settings.compresses and settings.includes_strategies:
        # One checkpoint that is saved alternately uncompressed and compressed.
        at_once = max(at_once, kept + 1)
    if settings.includes_notice or (settings.has_tiers and settings.includes_strategies):
        # A save during another save, or a drain while the previous checkpoint still exists.
        at_once = max(at_once, kept + 2)
    if settings.includes_failover or settings.includes_upgrade or settings.includes_snapshots:
        # One complete checkpoint and one being written, if the other checkpoints may be deleted.
        at_once = max(at_once, 2 + (kept if settings.keep_files else 0))
    if not settings.includes_endurance:
        return at_once
    # Endurance has two checkpoints and the one being written, if the other checkpoints may be deleted.
    return max(at_once, 3 + (kept if settings.keep_files else 0))


def rank_to_plain(rank: RankLayout, rule: FileRule) -> dict[str, Any]:
    """Return the files that one rank writes for a checkpoint, in the format of plan.json."""
    return {
        "rank": rank.rank,
        "bytes": rank.bytes,
        "files": [file._asdict() for file in files_of(rank, rule)],
    }


def _misfit(settings: Settings, model: Model) -> str:
    """Return the reason why the number of ranks fits no layout of a model; empty if the number fits."""
    name, processes = model.name, settings.ranks
    full = f"{name} in full has {model.processes} ranks"
    if settings.mode == "open":
        if processes % model.model_parallel:
            return f"{name} needs a multiple of {model.model_parallel} ranks"
    elif settings.mode == "subset" and model.processes < SUBSET_PROCESSES:
        return f"{full}, so that it has no subset of {SUBSET_PROCESSES}"
    elif settings.mode == "full" or model.processes < SUBSET_PROCESSES:
        if processes < model.processes:
            return full
    elif processes < SUBSET_PROCESSES:
        return f"{full}, its subset {SUBSET_PROCESSES}"
    return ""


def _plan_checkpoint(
    settings: Settings,
    model: Model,
    engine: EngineSpec,
    strategy: StrategySpec,
    limits: ClusterLimits,
    target: TargetFacts | None,
    table: str,
) -> PlannedCheckpoint:
    name, mode = model.name, settings.mode
    not_run = _misfit(settings, model)
    rehearsal, has_subset = "", model.processes >= SUBSET_PROCESSES
    shared = _sharing_evidence(settings, target, table)
    if mode == "auto":
        mode = "full" if shared or settings.ranks >= model.processes or not has_subset else "subset"
        if settings.ranks < model.processes and shared and not not_run:
            not_run = (
                f"{name} in full has {model.processes} ranks and {settings.ranks} were requested; its subset is for "
                f"storage that is local to each client, and {shared}. Give enough hosts with --ckpt-hosts, or "
                "--ckpt-mode=subset for a rehearsal"
            )
    elif mode == "subset" and shared:
        rehearsal = f"{name} ran as the subset for client-local storage, and {shared}"
    if not_run and (mode == "open" or not has_subset):
        mode = "full"
    if target and target.plugin:
        rehearsal = f"The target is provided by {target.plugin}: a run on it cannot be certified"
    processes = settings.ranks if mode == "open" else None
    shards = layout(model, mode=mode, processes=processes, scale=settings.scale)
    check_places(shards)
    files = file_count(shards, engine.files)
    extra_bytes = extra_file_bytes(shards, engine.files)
    # A bound for every version: at a reduced scale, earlier versions reduced all tensors and omitted none.
    overhead = files * _FILE_OVERHEAD_BYTES + shards.full_tensors * _TENSOR_OVERHEAD_BYTES
    one = shards.bytes + extra_bytes + overhead
    rule, drains = _delta_rule(settings, strategy), drain_rule(settings, strategy)
    state = _state_memory(shards, engine, strategy, rule, loads_others=settings.includes_contention)
    asks = with_drains(_with_deltas(demand(shards, limits, strategy), shards, rule), limits, strategy, drains)
    request_bytes, ramp = _request_bytes(settings, target, shards), None
    if engine.name == STREAM and not settings.io_depth:
        ramp = planned_ramp(shards, asks, request_bytes=request_bytes, operations=settings.operations)
    extra = engine.memory.process_bytes
    if strategy.own_process:
        # The process imports the same libraries as a rank; the copy in shared memory is counted once.
        extra += engine.memory.process_bytes
    if settings.includes_contention:
        extra += _SAMPLES_BYTES + READERS * sample_bytes(settings.loader_bytes_per_second)
    names = _many_names(settings, strategy, files)
    if names:
        extra += names.memory_bytes(shards.processes)

    def of_depth(depth: int) -> int:
        """Return the part of a rank's memory that depends on ``depth``, the number of requests in flight."""
        drained = drain_buffers_bytes(settings.io_size_bytes, depth) if drains else 0
        streamed = beyond_usual_bytes(request_bytes, depth) if engine.name == STREAM else 0
        # A thread for each request in flight, and one that generates the next bytes.
        compressed = THREAD_BYTES * (depth + 1) if strategy.compresses else 0
        return drained + streamed + compressed

    depths = ramp.depths if ramp else ()
    # The memory is for the largest number of requests in flight that a ramp may find.
    largest = of_depth(settings.io_depth or (ramp.largest_depth if ramp else USUAL_DEPTH))
    memory = [bytes_of_state + extra + largest + (RAMP_BYTES if depths else 0) for bytes_of_state in state]
    pace = paced_saves(shards, asks.save_limit_seconds, engine) if settings.includes_contention else None
    return PlannedCheckpoint(
        layout=shards,
        engine=engine,
        strategy=strategy,
        demand=asks,
        operations=settings.operations,
        checkpoint_bytes=one,
        space_bytes=one * checkpoints_at_once(settings)
        + _chain_bytes(shards, rule, one)
        + (names.at_once * NAME_BYTES if names else 0)
        + _CANARY_BYTES,
        largest_rank_memory_bytes=max(memory),
        rank_memory_bytes=tuple(memory),
        state_bytes=tuple(state),
        host_memory_bytes=_over_hosts(memory, settings),
        not_run=not_run,
        rehearsal=rehearsal,
        scenarios=scenarios(settings, pace, names, engine, strategy),
        memory_after_ramp={depth: max(state) + extra + of_depth(depth) for depth in depths},
        deltas=rule,
        drains=drains,
        pace=pace,
        ramp=ramp,
        many_names=names,
    )


def _many_names(settings: Settings, strategy: StrategySpec, checkpoint_files: int) -> ManyNames | None:
    """Return the names that the suite metadata creates for a subject; None if the suite creates no names.

    The suite is measured only with a strategy that saves complete checkpoints and blocks the job.
    """
    if not settings.includes_metadata or not saves_complete_checkpoints(strategy):
        return None
    return ManyNames(
        files=settings.metadata_files,
        directories=settings.metadata_directories,
        checkpoint_files=checkpoint_files,
    )


def _request_bytes(settings: Settings, target: TargetFacts | None, shards: Layout) -> int:
    """Return the request size of engine ``stream``.

    For an object store, the request size is the part size of the largest object.
    """
    scheme, is_url, _ = (settings.target or "").partition("://")
    is_bucket = bool(is_url) and scheme in TARGETS and TARGETS[scheme].is_remote
    if target:
        is_bucket = not target.plugin and "paths" not in target.capabilities
    return part_bytes(shards.largest_file_bytes, settings.io_size_bytes) if is_bucket else settings.io_size_bytes


def _sharing_evidence(settings: Settings, target: TargetFacts | None, table: str) -> str:
    """Return a phrase with the evidence that several hosts share the storage; empty without evidence.

    For shared storage, a subset of the ranks is not representative.
    """
    if target and target.is_local is False:
        return f"the target is {target.description}"
    if settings.gate_table != "auto" and GATE_TABLES.get(table or settings.gate_table) == "shared":
        return f"--ckpt-gate-table={settings.gate_table} is for storage that several hosts share"
    if settings.has_several_hosts:
        return "several hosts take part"
    return ""


def _delta_rule(settings: Settings, strategy: StrategySpec) -> DeltaRule | None:
    """Return the rule that defines which saves of a strategy are deltas; None if all saves are full."""
    if not strategy.saves_deltas:
        return None
    return DeltaRule(full_every=settings.full_every, changed=settings.changed_pages, operations=settings.operations)


def _with_deltas(asks: Demand, shards: Layout, rule: DeltaRule | None) -> Demand:
    """Return the demand if some saves are deltas: fewer bytes a day, and restores that read more.

    The required rate of a save does not change, because full saves must meet this rate.
    """
    if rule is None:
        return asks
    chain = range(1, rule.deltas + 2)
    written = sum(rule.save_bytes(shards, number) for number in chain) / len(chain) / shards.bytes
    return replace(
        asks,
        load_bytes_per_second=asks.load_bytes_per_second * rule.load_bytes(shards, chain[-1]) / shards.bytes,
        bytes_per_day=asks.bytes_per_day * written,
        sustained_bytes_per_second=asks.sustained_bytes_per_second * written,
    )


def _chain_bytes(shards: Layout, rule: DeltaRule | None, one: int) -> int:
    """Return the correction of the planned space if some checkpoints are deltas. The correction may be negative.

    The planned space counts each checkpoint as full, with ``one`` bytes. The correction includes an additional chain
    (`DeltaRule.surviving_chain`), which exists while the other checkpoints are deleted.
    """
    if rule is None:
        return 0
    sizes = {
        number: rule.files_bytes(shards, number) + shards.processes * _FILE_OVERHEAD_BYTES
        for number in (*range(1, rule.operations + 1), *rule.surviving_chain)
        if rule.is_delta(number)
    }
    own = sum(sizes.get(number, one) for number in rule.surviving_chain)
    return own + sum(sizes[number] - one for number in range(1, rule.operations + 1) if number in sizes)


def _state_memory(
    shards: Layout, engine: EngineSpec, strategy: StrategySpec, rule: DeltaRule | None, *, loads_others: bool
) -> list[int]:
    """Return, for each rank, the part of its memory that depends on the size of the model.

    If ranks load each other's files (``loads_others``), every rank needs at least the memory of the largest rank. With
    deltas, a rank also needs memory for its largest delta file.
    """
    own = shards.rank_bytes
    files = [largest_file_bytes(shard, engine.files) if engine.memory.file_share else 0 for shard in shards.ranks()]
    alone = [engine.memory.state_bytes(each, file) for each, file in zip(own, files, strict=True)]
    alone[0] += consolidating_bytes(shards, engine.files)
    maximum = max(alone) if loads_others and not engine.is_collective else 0
    times = 2 if strategy.stages else 1
    deltas = [times * rule.largest_file_bytes(shard) for shard in shards.ranks()] if rule else [0] * len(own)
    return [
        max(strategy.memory_bytes(needed, each), maximum) + of_delta
        for needed, each, of_delta in zip(alone, own, deltas, strict=True)
    ]


def _over_hosts(memory: list[int], settings: Settings) -> tuple[int, ...]:
    """Return the total memory of the ranks on each host. Launchers fill the slots of one host before the next host."""
    if not settings.hosts:
        return (sum(memory),)
    sums, start = [], 0
    for host in settings.hosts:
        sums.append(sum(memory[start : start + host.slots]))
        start += host.slots
    sums[0] += sum(memory[start:])
    return tuple(sums)


def _checkpoint_to_plain(planned: PlannedCheckpoint, *, ranks: bool) -> dict[str, Any]:
    """Return a planned measurement in plain JSON types; ``ranks`` adds every file of every rank."""
    shards = planned.layout
    plain = {
        "subject": str(planned.subject),
        "model": shards.model.name,
        "mode": shards.mode,
        "processes": shards.processes,
        "scale": shards.scale,
        "operations": planned.operations,
        "bytes": shards.bytes,
        "full_bytes": shards.full_bytes,
        "files": planned.files,
        "published": CHECKPOINT_SIZES.get((shards.model.name, shards.mode), ""),
        "save_bytes_per_second": planned.demand.save_bytes_per_second,
        "load_bytes_per_second": planned.demand.load_bytes_per_second,
        "save_limit_seconds": planned.demand.save_limit_seconds,
        "load_limit_seconds": planned.demand.load_limit_seconds,
        "space_bytes": planned.space_bytes,
        "engine": planned.engine.to_plain(),
        "strategy": planned.strategy.name,
        "memory_bytes": {
            "largest_rank": planned.largest_rank_memory_bytes,
            "largest_host": max(planned.host_memory_bytes),
            "after_ramp": {str(depth): memory for depth, memory in planned.memory_after_ramp.items()},
        },
        "demand": to_plain(planned.demand),
        "not_run": planned.not_run or None,
        "rehearsal": planned.rehearsal or None,
        "scenarios": list(planned.scenarios),
        "deltas": to_plain(planned.deltas) if planned.deltas else None,
        "drains": to_plain(planned.drains) if planned.drains else None,
    }
    if shards.model.own:
        plain["definition"] = to_plain(shards.model)
    if ranks:
        plain["ranks"] = [rank_to_plain(rank, planned.engine.files) for rank in shards.ranks()]
    return plain

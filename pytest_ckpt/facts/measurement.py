"""Measurements of one checkpoint layout: saves and loads, and the results of patterns.

A pattern is an additional measurement. Examples are loads in which each rank reads another rank's files, and saves
during other work.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal

from pytest_ckpt.facts.across_hosts import HostWaits
from pytest_ckpt.facts.bounds import Bounds, Count, CountFromOne, NotNegative, Positive, Share
from pytest_ckpt.facts.client_ceiling import ClientCeiling
from pytest_ckpt.facts.commands import Failover, Snapshots, Upgrade
from pytest_ckpt.facts.compression import Compression
from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.facts.host_load import HostLoad
from pytest_ckpt.facts.many_names import Metadata
from pytest_ckpt.facts.models import Mode
from pytest_ckpt.facts.proofs import CacheFacts, ClientProofs, Durability, Integrity
from pytest_ckpt.facts.request_depth import RequestDepth
from pytest_ckpt.facts.requests import Requests
from pytest_ckpt.facts.strategy_results import Chains, Crashes, DrainRule, Preempted, Tiers, Training
from pytest_ckpt.facts.subject import Pattern, Subject

OperationKind = Literal["save", "load"]
Basis = Literal["all ranks", "inferred from rank 0", "rank 0 only"]
"""The source of an operation's time, as in `Measurement.basis`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One save or load of one checkpoint by all ranks.

    - ``seconds``: the time that is judged. It ends when the slowest rank is done and, for a save, the checkpoint is
      committed.
    - ``rank_seconds``: the times of the ranks without the commit, in rank order.
    - ``phases``: the seconds of the slowest rank in each phase: open, write or read, fsync, close and directory. A save
      has two more phases: coordination (until rank 0 knows that all ranks are done), and rank 0's commit.
    - ``checkpoint``: the number of the checkpoint.
    - ``mapped_bytes``: the bytes to read in a load.
    - ``resident_bytes``: the part of ``mapped_bytes`` that was in the page cache when the clock started.
    - ``basis``: the source of ``seconds``: all ranks, an inference from rank 0, or only rank 0.
    - ``at_least_seconds``: if set, the time is at least ``at_least_seconds`` and at most ``seconds``.
    - ``slowest_rank``, ``rank0_seconds``: None if unknown, as in some results of other tools.

    A save has three more times. Each time runs from the barrier until the last rank reached the point; None if not
    measured.

    - ``returned_seconds``: the job could continue.
    - ``staged_seconds``: the job could change its state.
    - ``stored_seconds``: all bytes were durable.

    ``copying_seconds`` is the time for copying the state in the client's memory. Without the copy, the job could
    continue and change its state earlier by this time.

    Two times show how much the client itself may have delayed the operation; None if not measured.

    - ``stalled_seconds``: the time in which reads of a load waited until the client had compared received data (the
      mean wait of a rank's readers). Without these waits, the load would end earlier by about this time or less.
    - ``starved_seconds``: the longest wait of one thread for a CPU. Only the part that lengthens the slowest rank's
      time counts. The storage may have been busy for another thread during the wait. None if the kernel does not count
      waits, or if other work ran in the same ranks.
    """

    kind: OperationKind
    index: Annotated[int, Bounds(ge=1, le=100_000)]
    seconds: Annotated[float, Bounds(ge=1e-9, le=1e9)]
    slowest_rank: Count | None
    rank0_seconds: NotNegative | None
    rank_seconds: tuple[NotNegative, ...]
    phases: dict[str, NotNegative]
    bytes: Count
    checkpoint: Count = 0
    mapped_bytes: Count | None = None
    resident_bytes: Count | None = None
    basis: Basis = "all ranks"
    at_least_seconds: NotNegative | None = None
    returned_seconds: NotNegative | None = None
    staged_seconds: NotNegative | None = None
    copying_seconds: NotNegative | None = None
    stored_seconds: NotNegative | None = None
    stalled_seconds: NotNegative | None = None
    starved_seconds: NotNegative | None = None

    @property
    def bytes_per_second(self) -> float:
        """The throughput of the operation, over all ranks."""
        return self.bytes / self.seconds

    @property
    def least_seconds(self) -> float:
        """The minimum time of the operation: ``at_least_seconds`` if set, else ``seconds``."""
        return self.seconds if self.at_least_seconds is None else self.at_least_seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Retention:
    """The seconds of deletes and saves, if the job retains only the newest ``kept`` checkpoints.

    - ``delete_seconds``: each delete, between saves and without concurrent work.
    - ``save_seconds``: the median of the saves.
    - ``save_while_deleting_seconds``: one more save, with a concurrent delete.
    """

    kept: Count
    delete_seconds: tuple[NotNegative, ...]
    save_seconds: Positive
    save_while_deleting_seconds: Positive


@dataclass(frozen=True, kw_only=True, slots=True)
class DataEffect:
    """The seconds of saves and loads of unique data and of constant data, which alternate.

    Storage may deduplicate or compress constant data. ``fault_count`` is the number of faults in the loaded data.
    """

    unique_save_seconds: tuple[NotNegative, ...]
    constant_save_seconds: tuple[NotNegative, ...]
    unique_load_seconds: tuple[NotNegative, ...]
    constant_load_seconds: tuple[NotNegative, ...]
    fault_count: Count = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class RestartReads:
    """The bytes that a cluster reads when it restarts, at full size.

    - ``first_copy_bytes``, ``copy_bytes``: the bytes for the first copy of the model, and for each further copy.
    - ``accelerators_per_copy``: the number of accelerators that share a copy.
    - ``copies``: the number of complete copies of the model that the ranks of the run read concurrently. If these ranks
      have at most one copy, the number is 0. Each rank then simulated the first rank of another copy.
    """

    copies: Count
    accelerators_per_copy: CountFromOne
    first_copy_bytes: Count
    copy_bytes: Count

    def copies_of(self, accelerators: int) -> int:
        """Return the number of copies of the model in a cluster of ``accelerators``. A restart loads all copies."""
        return max(1, accelerators // self.accelerators_per_copy)

    def bytes_of(self, copies: int) -> int:
        """Return the bytes that a restart reads if the cluster has ``copies`` copies of the model."""
        return self.first_copy_bytes + (copies - 1) * self.copy_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadPattern:
    """The result of a pattern in which ranks load files that other ranks saved.

    - ``reads``: a description of the files that each rank reads.
    - ``rank_bytes``: the bytes that each rank reads; 0 if the rank only waits.
    - ``restart``: for the pattern storm, the reads of a cluster restart; None for other patterns.
    """

    reads: str
    rank_bytes: tuple[Count, ...]
    operations: tuple[Operation, ...]
    integrity: Integrity
    restart: RestartReads | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Resized:
    """Loads of a checkpoint of ``saved_by`` ranks by another number of ranks, each in a separate launch.

    The engine's library loads and reshards the checkpoint.

    - ``halved``, ``doubled``: the loads by half as many and by twice as many ranks.
    - ``not_run``: {``halved`` or ``doubled``: the reason why the ranks of this load could not be started}.
    - ``failure``: if a launch did not complete, how its ranks ended.
    """

    saved_by: CountFromOne
    halved: LoadPattern | None = None
    doubled: LoadPattern | None = None
    not_run: dict[str, str] = field(default_factory=dict)
    failure: Failure | None = None

    @property
    def loads(self) -> dict[str, LoadPattern]:
        """{``halved`` or ``doubled``: result of the load}, for the loads that were measured."""
        return {name: found for name, found in (("halved", self.halved), ("doubled", self.doubled)) if found}

    @property
    def is_over(self) -> bool:
        """Whether the pattern needs no further launch.

        This is the case if the ranks failed. It is also the case if ``halved`` and ``doubled`` each have a measured
        load or a reason in ``not_run``.
        """
        return self.failure is not None or {"halved", "doubled"} == {*self.loads, *self.not_run}


@dataclass(frozen=True, kw_only=True, slots=True)
class SavePace:
    """The pace of saves that are slowed down, because the storage also serves other work.

    - ``seconds``: the time over which each rank spreads its bytes. A slowed-down save takes this time if the other work
      does not delay it.
    - ``bytes``: the bytes of all tensors in one slowed-down save, over all ranks.
    - ``full_bytes``: the size of a checkpoint at scale 1.0.
    """

    seconds: Positive
    bytes: Count
    full_bytes: CountFromOne

    @property
    def share(self) -> float:
        """The bytes of a slowed-down save, as a share of the full size."""
        return self.bytes / self.full_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class NoisyNeighbour:
    """Saves of two jobs, each on half of the ranks and slowed down to ``pace``.

    A save of one job is measured while the other job saves. The jobs take turns.

    - ``bytes``, ``neighbour_bytes``: the size of one save of the first job, and of one save of the second job.
    - ``save_seconds``, ``neighbour_save_seconds``: the measured saves of the first job, and of the second job.
    - ``concurrent_bytes``: the bytes that each job wrote during the measured saves of the other job, summed over both
      jobs.
    - ``pace``: None in runs of earlier versions, which did not slow down saves.
    """

    ranks: Count
    neighbour_ranks: Count
    bytes: Count
    neighbour_bytes: Count
    save_seconds: tuple[NotNegative, ...] = ()
    neighbour_save_seconds: tuple[NotNegative, ...] = ()
    concurrent_bytes: Count = 0
    pace: SavePace | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class MixedLoad:
    """Saves that are slowed down to ``pace``, while a data loader reads samples on every host.

    Turns without saves ("undisturbed") alternate with turns during saves ("contended"). Except for ``save_seconds``,
    each list has one value per turn.

    - ``reads``: a description of the reads.
    - ``undisturbed_p99_seconds``, ``contended_p99_seconds``: the 99th percentile of the read times.
    - ``undisturbed_reads``, ``contended_reads``: the number of reads.
    - ``save_seconds``: each save during the reads.
    - ``loader_bytes_per_second``: the read rate of each host.
    - ``undisturbed_empty_queue_seconds``, ``empty_queue_seconds``: the time in which training waited for a sample on
      the slowest host. The first list is without saves, the second list with saves.
    - ``client_busy``: the largest share of a turn in which a reading process used a CPU or waited for a CPU.
    - ``pace``: None in runs of earlier versions, which did not slow down saves.
    """

    reads: str
    undisturbed_p99_seconds: tuple[NotNegative, ...]
    contended_p99_seconds: tuple[NotNegative, ...]
    undisturbed_reads: tuple[Count, ...]
    contended_reads: tuple[Count, ...]
    save_seconds: tuple[NotNegative, ...]
    loader_bytes_per_second: NotNegative = 0.0
    empty_queue_seconds: tuple[NotNegative, ...] = ()
    undisturbed_empty_queue_seconds: tuple[NotNegative, ...] = ()
    client_busy: NotNegative = 0.0
    pace: SavePace | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Endurance:
    """A long series of saves. Only the newest ``kept`` checkpoints are retained.

    - ``requested_seconds``: the requested duration. If it is 0, the series ended when the save times were steady, or at
      a maximum number of saves.
    - ``seconds``: the actual duration.
    - ``start_seconds``, ``save_seconds``: the start and the duration of each save.
    """

    requested_seconds: NotNegative
    seconds: NotNegative
    kept: Count
    start_seconds: tuple[NotNegative, ...]
    save_seconds: tuple[NotNegative, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FillLevel:
    """The seconds of saves at one fill level of a volume.

    - ``requested``: the requested level, as a share of the volume; 0 for the original level of the volume.
    - ``used``: the actual level, as a share of the volume.
    - ``ballast_bytes``: the bytes that were written only to reach the level.
    """

    requested: Share
    used: Share
    ballast_bytes: Count
    save_seconds: tuple[NotNegative, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class NearFull:
    """Saves on a volume at its original fill level, and at increasing fill levels."""

    capacity_bytes: Count
    levels: tuple[FillLevel, ...]


ClientUnit = Literal["hosts", "ranks"]
"""The unit of client counts: a host if several hosts took part, else a rank."""


def clients_of_run(hosts: int, ranks: int) -> tuple[int, ClientUnit]:
    """Return (number of clients, unit of a client).

    The clients are the hosts if there are several hosts, else the ranks.
    """
    return (hosts, "hosts") if hosts > 1 else (ranks, "ranks")


@dataclass(frozen=True, kw_only=True, slots=True)
class ScaledOperation:
    """A save or load by some of the clients.

    The time ends when the slowest rank is done and, for a save, the checkpoint is committed. ``mapped_bytes`` are the
    bytes to read in a load. ``resident_bytes`` is the part of these bytes that was in page caches before the load. Both
    counts are None if unknown.
    """

    seconds: NotNegative
    resident_bytes: Count | None = None
    mapped_bytes: Count | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientCount:
    """Repeated saves and loads by ``clients`` clients at the same time. The clients have ``ranks`` ranks in total.

    One save or load transfers ``bytes``.
    """

    clients: CountFromOne
    ranks: CountFromOne
    bytes: CountFromOne
    saves: Annotated[tuple[ScaledOperation, ...], Bounds(min_length=1)]
    loads: Annotated[tuple[ScaledOperation, ...], Bounds(min_length=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scaling:
    """Saves and loads by increasing numbers of clients.

    Each round uses every number of clients. Therefore a drift during the measurement affects all numbers equally.
    """

    unit: ClientUnit
    counts: Annotated[tuple[ClientCount, ...], Bounds(min_length=2)]
    integrity: Integrity


IoMode = Literal["reads", "mmap"]
"""How weights are read: through a file object, or from a mapping of the file.

Both use the page cache, as serving engines do.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsLoad:
    """One load of the weights by all replicas at the same time, until the slowest reader has its share of the weights.

    - ``is_warm``: the same readers had loaded the same bytes immediately before this load.
    - ``mapped_bytes``: the bytes to read; None if unknown.
    - ``resident_bytes``: the part of ``mapped_bytes`` that was in page caches before the load.
    - ``stalled_seconds``: as that of an operation.
    """

    io_mode: IoMode
    is_warm: bool
    seconds: NotNegative
    slowest_rank: Count
    resident_bytes: Count | None
    mapped_bytes: Count | None
    integrity: Integrity
    stalled_seconds: NotNegative = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Serving:
    """Loads of ``bytes`` of weights in ``files`` files; at full size, the weights have ``full_bytes``.

    Each of ``replicas`` replicas reads all files with ``readers`` ranks. Each reader reads a share of every file.
    """

    bytes: Count
    full_bytes: Count
    files: Count
    replicas: Count
    readers: Count
    loads: Annotated[tuple[WeightsLoad, ...], Bounds(min_length=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Consolidation:
    """One client reads ``bytes`` of weights that other clients wrote, and writes a copy of the weights.

    ``full_bytes`` is the size of the weights at scale 1.0. ``seconds`` is the time from the first read to the commit of
    the copy. ``integrity`` is the result of the comparison of the copy.
    """

    bytes: Count
    full_bytes: Count
    seconds: NotNegative
    integrity: Integrity


@dataclass(frozen=True, kw_only=True, slots=True)
class Patterns:
    """The results of patterns: loads and saves in addition to the subject's own loads and saves.

    A result is None if the pattern was not measured.

    - ``storm``: all replicas read the same files at the same time.
    - ``shifted``: each rank reads another rank's files.
    - ``joined``: half as many readers as writers.
    - ``split``: two readers for each file.
    - ``resized``: the engine's library loads with half and with twice as many ranks.
    - ``neighbour``: a second job saves at the same time.
    - ``mixed``: saves while a data loader reads samples.
    - ``endurance``: saves for a long time.
    - ``near_full``: saves on a volume that is almost full.
    - ``failover``: saves and loads with injected faults.
    - ``upgrade``: saves and loads while the storage is changed.
    - ``snapshots``: saves during which a snapshot is taken.
    - ``training``: simulated training steps during the subject's own saves.
    - ``crashes``: background saves whose processes are killed.
    - ``chains``: a chain of deltas is loaded after older checkpoints were deleted.
    - ``tiers``: saves to a local tier with and without a drain, and restores from a complete and an incomplete tier.
    - ``preempt``: saves after a preemption notice.
    - ``serving``: replicas load only the weights.
    - ``consolidation``: one client rewrites the weights.
    - ``compression``: saves and loads with and without a codec.
    - ``scaling``: saves and loads by increasing numbers of clients.
    - ``metadata``: calls on the names of many empty files.

    ``not_run`` is {name of a pattern: reason why it was not measured}.
    """

    storm: LoadPattern | None = None
    shifted: LoadPattern | None = None
    joined: LoadPattern | None = None
    split: LoadPattern | None = None
    resized: Resized | None = None
    neighbour: NoisyNeighbour | None = None
    mixed: MixedLoad | None = None
    endurance: Endurance | None = None
    near_full: NearFull | None = None
    failover: Failover | None = None
    upgrade: Upgrade | None = None
    snapshots: Snapshots | None = None
    training: Training | None = None
    crashes: Crashes | None = None
    chains: Chains | None = None
    tiers: Tiers | None = None
    preempt: Preempted | None = None
    serving: Serving | None = None
    consolidation: Consolidation | None = None
    compression: Compression | None = None
    scaling: Scaling | None = None
    metadata: Metadata | None = None
    not_run: dict[str, str] = field(default_factory=dict)

    def result_of(self, name: Pattern) -> Any:
        """Return the result of the pattern ``name``; None if not measured.

        Raises AttributeError for an unknown pattern.
        """
        return getattr(self, name)


PATTERN_NAMES = tuple(field.name for field in fields(Patterns) if field.name != "not_run")
"""The names of all patterns, which are fields of `Patterns`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankFacts:
    """The process of one rank. ``peak_memory_bytes`` is its largest resident set size."""

    rank: Count
    host: str
    pid: Count
    peak_memory_bytes: Count = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """All facts about one checkpoint layout on the target: the input of requirements on saves and loads.

    - ``bytes``, ``full_bytes``: the size of a checkpoint as written, and at scale 1.0.
    - ``operations``: the subject's own saves and loads.
    - ``stages``: {activity: seconds} of the whole measurement.
    - ``failure``: why the measurement ended early; None if it completed.
    - ``save_bytes``, ``load_bytes``: the bytes of each save and each restore, in the order of the checkpoints' numbers.
      Empty if every save and restore transfers one complete checkpoint.
    - ``drains``: how many of the saves to a local tier are drained (copied) to the target.
    - ``host_waits``: the waits before clocks started, in which a host waited for another host's files; None on a single
      host.
    - ``requests``: the requests of the own saves and loads to an object store.
    - ``client_proofs``: evidence on the ranks' fsync and clocks.
    - ``host_loads``: the highest load of each host in each span; empty if the kernel does not count the load.
    - ``depth``: requests in flight with the engine ``stream``; None for other engines.
    - ``client_ceilings``: the maximum rates of each host without storage; empty if not measured.
    """

    subject: Subject
    model: str
    mode: Mode
    processes: Annotated[int, Bounds(ge=1, le=16_384)]
    hosts: tuple[str, ...]
    engine: str
    scale: Annotated[float, Bounds(gt=0, le=1)]
    seed: int
    bytes: Count
    full_bytes: Count
    rank_bytes: tuple[Count, ...]
    basis: Basis
    operations_planned: Annotated[int, Bounds(ge=0, le=100_000)]
    operations: tuple[Operation, ...]
    cache: CacheFacts | None
    integrity: Integrity | None
    durability: Durability | None
    stages: dict[str, NotNegative] = field(default_factory=dict)
    ranks: tuple[RankFacts, ...] = ()
    engine_facts: dict[str, str] = field(default_factory=dict)
    retention: Retention | None = None
    data: DataEffect | None = None
    patterns: Patterns | None = None
    failure: Failure | None = None
    launch: str = ""
    save_bytes: tuple[Count, ...] = ()
    load_bytes: tuple[Count, ...] = ()
    drains: DrainRule | None = None
    host_waits: HostWaits | None = None
    requests: tuple[Requests, ...] = ()
    client_proofs: ClientProofs | None = None
    host_loads: tuple[HostLoad, ...] = ()
    depth: RequestDepth | None = None
    client_ceilings: tuple[ClientCeiling, ...] = ()

    @property
    def share(self) -> float:
        """The written size as a share of the full size."""
        return self.bytes / self.full_bytes

    def bytes_of(self, operation: Operation) -> int:
        """Return the bytes of tensors that a save or load transfers."""
        each = self.save_bytes if operation.kind == "save" else self.load_bytes
        return each[operation.checkpoint - 1] if each else self.bytes

    def whole(self, kind: OperationKind) -> tuple[Operation, ...]:
        """Return the saves or loads (``kind``) that transfer exactly one complete checkpoint.

        The result excludes saves of deltas and restores of chains.
        """
        return tuple(o for o in self.of_kind(kind) if self.bytes_of(o) == self.bytes)

    def of_kind(self, kind: OperationKind) -> tuple[Operation, ...]:
        """Return all saves or all loads (``kind``), in the order in which they ran."""
        return tuple(o for o in self.operations if o.kind == kind)


def with_patterns_of(measurement: Measurement, added: Measurement) -> Measurement:
    """Return ``measurement`` with the patterns that only ``added`` contains. Both have the same subject.

    The saves and loads are unchanged. If ``measurement`` has no failure, the result has the failure of ``added``.
    """
    own, other = measurement.patterns or Patterns(), added.patterns or Patterns()
    names = [name for name in PATTERN_NAMES if own.result_of(name) is None]
    found = {name: other.result_of(name) for name in names}
    not_run = {name: reason for name, reason in other.not_run.items() if name in names and name not in own.not_run}
    if not any(value is not None for value in found.values()) and not not_run and not added.failure:
        return measurement
    patterns = replace(own, **found, not_run=own.not_run | not_run)
    loads = tuple(load for load in added.host_loads if found.get(load.span) is not None)
    return replace(
        measurement,
        patterns=patterns,
        failure=measurement.failure or added.failure,
        host_loads=measurement.host_loads + loads,
    )

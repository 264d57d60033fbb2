"""Measurements of one checkpoint layout: operations, and the results of restore patterns and of concurrent work."""

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

    ``seconds`` is the judged time. It ends when the slowest rank is done and, for a save, the checkpoint is committed.
    ``rank_seconds`` are the times of the ranks in rank order, without the commit. ``phases`` are the seconds of the
    slowest rank: open, write or read, fsync, close, directory; then coordination (until rank 0 knows that all ranks are
    done) and commit, which rank 0 performs. ``checkpoint`` is the number of the checkpoint. For a load,
    ``resident_bytes`` of the ``mapped_bytes`` to be read were in the page cache when the clock started. ``basis`` is
    the source of ``seconds``. Results of other tools may lack ranks: then ``slowest_rank`` and ``rank0_seconds`` may be
    None. If ``at_least_seconds`` is set, ``seconds`` is only an upper bound.

    A save has three more times, from the barrier until the last rank reached a point. ``returned_seconds``: the job
    could continue; ``staged_seconds``: it could change its state; ``stored_seconds``: all bytes were durable.
    ``copying_seconds`` is the time of copying the state in the client's memory; without the copy, the first two points
    would be this much earlier. None: not measured.

    ``stalled_seconds`` is the time in which the reads of a load waited for the client to compare received data. Without
    these waits, the load would have ended earlier by at most this time. None: not measured. ``starved_seconds`` is the
    time in which ranks waited for a CPU, as far as it contributes to the slowest rank's time. The longest wait of one
    thread of a rank counts, even if the storage was busy for another thread. None: the kernel does not count it, or
    other work ran in the same ranks.
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
        """The time that the operation took at least: ``seconds``, or the lower bound if only bounds are known."""
        return self.seconds if self.at_least_seconds is None else self.at_least_seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Retention:
    """The cost of deletes, in seconds, if only the newest ``kept`` checkpoints are retained.

    The deletes themselves ran between saves, without concurrent work. ``save_seconds`` is the median of the saves;
    ``save_while_deleting_seconds`` is the time of one more save, with a concurrent delete.
    """

    kept: Count
    delete_seconds: tuple[NotNegative, ...]
    save_seconds: Positive
    save_while_deleting_seconds: Positive


@dataclass(frozen=True, kw_only=True, slots=True)
class DataEffect:
    """The times in seconds of saves and loads, alternately with unique and with constant data.

    ``fault_count`` is the number of faults in the loaded data.
    """

    unique_save_seconds: tuple[NotNegative, ...]
    constant_save_seconds: tuple[NotNegative, ...]
    unique_load_seconds: tuple[NotNegative, ...]
    constant_load_seconds: tuple[NotNegative, ...]
    fault_count: Count = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class RestartReads:
    """The bytes that a cluster reads when it restarts, at full size.

    The load of the first copy of the model reads ``first_copy_bytes``, the load of each further copy ``copy_bytes``. A
    copy is on ``accelerators_per_copy`` accelerators. ``copies`` is the number of complete copies that were read
    concurrently in the run. 0: the ranks have only one copy, and each rank simulated a part of another copy.
    """

    copies: Count
    accelerators_per_copy: CountFromOne
    first_copy_bytes: Count
    copy_bytes: Count

    def copies_of(self, accelerators: int) -> int:
        """Return the number of copies of the model in a cluster of ``accelerators``. A restart loads all copies."""
        return max(1, accelerators // self.accelerators_per_copy)

    def bytes_of(self, copies: int) -> int:
        """Return the bytes that a restart reads, for this number of copies."""
        return self.first_copy_bytes + (copies - 1) * self.copy_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadPattern:
    """Loads in which ranks read files that other ranks wrote, in addition to the subject's own loads.

    ``reads`` describes which files each rank reads, ``rank_bytes`` is the number of bytes that each rank reads (0: the
    rank only waits). For a storm, ``restart`` describes the reads of a cluster restart; None for the other patterns.
    """

    reads: str
    rank_bytes: tuple[Count, ...]
    operations: tuple[Operation, ...]
    integrity: Integrity
    restart: RestartReads | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Resized:
    """Loads of a checkpoint of ``saved_by`` ranks by another number of ranks, each number in a separate launch.

    The library of the engine loads and reshards: ``halved`` by half as many ranks, ``doubled`` by twice as many.
    ``not_run`` maps one of these names to the reason why its ranks could not be started. ``failure`` is how the ranks
    ended if they did not complete.
    """

    saved_by: CountFromOne
    halved: LoadPattern | None = None
    doubled: LoadPattern | None = None
    not_run: dict[str, str] = field(default_factory=dict)
    failure: Failure | None = None

    @property
    def loads(self) -> dict[str, LoadPattern]:
        """The measured loads, by ``halved`` and ``doubled``."""
        return {name: found for name, found in (("halved", self.halved), ("doubled", self.doubled)) if found}

    @property
    def is_over(self) -> bool:
        """Whether no launch of this pattern is left: the ranks failed, or both numbers of ranks were measured or not
        run.
        """
        return self.failure is not None or {"halved", "doubled"} == {*self.loads, *self.not_run}


@dataclass(frozen=True, kw_only=True, slots=True)
class SavePace:
    """The pace of saves that share the storage with other work.

    Each rank spreads its bytes over ``seconds``, which is the time of an undisturbed save. Each of these saves writes
    ``bytes`` of tensors over all ranks; ``full_bytes`` is the size of a checkpoint at scale 1.0.
    """

    seconds: Positive
    bytes: Count
    full_bytes: CountFromOne

    @property
    def share(self) -> float:
        """The bytes of one of these saves, as a share of the full size."""
        return self.bytes / self.full_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class NoisyNeighbour:
    """Saves of two jobs with half of the ranks each, slowed down to a `SavePace`.

    The measured saves of the two jobs take turns. During a measured save, the other job saves too. ``bytes`` and
    ``neighbour_bytes`` are the bytes of one save of the first and of the second job. ``save_seconds`` and
    ``neighbour_save_seconds`` are the seconds of their measured saves. ``concurrent_bytes`` is the total that the other
    job wrote during these saves. ``pace`` is None in runs of earlier versions, which did not slow down the saves.
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
    """Saves that are slowed down to a `SavePace`, while a data loader reads samples on every host.

    The reads are measured in turns, alternately without and with saves. ``undisturbed_p99_seconds`` and
    ``contended_p99_seconds``: the 99th percentile of the read times in seconds, for each turn; ``undisturbed_reads``
    and ``contended_reads``: the number of reads in each turn; ``save_seconds``: the times of all saves during the
    reads. ``reads`` describes the reads. Each host reads ``loader_bytes_per_second``.

    ``empty_queue_seconds`` is the time in which training waited for a sample on the slowest host, for each turn with
    saves; ``undisturbed_empty_queue_seconds`` the same for each turn without saves. ``client_busy`` is the largest
    share of a turn in which a reading process used a CPU or waited for a CPU. ``pace`` is None in runs of earlier
    versions, which did not slow down the saves.
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
    """A series of consecutive saves: the start and the seconds of each. The newest ``kept`` checkpoints are retained.

    The saves continued for ``seconds``. ``requested_seconds`` is the requested duration; 0 if the saves only had to
    become steady.
    """

    requested_seconds: NotNegative
    seconds: NotNegative
    kept: Count
    start_seconds: tuple[NotNegative, ...]
    save_seconds: tuple[NotNegative, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FillLevel:
    """The seconds of saves at one fill level of a volume.

    ``requested`` and ``used`` are shares of the volume; 0: the original level. ``ballast_bytes`` were written to reach
    the level.
    """

    requested: Share
    used: Share
    ballast_bytes: Count
    save_seconds: tuple[NotNegative, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class NearFull:
    """Saves on a volume at its original level, and at increasing fill levels."""

    capacity_bytes: Count
    levels: tuple[FillLevel, ...]


ClientUnit = Literal["hosts", "ranks"]
"""The unit of client counts: a host if several hosts took part, else a rank."""


def clients_of_run(hosts: int, ranks: int) -> tuple[int, ClientUnit]:
    """Return (count of clients, their unit): the hosts that took part if there are several, else the ranks."""
    return (hosts, "hosts") if hosts > 1 else (ranks, "ranks")


@dataclass(frozen=True, kw_only=True, slots=True)
class ScaledOperation:
    """A save or load by some of the clients: the time until the slowest rank was done and, for a save, the commit."""

    seconds: NotNegative
    resident_bytes: Count | None = None
    mapped_bytes: Count | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientCount:
    """Repeated saves and loads by ``clients`` concurrent clients. They have ``ranks`` ranks in total; each operation
    moves ``bytes``.
    """

    clients: CountFromOne
    ranks: CountFromOne
    bytes: CountFromOne
    saves: Annotated[tuple[ScaledOperation, ...], Bounds(min_length=1)]
    loads: Annotated[tuple[ScaledOperation, ...], Bounds(min_length=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scaling:
    """Saves and loads by different counts of clients. Each round runs all counts, so drift affects them equally."""

    unit: ClientUnit
    counts: Annotated[tuple[ClientCount, ...], Bounds(min_length=2)]
    integrity: Integrity


IoMode = Literal["reads", "mmap"]
"""How weights are read: through a file object, or from a mapping of the file.

Both use the page cache, as serving engines do.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsLoad:
    """One load of the weights by all replicas concurrently. It ends when the slowest reader has its part of the
    weights.

    ``is_warm``: the load directly followed a load of the same bytes by the same readers. Before the load,
    ``resident_bytes`` of ``mapped_bytes`` were in the page caches of readers; None if unknown. ``stalled_seconds`` is
    the time in which reads waited for the client to compare received data. Without these waits, the load would have
    ended earlier by at most this time.
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
    """Loads of ``bytes`` of weights (``full_bytes`` at full size) in ``files`` files.

    Each of ``replicas`` replicas reads all files with ``readers`` ranks; each of these ranks reads a part of every
    file.
    """

    bytes: Count
    full_bytes: Count
    files: Count
    replicas: Count
    readers: Count
    loads: Annotated[tuple[WeightsLoad, ...], Bounds(min_length=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Consolidation:
    """One client reads ``bytes`` of weights that other clients wrote (``full_bytes`` at full size), and writes them
    again.

    ``seconds``: from the first read until the copy was committed. ``integrity`` describes the copy.
    """

    bytes: Count
    full_bytes: Count
    seconds: NotNegative
    integrity: Integrity


@dataclass(frozen=True, kw_only=True, slots=True)
class Patterns:
    """The results of patterns: loads and saves during other work, or by ranks other than the writers.

    ``storm``: all replicas read the same files concurrently. ``shifted``: each rank reads another rank's files.
    ``joined``: half as many readers as writers. ``split``: two readers for each file. ``resized``: the engine's library
    loads with half and with twice as many ranks. ``neighbour``: a second job saves concurrently. ``mixed``: samples are
    read concurrently. ``endurance``: saves for a long time. ``near_full``: saves on a volume that is almost full.
    ``failover``: a fault is injected during saves and loads. ``upgrade``: the storage is changed while it serves.
    ``snapshots``: a snapshot is taken during a save. ``training``: steps run during the subject's own saves.
    ``crashes``: the processes of background saves are killed. ``chains``: checkpoints that are older than a chain of
    deltas are deleted. ``tiers``: saves to a local tier with and without a concurrent drain, and restores from a
    complete and from an incomplete tier. ``preempt``: saves that jobs begin after a preemption notice. ``serving``:
    replicas load only the weights. ``consolidation``: one client rewrites the weights. ``compression``: saves through a
    codec and plain saves, alternately. ``scaling``: growing counts of clients save and load. ``metadata``: many empty
    files are created, looked up, listed and removed. ``not_run`` maps one of these names to the reason why it was not
    measured.
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

    def found(self, name: Pattern) -> Any:
        """Return the record of one pattern; None if it was not measured. Raises AttributeError for another name."""
        return getattr(self, name)


PATTERN_NAMES = tuple(field.name for field in fields(Patterns) if field.name != "not_run")
"""The names of all patterns, which are fields of `Patterns`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankFacts:
    """The process of one rank. ``peak_memory_bytes`` is its largest resident set."""

    rank: Count
    host: str
    pid: Count
    peak_memory_bytes: Count = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """All facts about one checkpoint layout on the target: the input of every requirement.

    ``bytes`` is the size of a checkpoint as it was written, ``full_bytes`` its size at scale 1.0. ``stages`` are the
    seconds of the whole measurement by activity. ``failure`` is None if every step was completed. ``save_bytes`` and
    ``load_bytes`` are the bytes of each save and each restore, by the number of the checkpoint; empty if each save and
    restore moves one complete checkpoint. ``drains`` defines which saves are drained from a local tier to the target.
    ``host_waits``: the waits of hosts before clocks started; None on a single host. ``requests`` are the network
    requests of the subject's own saves and loads. ``client_proofs`` shows whether the ranks' fsync and clocks can be
    trusted. ``host_loads`` shows, for each host and span, the load of the host when it was highest; empty if the kernel
    does not count it. ``depth`` is the number of requests in flight of engine ``stream``; None for other engines.
    ``client_ceilings`` are the maximum rates of each host without storage; empty if they were not measured.
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
        """The size that was written, as a share of the full size."""
        return self.bytes / self.full_bytes

    def bytes_of(self, operation: Operation) -> int:
        """Return the bytes of tensors that a complete operation moves."""
        each = self.save_bytes if operation.kind == "save" else self.load_bytes
        return each[operation.checkpoint - 1] if each else self.bytes

    def whole(self, kind: OperationKind) -> tuple[Operation, ...]:
        """Return the operations of one kind that move one complete checkpoint: no deltas, and no restores of chains."""
        return tuple(o for o in self.of_kind(kind) if self.bytes_of(o) == self.bytes)

    def of_kind(self, kind: OperationKind) -> tuple[Operation, ...]:
        """Return the operations of one kind, in the order they ran."""
        return tuple(o for o in self.operations if o.kind == kind)


def with_patterns_of(measurement: Measurement, added: Measurement) -> Measurement:
    """Return ``measurement`` with the patterns of ``added``, another measurement of the same subject.

    The saves and loads remain unchanged. A failure in an added pattern is a failure of the whole measurement.
    """
    own, other = measurement.patterns or Patterns(), added.patterns or Patterns()
    names = [name for name in PATTERN_NAMES if own.found(name) is None]
    found = {name: other.found(name) for name in names}
    not_run = {name: why for name, why in other.not_run.items() if name in names and name not in own.not_run}
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

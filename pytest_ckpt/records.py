"""The facts of a run, as ranks produce them and files keep them.

Every record is frozen and turns into plain JSON types (`to_plain`) and back (`from_plain`), so that a run can be
judged again from its files alone, for another cluster, without the storage.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

Record = TypeVar("Record")

OperationKind = Literal["save", "load"]
FailureKind = Literal["error", "killed", "hung", "launch", "interrupted", "hook"]
FaultKind = Literal["flipped", "torn", "zeros", "stale", "misplaced", "foreign", "short", "unreadable"]
Severity = Literal["required", "advisory"]
Outcome = Literal["met", "failed", "not run", "waived"]
Grade = Literal["certified", "not certified", "incomplete", "rehearsal"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One save or load of one checkpoint by all ranks.

    ``seconds`` is the operation's result: from the barrier until the slowest rank is done and, for a save, the
    checkpoint is committed. ``rank_seconds`` holds each rank's own time in rank order, without the commit.
    ``phases`` are the seconds of the slowest rank: open, write or read, fsync, close, directory; then coordination
    (until rank 0 knows that all are done) and commit, which rank 0 does for all.
    ``checkpoint`` is the number of the one that was saved or loaded. ``resident_bytes`` of ``mapped_bytes`` about to be
    read were in the page cache when the clock started (loads). ``basis`` says where ``seconds`` is from, in the words
    of `Measurement.basis`; results of others may lack ranks: then ``slowest_rank`` and ``rank0_seconds`` may be None,
    and where ``at_least_seconds`` is set, ``seconds`` is only what it took at most.
    """

    kind: OperationKind
    index: int
    seconds: float
    slowest_rank: int | None
    rank0_seconds: float | None
    rank_seconds: tuple[float, ...]
    phases: dict[str, float]
    bytes: int
    checkpoint: int = 0
    mapped_bytes: int | None = None
    resident_bytes: int | None = None
    basis: str = "all ranks"
    at_least_seconds: float | None = None

    @property
    def bytes_per_second(self) -> float:
        """What the storage took or gave, over all ranks."""
        return self.bytes / self.seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheReading:
    """One published reading of the cache rule, applied to one host. Bytes; ``asks`` says that it wants a drop."""

    rule: str
    host: str
    memory_bytes: int
    bytes_compared: int
    asks: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheFacts:
    """What was done about the clients' page caches, and what was seen of it.

    ``gauge`` is the call that counted resident pages; empty when a file that had just been read showed no
    resident page with any gauge, so that residency cannot be known. ``resident_fraction`` is the largest over the
    loads, None when it could not be measured.
    """

    required: bool
    readings: tuple[CacheReading, ...]
    policy: str
    method: str
    gauge: str
    resident_fraction: float | None
    detail: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A place where what was read is not what was written. ``offset`` is in bytes from the tensor's start."""

    kind: FaultKind
    rank: int
    host: str
    checkpoint: int
    file: str
    tensor: str
    offset: int
    bytes: int
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Integrity:
    """How much was compared. ``faults`` names the first ones of each rank, ``fault_count`` counts all."""

    bytes_expected: int
    bytes_checked: int
    fault_count: int
    faults: tuple[Fault, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Durability:
    """Calls that were made and returned without error, counted over all ranks and saves."""

    files: int
    files_synced: int
    directories: int
    directories_synced: int
    saves: int
    commits: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Retention:
    """What deleting costs when only the newest ``kept`` checkpoints stay. Seconds; deletes between saves, each alone.

    ``save_seconds`` is the median of the saves, ``save_while_deleting_seconds`` one more, with a deletion beside it.
    """

    kept: int
    delete_seconds: tuple[float, ...]
    save_seconds: float
    save_while_deleting_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class DataEffect:
    """Seconds of saves and loads of unique and of constant data, taken in turns; faults in all of these loads."""

    unique_save_seconds: tuple[float, ...]
    constant_save_seconds: tuple[float, ...]
    unique_load_seconds: tuple[float, ...]
    constant_load_seconds: tuple[float, ...]
    fault_count: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadPattern:
    """Loads in which ranks read what other ranks wrote; none of the subject's own loads.

    ``reads`` says who reads what, ``rank_bytes`` how much of it each rank (0: it waits for the others).
    """

    reads: str
    rank_bytes: tuple[int, ...]
    operations: tuple[Operation, ...]
    integrity: Integrity


@dataclass(frozen=True, kw_only=True, slots=True)
class BesideNeighbour:
    """Seconds of saves of some of the ranks, alone and while the others save in bursts as a second job, in turns.

    ``bytes`` is what the first ones save at a time; ``bursts`` (each of a rank) and ``neighbour_bytes`` are what the
    second job completed in all.
    """

    ranks: int
    neighbour_ranks: int
    bytes: int
    alone_seconds: tuple[float, ...]
    beside_seconds: tuple[float, ...]
    bursts: int
    neighbour_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class BesideReads:
    """Saves while samples are read at random, and those reads alone, in turns.

    ``alone_p99_seconds`` and ``beside_p99_seconds`` are the 99th percentile of the seconds of a read in each turn, of
    so many reads (``alone_reads``, ``beside_reads``); ``save_seconds`` those of every save beside them. ``reads`` says
    what is read.
    """

    reads: str
    alone_p99_seconds: tuple[float, ...]
    beside_p99_seconds: tuple[float, ...]
    alone_reads: tuple[int, ...]
    beside_reads: tuple[int, ...]
    save_seconds: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Endurance:
    """Saves one after the other, the newest ``kept`` staying; when each began, and its seconds.

    They went on for ``seconds``; ``asked_seconds`` is 0 where they only had to become steady.
    """

    asked_seconds: float
    seconds: float
    kept: int
    began_seconds: tuple[float, ...]
    save_seconds: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FillLevel:
    """Seconds of saves with the share ``used`` of the volume in use; ``asked`` was wanted (0: the volume as it was).

    ``ballast_bytes`` were written in this step.
    """

    asked: float
    used: float
    ballast_bytes: int
    save_seconds: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class NearFull:
    """Saves on a volume as it was, and filled level by level."""

    capacity_bytes: int
    levels: tuple[FillLevel, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Patterns:
    """What happens to a load or a save when it is not alone, or not of the ranks that wrote it.

    ``storm``: all replicas read the same files at once. ``shifted``: each rank reads another's files. ``joined`` and
    ``split``: half as many readers, and twice as many for each file. ``neighbour``: a second job saves meanwhile.
    ``mixed``: samples are read meanwhile. ``endurance``: saves for long. ``near_full``: on a full volume. ``not_run``
    holds, by the name of one of these, why
    something could not be measured.
    """

    storm: LoadPattern | None = None
    shifted: LoadPattern | None = None
    joined: LoadPattern | None = None
    split: LoadPattern | None = None
    neighbour: BesideNeighbour | None = None
    mixed: BesideReads | None = None
    endurance: Endurance | None = None
    near_full: NearFull | None = None
    not_run: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why a measurement ended early: which rank on which host, in which operation, phase and file.

    ``hook``: a plugin's hook failed, which ``message`` names.
    """

    kind: FailureKind
    message: str
    rank: int | None = None
    host: str = ""
    operation: str = ""
    phase: str = ""
    file: str = ""
    errno: str = ""
    stack: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankFacts:
    """One process. ``peak_memory_bytes`` is its largest resident set."""

    rank: int
    host: str
    pid: int
    peak_memory_bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """All facts about one checkpoint layout on the target; what every requirement judges.

    ``bytes`` is one checkpoint as it was written, ``full_bytes`` the same layout at scale 1.0. ``stages`` are the
    seconds of the whole measurement by what they were spent on. ``failure`` is None only when everything ran.
    """

    subject: str
    model: str
    mode: str
    processes: int
    hosts: tuple[str, ...]
    engine: str
    scale: float
    seed: int
    bytes: int
    full_bytes: int
    rank_bytes: tuple[int, ...]
    basis: str
    operations_planned: int
    operations: tuple[Operation, ...]
    cache: CacheFacts | None
    integrity: Integrity | None
    durability: Durability | None
    stages: dict[str, float] = field(default_factory=dict)
    ranks: tuple[RankFacts, ...] = ()
    engine_facts: dict[str, str] = field(default_factory=dict)
    retention: Retention | None = None
    data: DataEffect | None = None
    patterns: Patterns | None = None
    failure: Failure | None = None
    launch: str = ""

    def of_kind(self, kind: OperationKind) -> tuple[Operation, ...]:
        """Return the operations of one kind, in the order they ran."""
        return tuple(o for o in self.operations if o.kind == kind)


@dataclass(frozen=True, kw_only=True, slots=True)
class Anomaly:
    """Something that a healthy target does not do: ``where`` is the file and offset, or the moment."""

    kind: str
    where: str
    seen: str
    expected: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """What one check of a target's behaviour saw.

    ``trials`` is how often it tried, ``seconds`` how long it took; ``measured`` its figure in ``unit``, where it has
    one. ``anomalies`` names the first ones, ``anomaly_count`` counts all. ``not_run`` is why the check could not be
    made, ``blocked`` the call that did not return within the deadline. ``reproduce`` is the command that makes this
    check again.
    """

    requirement: str
    subject: str
    trials: int = 0
    seconds: float = 0.0
    measured: float | None = None
    unit: str = ""
    anomaly_count: int = 0
    anomalies: tuple[Anomaly, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)
    not_run: str = ""
    blocked: Failure | None = None
    reproduce: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What was decided about one requirement and subject.

    ``margin`` is the share of the limit that was left (negative: by how much it was missed), None where a
    requirement has no scale. ``because`` is one sentence for a person; ``detail`` holds the lines that explain it.
    """

    id: str
    subject: str
    severity: Severity
    outcome: Outcome
    measured: float | None
    limit: float | None
    unit: str
    margin: float | None
    because: str
    detail: str


def to_plain(record: Any) -> Any:
    """Turn records, tuples and mappings into plain JSON types (subclasses of str, int and float become the base)."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {f.name: to_plain(getattr(record, f.name)) for f in dataclasses.fields(record)}
    if isinstance(record, dict):
        return {str(key): to_plain(value) for key, value in record.items()}
    if isinstance(record, list | tuple):
        return [to_plain(value) for value in record]
    if record is None or isinstance(record, bool):
        return record
    if isinstance(record, int):
        return int(record)
    if isinstance(record, float):
        return float(record)
    return str(record)


def from_plain(kind: type[Record], data: Any) -> Record:
    """Build a record from what `to_plain` gave. Unknown keys are ignored, so that older code reads newer files.

    Raises TypeError when a field without a default is missing.
    """
    hints = typing.get_type_hints(kind)
    known = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: _value(hints[name], value) for name, value in data.items() if name in known})


def _value(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _value(next(a for a in args if a is not types.NoneType), value)
    if origin is tuple:
        return tuple(_value(args[0], item) for item in value)
    if dataclasses.is_dataclass(hint):
        return from_plain(typing.cast("type[Any]", hint), value)
    return value


def misfits(record: Any, place: str = "") -> Iterator[str]:
    """Yield a sentence for every value in a record that is not of its field's type; for records of another hand."""
    for name, hint in typing.get_type_hints(type(record)).items():
        yield from _misfits(hint, getattr(record, name), f"{place}.{name}" if place else name)


def _misfits(hint: Any, value: Any, place: str) -> Iterator[str]:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is not None or types.NoneType not in args:
            yield from _misfits(next(a for a in args if a is not types.NoneType), value, place)
    elif origin is tuple and isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from _misfits(args[0], item, f"{place}[{number}]")
    elif origin is dict and isinstance(value, dict):
        for name, item in value.items():
            yield from _misfits(args[1], item, f"{place}.{name}")
    elif dataclasses.is_dataclass(hint) and isinstance(value, typing.cast("type[Any]", hint)):
        yield from misfits(value, place)
    elif not _fits(hint, value, args if origin is Literal else None):
        yield f"{place} is {value!r:.40}"


def _fits(hint: Any, value: Any, words: tuple[Any, ...] | None) -> bool:
    if words is not None:
        return value in words
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return hint is Any or (hint in (str, bool) and isinstance(value, hint))

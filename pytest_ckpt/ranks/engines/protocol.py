"""The protocol of engines, which transfer the bytes of checkpoints to storage and back; one module per engine."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from pytest_ckpt.ranks.process.job import EngineOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_ckpt.facts.failure import Phase
    from pytest_ckpt.facts.proofs import CommitProof, FaultKind
    from pytest_ckpt.ranks.content import Bytes, Content, Finding
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.sizing.models import RankLayout
    from pytest_ckpt.targets.protocol import CommittedCheckpoint, Draft, Sink, Store

_STAND_IN_BYTES = 1 << 20

MAXIMUM_FAULTS_OF_RANK = 20
"""A rank describes at most this number of faults of a checkpoint. It counts all faults."""


@dataclass(kw_only=True, slots=True)
class Clock:
    """Times the phases of one operation on one rank, and reports the phases to the rank's activity.

    ``left_out_seconds`` is the time for which an engine continued to work after the last byte had arrived.
    ``stalled_seconds`` is the time for which its requests waited for this process and not for the storage.
    """

    activity: Activity
    phases: dict[str, float] = field(default_factory=dict)
    left_out_seconds: float = 0.0
    stalled_seconds: float = 0.0

    @contextmanager
    def phase(self, name: Phase, file: str = "") -> Iterator[None]:
        """Add the seconds of the ``with`` block to the phase ``name``, which works on ``file``."""
        with self.activity.in_phase(name, file):
            start = time.perf_counter()
            yield
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start

    def leave_out(self, name: Phase, seconds: float) -> None:
        """Subtract ``seconds`` from the phase ``name``, because they do not belong to the operation."""
        self.phases[name] -= seconds
        self.left_out_seconds += seconds

    def end_pass(self, *, late_seconds: float, stalled_seconds: float, is_last: bool) -> None:
        """Record the end of a pass of reads. Its comparisons ended ``late_seconds`` after its last byte had arrived;
        its reads waited ``stalled_seconds`` for a buffer.

        After the last pass, ``late_seconds`` are left out. After an earlier pass they are a stall, because the reads of
        the next pass waited.
        """
        if is_last:
            self.leave_out("read", late_seconds)
        else:
            self.stalled_seconds += late_seconds
        self.stalled_seconds += stalled_seconds

    def moved(self, count: int) -> None:
        """Count ``count`` further transferred bytes."""
        self.activity.bytes_done += count


def write_in_order(draft: Draft, clock: Clock, name: str, write: Callable[[Sink], object]) -> int:
    """Create the file ``name`` in a draft, let ``write`` write it in order, and make it durable. Return its number of
    bytes.
    """
    sink = draft.create(name, None)
    try:
        with clock.phase("write", name):
            write(sink)
    except BaseException:
        sink.abort()
        raise
    return sink.finish().bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalFault:
    """A fault that an engine found in one of its files. The rank, host and checkpoint are not part of it."""

    kind: FaultKind
    file: str
    tensor: str
    offset: int
    bytes: int
    detail: str

    @classmethod
    def of(cls, found: Finding, file: str, tensor: str) -> LocalFault:
        """Convert a finding in a tensor of a file to a fault."""
        return cls(
            kind=found.kind, file=file, tensor=tensor, offset=found.offset, bytes=found.bytes, detail=found.detail
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The result of comparing loaded data: the number of tensor bytes compared, the number of faults, and the first
    faults.
    """

    bytes_checked: int
    fault_count: int
    faults: tuple[LocalFault, ...]


@dataclass(slots=True)
class FirstFaults:
    """The number of tensor bytes compared, the number of faults, and the first faults in the order of their requests.

    Several threads may add results concurrently.
    """

    checked: int = 0
    count: int = 0
    _faults: list[tuple[tuple[int, ...], LocalFault]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, place: tuple[int, ...], faults: Iterable[LocalFault], *, count: int, checked: int = 0) -> None:
        """Add the results of one request: its first ``faults``, its ``count`` of faults, and the ``checked`` tensor
        bytes.

        ``place`` is the sort key of the request.
        """
        with self._lock:
            self.checked += checked
            self.count += count
            self._faults.extend((place, fault) for fault in faults)
            # If all data are wrong, memory stays bounded: only the first faults are reported.
            self._faults.sort(key=lambda pair: pair[0])
            del self._faults[MAXIMUM_FAULTS_OF_RANK:]

    def comparison(self) -> Comparison:
        """Return the results so far."""
        faults = tuple(fault for _, fault in self._faults)
        return Comparison(bytes_checked=self.checked, fault_count=self.count, faults=faults)


class Loader(Protocol):
    """Loads files in steps. OSErrors of the storage are raised to the caller."""

    def load_steps(self) -> int:
        """Return the number of steps in which this rank loads a checkpoint; between steps all clocks stop."""

    def load(self, committed: CommittedCheckpoint, step: int, clock: Clock) -> int:
        """Read the part of a checkpoint that belongs to ``step`` (from 0). Return the number of tensor bytes that
        arrived.
        """

    def verify(self, checkpoint: int) -> Comparison:
        """Compare the data of the last step with the expected content, outside the timed part. Return the result."""

    def release(self) -> None:
        """Free the memory of the content and of the loaded data."""


class ComparingLoader(Loader, Protocol):
    """A loader that compares data while it reads."""

    def expect(self, checkpoint: int) -> None:
        """Prepare the expected content of checkpoint number ``checkpoint``, which is loaded next, outside the timed
        part.
        """


def expect(loader: Loader, checkpoint: int) -> None:
    """Announce the checkpoint of the next load to a loader that compares data while it reads. Do nothing for other
    loaders.

    Call this outside the timed part.
    """
    if hasattr(loader, "expect"):
        cast("ComparingLoader", loader).expect(checkpoint)


def expect_parts(engine: Engine, store: Store) -> None:
    """If the store accepts objects in parts, let the engine allocate buffers of the size of a part, outside the timed
    part.

    An engine without its own buffers is not affected.
    """
    if hasattr(store, "part_bytes") and hasattr(engine, "expect_parts"):
        engine.expect_parts(store.part_bytes)


class Engine(Loader, Protocol):
    """Saves and loads the files of one rank. OSErrors of the storage are raised to the caller."""

    def __init__(self, shard: RankLayout, content: Content, activity: Activity, options: EngineOptions) -> None:
        """Keep the arguments; no content is generated yet."""

    def facts(self) -> dict[str, str]:
        """Return the engine's facts for the report (versions, I/O modes); all ranks call this together."""

    def fill(self, checkpoint: int) -> None:
        """Prepare the content of checkpoint number ``checkpoint``, outside the timed part."""

    def save(self, draft: Draft, clock: Clock) -> CommitProof | None:
        """Write every file of this rank and make it durable.

        If the engine's library commits the checkpoint, return the proof on the committing rank. Otherwise return None.
        """


class StatefulEngine(Engine, Protocol):
    """An engine that gives access to the state that it saves."""

    def state(self) -> Sequence[Bytes]:
        """Return the memory that a training step changes, even before it is filled; never the memory of a copy."""


class StagingEngine(StatefulEngine, Protocol):
    """An engine that can save a copy of the state, so that the job may change the state during the save.

    The engine saves a copy if ``options.stages`` is set. The table of engines declares by ``stages`` which engines can
    do so.
    """

    def stage(self) -> int:
        """Copy the state; the next ``save`` writes the copy. Return the number of bytes copied."""


def state_of(engine: Engine) -> Sequence[Bytes]:
    """Return the memory that a training step changes: the engine's state. If the engine gives no access to its state,
    return separate memory of 1 MiB.
    """
    state = cast("StatefulEngine", engine).state() if hasattr(engine, "state") else ()
    return state or (np.ones(_STAND_IN_BYTES, dtype=np.uint8),)


def staging(engine: Engine) -> StagingEngine:
    """Return the engine as a StagingEngine. Raises TypeError if the engine cannot copy its state."""
    if not (hasattr(engine, "stage") and hasattr(engine, "state")):
        raise TypeError(f"{type(engine).__name__} cannot copy its state, which a save in the background needs")
    return cast("StagingEngine", engine)


def joined_facts(facts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Join the facts of the engines of all ranks. If ranks have different values for a fact, all values are listed."""
    answers: dict[str, list[str]] = {}
    for of_rank in facts:
        for name, answer in of_rank.items():
            answers.setdefault(name, [])
            if answer not in answers[name]:
                answers[name].append(answer)
    return {name: " | ".join(texts) for name, texts in answers.items()}

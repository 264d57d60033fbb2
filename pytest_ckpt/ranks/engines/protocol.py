"""The protocol of engines, which transfer the bytes of checkpoints to storage and back."""

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
    """Times the phases of one operation on one rank, and reports the phases as the rank's activity.

    ``phases`` is {phase: seconds}. ``left_out_seconds`` is excluded time, in which an engine worked after the last byte
    had been received. ``stalled_seconds`` is the time in which requests waited for this process and not for the
    storage.
    """

    activity: Activity
    phases: dict[str, float] = field(default_factory=dict)
    left_out_seconds: float = 0.0
    stalled_seconds: float = 0.0

    @contextmanager
    def phase(self, name: Phase, file: str = "") -> Iterator[None]:
        """Add the seconds of the ``with`` block to the phase ``name``. ``file`` is the file in use."""
        with self.activity.in_phase(name, file):
            start = time.perf_counter()
            yield
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start

    def leave_out(self, name: Phase, seconds: float) -> None:
        """Subtract ``seconds`` from the phase ``name``, because they are not part of the operation."""
        self.phases[name] -= seconds
        self.left_out_seconds += seconds

    def end_pass(self, *, late_seconds: float, stalled_seconds: float, is_last: bool) -> None:
        """Record the end of one pass of reads.

        ``stalled_seconds`` is the time in which reads waited for a free buffer. ``late_seconds`` is the time of
        comparisons after the last byte had been received. After the last pass, ``late_seconds`` is excluded from the
        operation. After any other pass, it counts as a stall, because the next reads waited for the comparisons.
        """
        if is_last:
            self.leave_out("read", late_seconds)
        else:
            self.stalled_seconds += late_seconds
        self.stalled_seconds += stalled_seconds

    def moved(self, count: int) -> None:
        """Count ``count`` more transferred bytes."""
        self.activity.bytes_done += count


def write_in_order(draft: Draft, clock: Clock, name: str, write: Callable[[Sink], object]) -> int:
    """Create the file ``name``, let ``write`` write its content in order, and make the file durable.

    Return the size of the file in bytes.
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
    """A fault in a file, as an engine reports it. Rank, host and checkpoint are added later."""

    kind: FaultKind
    file: str
    tensor: str
    offset: int
    bytes: int
    detail: str

    @classmethod
    def of(cls, found: Finding, file: str, tensor: str) -> LocalFault:
        """Return the fault for a finding in a tensor of a file."""
        return cls(
            kind=found.kind, file=file, tensor=tensor, offset=found.offset, bytes=found.bytes, detail=found.detail
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The result of a comparison of loaded data with the expected content.

    ``bytes_checked`` is the number of compared tensor bytes. ``fault_count`` is the number of faults, and ``faults``
    are the first faults.
    """

    bytes_checked: int
    fault_count: int
    faults: tuple[LocalFault, ...]


@dataclass(slots=True)
class FirstFaults:
    """Collects the results of comparisons from several threads.

    The results are counts and the first faults, in the order of the requests that read the data.
    """

    checked: int = 0
    count: int = 0
    _faults: list[tuple[tuple[int, ...], LocalFault]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, place: tuple[int, ...], faults: Iterable[LocalFault], *, count: int, checked: int = 0) -> None:
        """Add the comparison of one request's data. ``place`` is the position of the request in the order of requests.

        ``faults`` are the first faults of the request, and ``count`` is the number of all its faults. ``checked`` is
        the number of compared tensor bytes.
        """
        with self._lock:
            self.checked += checked
            self.count += count
            self._faults.extend((place, fault) for fault in faults)
            # If all data are wrong, memory stays bounded: only the first faults are reported.
            self._faults.sort(key=lambda pair: pair[0])
            del self._faults[MAXIMUM_FAULTS_OF_RANK:]

    def comparison(self) -> Comparison:
        """Return the combined result of all added comparisons."""
        faults = tuple(fault for _, fault in self._faults)
        return Comparison(bytes_checked=self.checked, fault_count=self.count, faults=faults)


class Loader(Protocol):
    """Loads the files of checkpoints in steps. The methods raise the OSErrors of the storage."""

    def load_steps(self) -> int:
        """Return the number of steps in which this rank loads a checkpoint. Clocks are stopped between steps."""

    def load(self, committed: CommittedCheckpoint, step: int, clock: Clock) -> int:
        """Read the data of load step ``step`` (from 0). Return the number of tensor bytes read."""

    def verify(self, checkpoint: int) -> Comparison:
        """Compare the data of the last step with the expected content. This is outside the timed part."""

    def release(self) -> None:
        """Free the memory of the loaded data and the expected content."""


class ComparingLoader(Loader, Protocol):
    """A loader that compares data while it reads."""

    def expect(self, checkpoint: int) -> None:
        """Prepare the expected content for the next load, which loads checkpoint number ``checkpoint``.

        This method must be called outside the timed part.
        """


def expect(loader: Loader, checkpoint: int) -> None:
    """Announce the checkpoint of the next load to a loader that compares data while it reads.

    Other loaders are not affected. This function must be called outside the timed part.
    """
    if hasattr(loader, "expect"):
        cast("ComparingLoader", loader).expect(checkpoint)


def expect_parts(engine: Engine, store: Store) -> None:
    """If the store accepts objects in parts, let the engine allocate buffers for such parts.

    An engine without its own buffers is not affected. This function must be called outside the timed part.
    """
    if hasattr(store, "part_bytes") and hasattr(engine, "expect_parts"):
        engine.expect_parts(store.part_bytes)


class Engine(Loader, Protocol):
    """Saves and loads the files of one rank. The methods raise the OSErrors of the storage."""

    def __init__(self, shard: RankLayout, content: Content, activity: Activity, options: EngineOptions) -> None:
        """Store the arguments. No content is generated."""

    def facts(self) -> dict[str, str]:
        """Return the engine's facts for the report, such as versions and I/O modes. All ranks call this together."""

    def fill(self, checkpoint: int) -> None:
        """Prepare the content of checkpoint number ``checkpoint``. Call this method outside the timed part."""

    def save(self, draft: Draft, clock: Clock) -> CommitProof | None:
        """Write every file of this rank and make the files durable.

        If the engine's library commits the checkpoint, the rank that commits returns the proof. Otherwise the result is
        None.
        """


class StatefulEngine(Engine, Protocol):
    """An engine that gives access to the state in memory that it saves."""

    def state(self) -> Sequence[Bytes]:
        """Return the memory of the state, which a training step changes.

        Memory of a copy for a background save is not included.
        """


class StagingEngine(StatefulEngine, Protocol):
    """An engine that can save a copy of its state, so that training can change the state during the save.

    The engine saves a copy only if ``options.stages`` is set. In the table of engines, the column ``stages`` marks the
    engines that can save a copy.
    """

    def stage(self) -> int:
        """Copy the state for the next ``save``. Return the number of copied bytes."""


def state_of(engine: Engine) -> Sequence[Bytes]:
    """Return the memory that a simulated training step changes: the engine's state.

    If the engine gives no access to its state, return other memory of 1 MiB.
    """
    state = cast("StatefulEngine", engine).state() if hasattr(engine, "state") else ()
    return state or (np.ones(_STAND_IN_BYTES, dtype=np.uint8),)


def staging(engine: Engine) -> StagingEngine:
    """Return ``engine``, typed as a StagingEngine. Raises TypeError if the engine cannot copy its state."""
    if not (hasattr(engine, "stage") and hasattr(engine, "state")):
        raise TypeError(f"{type(engine).__name__} cannot copy its state, which a save in the background needs")
    return cast("StagingEngine", engine)


def joined_facts(facts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Join the facts of all ranks: {name: text}.

    If ranks have different texts for a name, the result contains all these texts.
    """
    answers: dict[str, list[str]] = {}
    for of_rank in facts:
        for name, answer in of_rank.items():
            answers.setdefault(name, [])
            if answer not in answers[name]:
                answers[name].append(answer)
    return {name: " | ".join(texts) for name, texts in answers.items()}

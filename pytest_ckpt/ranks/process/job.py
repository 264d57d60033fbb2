"""The job that the controller sends to the ranks in one line of JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.facts.across_hosts import Marker
from pytest_ckpt.facts.environment import Streams
from pytest_ckpt.facts.file_rules import FileRule
from pytest_ckpt.facts.models import Mode, Model
from pytest_ckpt.facts.request_depth import RequestDepth
from pytest_ckpt.facts.subject import Pattern, Subject
from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.sizing.deltas import DeltaRule
from pytest_ckpt.sizing.many_names import ManyNames
from pytest_ckpt.sizing.models import Layout, layout
from pytest_ckpt.sizing.pacing import PacedSaves
from pytest_ckpt.sizing.patterns import PATTERNS, kills_of
from pytest_ckpt.sizing.ramp import PlannedRamp
from pytest_ckpt.sizing.stream_buffers import USUAL_DEPTH

if TYPE_CHECKING:
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.sizing.plan import PlannedCheckpoint

# Checkpoints are saved in addition to the counted ones. These constants are added to the number of counted ones: for a
# save during a deletion, for saves of different kinds of data, and for the first of at most ten whose reads are timed.
# The numbers for patterns are in `sizing.patterns`.
DURING_DELETION, OF_DATA, OF_CANARIES = 1, 2, 8


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineOptions:
    """The user's settings for an engine. Sizes are in bytes.

    ``request_bytes`` is the size of a request. ``depth`` is the number of requests that a rank keeps in flight. If
    several readers share each file, this reader reads part number ``part`` (from 0) of ``parts`` parts.

    If ``stages``, ``copy_threads`` threads copy the state, and the engine saves the copy. If ``by_process``, a process
    of the engine's library writes the copy. ``pattern`` is the text of the recorded file operations that the engine
    replays. If ``pauses``, the pauses between the recorded operations are replayed too.
    """

    request_bytes: int = 4 << 20
    depth: int = USUAL_DEPTH
    part: int = 0
    parts: int = 1
    stages: bool = False
    by_process: bool = False
    copy_threads: int = 1
    pattern: str = ""
    pauses: bool = False

    def span(self, count: int) -> tuple[int, int]:
        """Return (first index, index after the last) of this reader's part of ``count`` items."""
        return count * self.part // self.parts, count * (self.part + 1) // self.parts


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingTask:
    """Simulated training steps during background saves.

    A step takes ``step_seconds``. During the fraction ``cpu_share`` of a step, the step uses a CPU.
    """

    step_seconds: float
    cpu_share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PacedTask(PacedSaves):
    """Saves of the patterns ``neighbour`` and ``mixed``, which share the storage with other work.

    ``loader_bytes_per_second`` is the rate at which the data loaders of one host read.
    """

    loader_bytes_per_second: float


@dataclass(frozen=True, kw_only=True, slots=True)
class CrashesTask:
    """The pattern ``crashes``: ``kills`` background saves are killed."""

    kills: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingTask:
    """The pattern ``serving``: ranks load the weights of a model for inference, ``readers`` ranks for each replica."""

    readers: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ResizedTask:
    """The work of one launch of the pattern ``resized``: ranks save a checkpoint, or load it.

    ``size`` is the number of ranks that load, relative to the ranks that saved: ``halved`` or ``doubled``. If ``size``
    is empty, the ranks save. ``make`` is the ``module:name`` of the function that creates the loader.
    """

    make: str
    size: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnduranceTask:
    """The pattern ``endurance``: saves are repeated for ``duration_seconds``.

    If ``duration_seconds`` is 0, saves are repeated until their durations are steady.
    """

    duration_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class NearFullTask:
    """The pattern ``near_full``: saves on an almost full volume.

    A checkpoint needs ``checkpoint_bytes`` bytes of the volume.
    """

    checkpoint_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """The measurement of one subject: ``operations`` saves, then as many loads. ``seed`` is the seed of the run.

    ``make`` and ``strategy`` are the ``module:name`` of the functions that create the engine and the strategy. If
    ``is_collective``, the engine's ranks save and load only together. ``files`` defines the files of a checkpoint.
    ``deltas`` defines which saves contain only changed pages. If ``tiers``, the run also uses a local tier. ``codec``
    is the codec and level that compress the files, such as ``zstd:1``; empty without compression.
    ``client_cache_bytes`` is the declared size of the caches that a client has on its disks.

    ``training`` describes the simulated training steps during saves; None if saves block training. ``definition`` is
    the model if the user defined the model. ``ramp`` plans a search for the number of requests in flight, which is used
    if the job does not contain this number.

    ``patterns`` are the names of additional measurements, which `sizing.patterns` defines. ``crashes``, ``serving``,
    ``endurance``, ``near_full`` and ``metadata`` are the parameters of the pattern with the same name. ``paced`` are
    the parameters of patterns neighbour and mixed. If a pattern is not measured, its parameters are None.

    If ``own_launch`` is given, the launch measures only the pattern with this name. ``resized`` are the parameters of a
    launch of pattern ``resized``.
    """

    subject: Subject
    model: str
    definition: Model | None
    mode: Mode
    processes: int
    scale: float
    operations: int
    engine: str
    make: str
    is_collective: bool
    files: FileRule
    strategy: str
    stages: bool
    by_process: bool
    seed: int
    drop_caches: str
    keep: bool
    retain: int
    data_pairs: int
    compressible: float
    client_cache_bytes: int | None
    deltas: DeltaRule | None
    tiers: bool
    codec: str
    training: TrainingTask | None
    patterns: tuple[Pattern, ...]
    paced: PacedTask | None
    crashes: CrashesTask | None
    serving: ServingTask | None
    endurance: EnduranceTask | None
    near_full: NearFullTask | None
    metadata: ManyNames | None
    ramp: PlannedRamp | None
    own_launch: Pattern | None = None
    resized: ResizedTask | None = None

    def layout(self, scale: float | None = None) -> Layout:
        """Return the layout of the checkpoint at the task's scale, or at another ``scale``."""
        processes = self.processes if self.mode == "open" else None
        of = self.definition or self.model
        return layout(of, mode=self.mode, processes=processes, scale=self.scale if scale is None else scale)

    @property
    def full_saves(self) -> int:
        """The number of full saves among the ``operations`` saves."""
        return sum(not (self.deltas and self.deltas.is_delta(n)) for n in range(1, self.operations + 1))

    def loaded_bytes(self, whole: Layout) -> int:
        """Return the number of tensor bytes that all loads of the subject read together.

        ``whole`` is the layout of a checkpoint. Loads of patterns (additional measurements) are not included.
        """
        return sum(self.deltas.loads_bytes(whole)) if self.deltas else whole.bytes * self.operations

    @classmethod
    def of(cls, planned: PlannedCheckpoint, settings: Settings, seed: int) -> Task:
        """Return the task for one subject of a plan, with the settings of the run."""
        whole, strategy = planned.layout, planned.strategy
        rows = [row for row in PATTERNS.values() if not row.has_own_launch and row.is_requested(planned, settings)]
        requested = {row.name for row in rows}
        training = TrainingTask(step_seconds=settings.step_seconds, cpu_share=settings.step_cpu)
        return cls(
            subject=planned.subject,
            model=whole.model.name,
            definition=whole.model if whole.model.own else None,
            mode=whole.mode,
            processes=whole.processes,
            scale=whole.scale,
            operations=planned.operations,
            engine=planned.engine.name,
            make=planned.engine.make,
            is_collective=planned.engine.is_collective,
            files=planned.engine.files,
            strategy=strategy.make,
            stages=strategy.stages,
            by_process=strategy.own_process,
            seed=seed,
            drop_caches=settings.drop_caches,
            keep=settings.keep_files,
            retain=settings.keep_last,
            # If a codec makes data smaller, constant data do not show a property of the storage.
            data_pairs=0 if strategy.compresses else settings.data_pairs,
            compressible=settings.compressible,
            client_cache_bytes=settings.client_cache_bytes,
            deltas=planned.deltas,
            tiers=strategy.tiers,
            codec=settings.compress if strategy.compresses else "",
            training=None if strategy.blocks else training,
            patterns=tuple(row.name for row in rows),
            paced=PacedTask(**asdict(pace), loader_bytes_per_second=settings.loader_bytes_per_second)
            if (pace := planned.pace)
            else None,
            crashes=CrashesTask(kills=kills_of(strategy, settings)) if "crashes" in requested else None,
            serving=ServingTask(readers=settings.serving_readers) if "serving" in requested else None,
            endurance=EnduranceTask(duration_seconds=settings.duration_seconds) if "endurance" in requested else None,
            near_full=NearFullTask(checkpoint_bytes=planned.checkpoint_bytes) if settings.near_full else None,
            metadata=planned.many_names,
            ramp=planned.ramp,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """The work of one launch: tasks in order, in ``area``, the run's own directory or prefix on the target.

    If a job has no tasks, the ranks only inspect their hosts. If the launch has only one host, ``second`` is the same
    area through a second mount of this host; None if the host has no second mount. ``local`` is the run's area in the
    local tier. Before that area exists, ``local`` is the directory of the local tier. ``sign`` is a file on the target
    that each host must find before the measurements. ``tier_sign`` is a file that each host creates in its local tier.
    If a host finds another host's file in its tier, the two hosts share the tier. ``libraries`` are Python modules;
    each host reports which of these modules are missing.

    ``depth`` is the number of requests in flight of engine ``stream``. If it is None, the first ramp finds the number.
    If ``streams`` is given, hosts measure their network. If ``is_followed``, the ranks wait for another job after this
    job.
    """

    processes: int
    area: AreaRef
    deadline_seconds: float
    tasks: tuple[Task, ...]
    options: EngineOptions = EngineOptions()
    depth: RequestDepth | None = None
    second: AreaRef | None = None
    local: AreaRef | None = None
    sign: Marker | None = None
    tier_sign: Marker | None = None
    libraries: tuple[str, ...] = ()
    streams: Streams | None = None
    is_followed: bool = False

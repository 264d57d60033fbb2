"""The job that the controller sends to the ranks, as plain records in one line of JSON."""

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
BESIDE_DELETION, OF_DATA, OF_CANARIES = 1, 2, 8


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineOptions:
    """The user's settings for an engine. Sizes are in bytes.

    ``request_bytes`` is the size of a request, ``depth`` the number of requests in flight of a rank. If several readers
    share each file, this reader reads part number ``part`` (from 0) of ``parts``. ``stages``: the engine saves a copy
    of the state, made by ``copy_threads`` threads; ``by_process``: a process of its library writes the copy.
    ``pattern`` is the text of the replayed pattern; ``pauses``: the pattern's pauses are replayed too.
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
        """Return the start and end of this reader's part of ``count`` items; the end is not part of it."""
        return count * self.part // self.parts, count * (self.part + 1) // self.parts


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingTask:
    """Simulated training steps during background saves. Each step takes ``step_seconds`` and uses a CPU for
    ``cpu_share`` of this time.
    """

    step_seconds: float
    cpu_share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PacedTask(PacedSaves):
    """Saves of the patterns ``neighbour`` and ``mixed``, which share the storage with other work.

    ``loader_bytes_per_second`` is the rate at which the data loaders of each host read.
    """

    loader_bytes_per_second: float


@dataclass(frozen=True, kw_only=True, slots=True)
class CrashesTask:
    """The pattern ``crashes``: ``kills`` background saves are killed."""

    kills: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ServingTask:
    """The pattern ``serving``: ``readers`` ranks load one replica of the weights while one rank
    rewrites the weights.
    """

    readers: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ResizedTask:
    """The work of one launch of the pattern ``resized``. If ``size`` is empty, the ranks save a checkpoint; otherwise
    they load it.

    The sizes are defined in `pytest_ckpt.sizing.resharding`. ``make`` is the ``module:name`` of the function that
    creates the loader.
    """

    make: str
    size: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnduranceTask:
    """The pattern ``endurance``: saves continue for ``duration_seconds``. If it is 0, they continue until their times
    are steady.
    """

    duration_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class NearFullTask:
    """The pattern ``near_full``: saves on a filled volume. ``checkpoint_bytes`` is the space that a checkpoint needs on
    it.
    """

    checkpoint_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """The measurement of one subject: ``operations`` saves, then as many loads. ``seed`` is the seed of the run.

    ``make`` and ``strategy`` are the ``module:name`` of the functions that create the engine and the strategy.
    ``is_collective``: the engine's ranks save and load only together. ``files`` defines the files of a checkpoint.
    ``client_cache_bytes`` is the declared size of the caches that a client has on its disks. ``deltas`` defines which
    saves contain only changed pages. ``tiers``: there is a local tier. ``codec``, such as ``zstd:1``, compresses the
    files; empty if there is none. ``training`` defines simulated training steps during each save; None if the strategy
    blocks training. ``definition`` is a model that the user defined. ``ramp`` finds the number of requests in flight if
    the job does not state it.

    ``patterns`` are measured in addition; `sizing.patterns` defines them. ``crashes``, ``serving``, ``endurance``,
    ``near_full`` and ``metadata`` are the parameters of the pattern with this name; ``paced`` are the parameters of
    neighbour and mixed. They are None if the pattern is not measured. If ``own_launch`` is given, the launch measures
    only this pattern. ``resized`` are its parameters if another number of ranks loads the checkpoint.
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
        """Return the layout that is saved and loaded, or the same layout at another scale."""
        processes = self.processes if self.mode == "open" else None
        of = self.definition or self.model
        return layout(of, mode=self.mode, processes=processes, scale=self.scale if scale is None else scale)

    @property
    def full_saves(self) -> int:
        """The number of full saves among the ``operations`` saves."""
        return sum(not (self.deltas and self.deltas.is_delta(n)) for n in range(1, self.operations + 1))

    def loaded_bytes(self, whole: Layout) -> int:
        """Return the number of tensor bytes that all loads of this task read together. Loads of patterns are not
        counted.
        """
        return sum(self.deltas.loads_bytes(whole)) if self.deltas else whole.bytes * self.operations

    @classmethod
    def of(cls, planned: PlannedCheckpoint, settings: Settings, seed: int) -> Task:
        """Return the task for a measurement of a plan, with the settings of the plan's run."""
        whole, strategy = planned.layout, planned.strategy
        rows = [row for row in PATTERNS.values() if not row.has_own_launch and row.is_asked(planned, settings)]
        asked = {row.name for row in rows}
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
            crashes=CrashesTask(kills=kills_of(strategy, settings)) if "crashes" in asked else None,
            serving=ServingTask(readers=settings.serving_readers) if "serving" in asked else None,
            endurance=EnduranceTask(duration_seconds=settings.duration_seconds) if "endurance" in asked else None,
            near_full=NearFullTask(checkpoint_bytes=planned.checkpoint_bytes) if settings.near_full else None,
            metadata=planned.many_names,
            ramp=planned.ramp,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """The work of one launch: its tasks in order, in ``area``. A job without tasks only inspects the hosts of the
    ranks.

    ``second`` is the same area through another mount of the ranks' one host, if there is one. ``local`` is the run's
    area in the local tier or, before that area exists, the directory of the local tier. ``sign`` is a file on the
    target that each host must find before the measurements. ``tier_sign`` is a file that a host must not find in its
    own tier if another host created it. ``libraries`` are Python modules; each host reports which of them are missing.
    ``depth`` is the number of requests in flight of engine ``stream``; None: the first ramp finds it. If ``streams`` is
    given, hosts measure their network. If ``is_followed`` is true, the ranks wait for another job after this one.
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

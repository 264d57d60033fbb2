"""The job that the controller sends to the ranks: plain records, one line of JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ckpt.facts.across_hosts import Marker
from pytest_ckpt.facts.codec import shared
from pytest_ckpt.facts.environment import Streams
from pytest_ckpt.facts.file_rules import OF_LAYOUT, FileRule
from pytest_ckpt.facts.models import Model
from pytest_ckpt.facts.strategies import STRATEGIES
from pytest_ckpt.facts.subject import OwnPattern, Subject
from pytest_ckpt.facts.targets import AreaRef
from pytest_ckpt.sizing.deltas import DeltaRule
from pytest_ckpt.sizing.models import Layout, layout
from pytest_ckpt.sizing.steps import kills_of, scales, serves

if TYPE_CHECKING:
    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.sizing.plan import PlannedCheckpoint

# Checkpoints beside the counted ones, numbered behind them: one that is saved while another is deleted, one that
# compares kinds of data, one that is saved beside other work, what a second job saves, three that endurance takes
# in turns, those whose reads are timed, ten at most, two for each launch in which the storage is changed, those whose
# processes are killed, the chain that outlives others (sizing.deltas.OF_CHAIN), those in two tiers and those with
# copies on other hosts, those that a job saves at notice, the weights alone and their copy; one that is saved plainly
# and compressed; and last those of growing counts of clients.
BESIDE_DELETION, OF_DATA, BESIDE_WORK, OF_NEIGHBOUR, OF_ENDURANCE, OF_CANARIES = 1, 2, 3, 4, 5, 8
BESIDE_COMMANDS, OF_CRASHES, OF_TIERS, OF_COPIES, OF_NOTICE, OF_SERVING = 24, 32, 160, 168, 192, 208
OF_COMPRESSION, OF_SCALING = 224, 240


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineOptions:
    """What a user may set of an engine. Bytes.

    ``request_bytes`` and ``depth`` are the size and number of requests in flight of a rank. A reader takes part
    ``part`` of ``parts`` of every file. ``stages``: an engine saves a copy of the state, which it holds beside it.
    ``pattern`` is the text of what is replayed, ``pauses`` whether with the pauses in it.
    """

    request_bytes: int = 4 << 20
    depth: int = 2
    part: int = 0
    parts: int = 1
    stages: bool = False
    pattern: str = ""
    pauses: bool = False

    def span(self, count: int) -> tuple[int, int]:
        """Return where the reader's part of ``count`` things begins and ends."""
        return count * self.part // self.parts, count * (self.part + 1) // self.parts


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One measurement. ``operations`` saves are followed by as many loads; ``seed`` is that of the run.

    ``make`` and ``strategy`` are ``module:name`` of what makes engine and strategy. Where the strategy does not block,
    steps of ``step_seconds``, the share ``step_cpu`` of them work of a core, go on beside each save. The ranks of an
    engine that ``is_collective`` save and load together only; ``files`` says what files a checkpoint has. With
    ``contention`` and ``endurance`` the patterns of `measurement.Patterns` are measured too; the volume is filled where
    ``near_full_bytes`` says what a checkpoint needs of it. ``client_cache_bytes``: what the user stated of caches that
    a client has on disks. ``beside_commands`` names the one pattern that is measured instead of all else: saves and
    loads in which the controller runs commands. The limits are those of one operation: what would take many times as
    long is ended.
    ``kills`` is how many saves in the background are killed. ``deltas`` says which saves hold only what changed;
    ``deletes_chain``: a chain of its own must outlive the deletion of the others. ``compares_tiers``: saves to the
    local tier are timed alone and beside drains, and restores are tried from both; ``tiers``: there is a local tier.
    Where ``notice_seconds`` are given, saves at notice are timed. Where there are ``serving_readers``, so many ranks
    load one replica of the weights alone, and one rank rewrites them. ``codec`` is what files pass, such as ``zstd:1``,
    empty where they pass none; ``compares_codec``: saves through it are compared with plain ones. ``scaling``: growing
    counts of clients save and load; ``ceilings`` are what the vendor states for both, in bytes a second.
    ``definition``: the model is a user's.
    """

    subject: Subject
    model: str
    mode: str
    processes: int
    scale: float
    operations: int
    engine: str
    make: str
    seed: int
    drop_caches: str
    keep: bool
    retain: int = 0
    data_pairs: int = 0
    compressible: float = 0.0
    contention: bool = False
    endurance: bool = False
    duration_seconds: float = 0.0
    near_full_bytes: int = 0
    client_cache_bytes: int | None = None
    beside_commands: OwnPattern | None = None
    save_limit_seconds: float = 0.0
    load_limit_seconds: float = 0.0
    strategy: str = STRATEGIES[0].make
    blocks: bool = True
    stages: bool = False
    step_seconds: float = 0.0
    step_cpu: float = 0.0
    kills: int = 0
    deltas: DeltaRule | None = None
    deletes_chain: bool = False
    compares_tiers: bool = False
    tiers: bool = False
    notice_seconds: float = 0.0
    serving_readers: int = 0
    serving_limit_seconds: float = 0.0
    consolidate_limit_seconds: float = 0.0
    codec: str = ""
    compares_codec: bool = False
    scaling: bool = False
    ceilings: tuple[float, float] = (0.0, 0.0)
    is_collective: bool = False
    files: FileRule = OF_LAYOUT
    definition: Model | None = None

    def layout(self, scale: float | None = None) -> Layout:
        """Return what is saved and loaded, or the same at another scale."""
        processes = self.processes if self.mode == "open" else None
        of = self.definition or self.model
        return layout(of, mode=self.mode, processes=processes, scale=self.scale if scale is None else scale)

    @property
    def full_saves(self) -> int:
        """How many saves are of a whole checkpoint."""
        return sum(not (self.deltas and self.deltas.is_delta(n)) for n in range(1, self.operations + 1))

    def loaded_bytes(self, whole: Layout) -> int:
        """Return the bytes of tensors that all of the subject's own loads read."""
        return sum(self.deltas.loads_bytes(whole)) if self.deltas else whole.bytes * self.operations

    @classmethod
    def of(cls, planned: PlannedCheckpoint, settings: Settings, seed: int) -> Task:
        """Return the measurement that a plan and the settings of its run ask for."""
        own = {
            "model": planned.layout.model.name,
            "definition": planned.layout.model if planned.layout.model.own else None,
            "engine": planned.engine.name,
            "make": planned.engine.make,
            "is_collective": planned.engine.is_collective,
            "files": planned.engine.files,
            "strategy": planned.strategy.make,
            "blocks": planned.strategy.blocks,
            "stages": planned.strategy.stages,
            "seed": seed,
            "keep": settings.keep_files,
            "retain": settings.keep_last,
            "ceilings": settings.vendor_max_rates,
            "contention": settings.asks_contention,
            "kills": kills_of(planned.strategy, settings),
            "deltas": planned.deltas,
            "deletes_chain": planned.deltas is not None and settings.asks_strategies,
            "tiers": planned.strategy.tiers,
            "notice_seconds": settings.preemption_notice_seconds if settings.asks_notice else 0.0,
            "serving_readers": settings.serving_readers if serves(planned, settings) else 0,
            "codec": settings.compress if planned.strategy.compresses else "",
            "compares_codec": planned.strategy.compresses and settings.asks_strategies,
            # Of what a codec makes smaller, constant data shows nothing of the storage.
            "data_pairs": 0 if planned.strategy.compresses else settings.data_pairs,
            "scaling": scales(planned, settings),
            "compares_tiers": planned.strategy.tiers and settings.asks_strategies,
            "endurance": settings.asks_endurance,
            "near_full_bytes": planned.checkpoint_bytes if settings.near_full else 0,
        }
        return cls(**shared(cls, planned, planned.layout, settings, planned.demand) | own)


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What one launch does: its tasks in order, in ``area``; without tasks it only looks at its hosts, from there.

    ``second`` is the same area through another mount of the ranks' one host, where there is one; ``local`` is the
    run's area in the local tier, or before there is one that tier; ``sign`` is a file that each host is to find before
    anything is measured, ``tier_sign`` one that none may find in the tier of another. Hosts say which of ``libraries``
    they lack. With ``streams`` hosts measure their network. ``is_followed``: its ranks then wait for another job.
    """

    processes: int
    area: AreaRef
    deadline_seconds: float
    tasks: tuple[Task, ...]
    options: EngineOptions = EngineOptions()
    second: AreaRef | None = None
    local: AreaRef | None = None
    sign: Marker | None = None
    tier_sign: Marker | None = None
    libraries: tuple[str, ...] = ()
    streams: Streams | None = None
    is_followed: bool = False

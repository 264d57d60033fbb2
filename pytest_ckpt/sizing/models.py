"""Which tensors in which files each rank of a checkpoint writes, to the element.

Models that a user describes are cut by `pytest_ckpt.sizing.own_layouts`, into the same kinds of files.

Files, names and tensors are those of the checkpoint workload of MLPerf Storage; file by file and rank by rank the byte
counts are the ones of its reference engine, DLIO. Model tensors are float16, optimizer tensors float32, all
one-dimensional: about 14 bytes a parameter.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, cast, get_args

from pytest_ckpt.facts.models import PARAMETERS_SHARDED, Model
from pytest_ckpt.facts.subject import DEFAULT_ENGINE, DEFAULT_STRATEGY, Subject
from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.sizing.own_layouts import own_files
from pytest_ckpt.sizing.tensors import Dtype, ShardFile, Tensor, reduced
from pytest_ckpt.support.errors import UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "MODELS",
    "SUBSET_PROCESSES",
    "Layout",
    "Mode",
    "Model",
    "RankLayout",
    "ShardFile",
    "Tensor",
    "layout",
]

Mode = Literal["full", "subset", "open"]

SUBSET_PROCESSES = 8
"""Ranks of the full layout that subset mode runs: those of one node."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankLayout:
    """What one rank writes, in order: model files, then the optimizer's. ``whole`` is what all ranks write, if any."""

    rank: int
    files: tuple[ShardFile, ...]
    whole: Layout | None = field(default=None, compare=False, repr=False)

    @property
    def bytes(self) -> int:
        """Tensor bytes of the rank."""
        return sum(file.bytes for file in self.files)

    @property
    def largest_file_bytes(self) -> int:
        """Tensor bytes of its largest file."""
        return max(file.bytes for file in self.files)


class _Totals(NamedTuple):
    bytes: int
    files: int
    tensors: int
    rank_bytes: tuple[int, ...]
    largest_file_bytes: int
    most_tensors: int
    largest_tensor_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """One checkpoint: a model, cut for so many processes, at a scale. Built by `layout`, which checks it.

    All bytes are those of the tensors. Totals are computed once and kept.
    """

    model: Model
    mode: Mode
    processes: int
    scale: float

    @property
    def name(self) -> str:
        """What it is called: ``llama3-8b-full``, ``llama3-70b-subset``, ``llama3-8b-open-16``."""
        return self.subject().layout

    def subject(self, engine: str = DEFAULT_ENGINE, strategy: str = DEFAULT_STRATEGY) -> Subject:
        """Return what a measurement of this layout is of; its scale is no part of it."""
        processes = self.processes if self.mode == "open" else None
        return Subject(model=self.model.name, mode=self.mode, processes=processes, engine=engine, strategy=strategy)

    @property
    def cluster_processes(self) -> int:
        """Processes that write the whole checkpoint: for a subset, those of the full layout."""
        return self.model.processes if self.mode == "subset" else self.processes

    @property
    def data_parallel(self) -> int:
        """Data-parallel ranks over which the optimizer is cut; a subset is cut as the full layout is."""
        return self.cluster_processes // self.model.model_parallel

    @property
    def bytes(self) -> int:
        """Bytes of one checkpoint of these processes at this scale."""
        return _totals(self).bytes

    @property
    def files(self) -> int:
        """Files of one checkpoint of these processes."""
        return _totals(self).files

    @property
    def rank_bytes(self) -> tuple[int, ...]:
        """Bytes of every rank, in rank order, at this scale."""
        return _totals(self).rank_bytes

    @property
    def largest_rank_bytes(self) -> int:
        """Bytes of the rank that writes most, at this scale."""
        return max(self.rank_bytes)

    @property
    def largest_file_bytes(self) -> int:
        """Bytes of the largest file, at this scale."""
        return _totals(self).largest_file_bytes

    @property
    def most_tensors(self) -> int:
        """Tensors of the rank that has most."""
        return _totals(self).most_tensors

    @property
    def largest_tensor_bytes(self) -> int:
        """Bytes of the largest tensor, at this scale."""
        return _totals(self).largest_tensor_bytes

    @property
    def full_bytes(self) -> int:
        """Bytes of one checkpoint of these processes at scale 1.0."""
        return _totals(replace(self, scale=1.0)).bytes

    @property
    def full_tensors(self) -> int:
        """Tensors of one checkpoint of these processes at scale 1.0, the most at any scale."""
        return _totals(replace(self, scale=1.0)).tensors

    @property
    def cluster_bytes(self) -> int:
        """Bytes at scale 1.0 of the whole checkpoint, of which a subset is the first eight ranks' part."""
        mode: Mode = "full" if self.mode == "subset" else self.mode
        return _totals(replace(self, mode=mode, processes=self.cluster_processes, scale=1.0)).bytes

    def rank(self, rank: int) -> RankLayout:
        """Return what rank ``rank`` writes. Raises IndexError outside 0..processes-1."""
        if not 0 <= rank < self.processes:
            raise IndexError(f"rank {rank} of {self.name}, which has ranks 0..{self.processes - 1}")
        return _rank_layout(self, rank)

    def ranks(self) -> tuple[RankLayout, ...]:
        """Return what every rank writes, in rank order."""
        return _ranks(self)


def layout(of: Model | str, *, mode: str, processes: int | None = None, scale: float = 1.0) -> Layout:
    """Return the layout of a model's checkpoint; a name is that of a model of the workload.

    ``mode`` is ``full`` (exactly the model's processes), ``subset`` (ranks 0..7 of the full layout, for client-local
    storage) or ``open`` (a multiple of tensor x pipeline parallelism; needs ``processes``). ``scale``, above 0 and at
    most 1, leaves the files as they are and fewer tensors in each (`pytest_ckpt.sizing.tensors.reduced`).

    Raises UsageError for an unknown model or mode, and for processes or a scale that do not fit.
    """
    model = MODELS.get(of) if isinstance(of, str) else of
    if model is None:
        raise UsageError(f"no model is called '{of}'{nearest(str(of), MODELS)}", f"known: {_list(MODELS)}")
    if mode not in get_args(Mode):
        raise UsageError(
            f"no mode is called '{mode}'{nearest(mode, get_args(Mode))}", f"a layout is one of {_list(get_args(Mode))}"
        )
    if not 0 < scale <= 1:
        raise UsageError(f"a scale of {scale} makes no checkpoint", "give a scale above 0 and at most 1, such as 1/100")
    return Layout(model=model, mode=cast("Mode", mode), processes=_fitting(model, mode, processes), scale=float(scale))


def _fitting(model: Model, mode: str, processes: int | None) -> int:
    """Return the processes, or say which would fit."""
    step = model.model_parallel
    subset = f"subset {SUBSET_PROCESSES}, " if model.processes >= SUBSET_PROCESSES else ""
    fits = (
        f"full takes exactly {model.processes}, {subset}open a multiple of {step} ({step}, {2 * step}, {3 * step}, ...)"
    )
    if mode == "open":
        if processes is None:
            raise UsageError(f"{model.name} in open mode needs a number of processes", fits)
        if processes < 1 or processes % step:
            raise UsageError(f"{processes} processes do not fit {model.name} in open mode", fits)
        return processes
    wanted = model.processes if mode == "full" else SUBSET_PROCESSES
    if wanted > model.processes:
        raise UsageError(f"{model.name} has no subset: its full layout has {model.processes} ranks", fits)
    if processes not in {None, wanted}:
        raise UsageError(f"{processes} processes do not fit {model.name} in {mode} mode", fits)
    return wanted


def _list(words: Iterable[str]) -> str:
    return ", ".join(words)


@lru_cache(maxsize=32)
def _ranks(of: Layout) -> tuple[RankLayout, ...]:
    return tuple(_rank_layout(of, rank) for rank in range(of.processes))


@lru_cache(maxsize=256)
def _totals(of: Layout) -> _Totals:
    files = [[file.bytes for file in rank.files] for rank in _ranks(of)]
    tensors = [sum(len(file.tensors) for file in rank.files) for rank in _ranks(of)]
    return _Totals(
        bytes=sum(map(sum, files)),
        files=sum(map(len, files)),
        tensors=sum(tensors),
        rank_bytes=tuple(map(sum, files)),
        largest_file_bytes=max(map(max, files)),
        most_tensors=max(tensors),
        largest_tensor_bytes=max(t.bytes for rank in _ranks(of) for file in rank.files for t in file.tensors),
    )


def _rank_layout(of: Layout, rank: int) -> RankLayout:
    model = of.model
    if model.own:
        return RankLayout(rank=rank, files=tuple(own_files(model, rank, of.cluster_processes, of.scale)), whole=of)
    data_rank, model_rank = divmod(rank, model.model_parallel)
    stage = model_rank // model.tensor_parallel
    zero_name = f"zero_pp_rank_{data_rank}_mp_rank_{model_rank}"
    files: list[ShardFile] = []
    if model.zero_stage == PARAMETERS_SHARDED:
        tensors = _whole_stage_tensors(model, stage, of.data_parallel, of.scale)
        files.append(ShardFile(name=f"{zero_name}_model_states.pt", tensors=tensors))
    elif data_rank == 0:
        files.extend(
            ShardFile(name=f"layer_{number}-model_{model_rank}_model_states.pt", tensors=layer)
            for number, layer in _layer_tensors(model, stage, of.scale)
        )
    optimizer = _optimizer_tensors(model, of.cluster_processes, of.scale)
    files.append(ShardFile(name=f"{zero_name}_optim_states.pt", tensors=optimizer))
    return RankLayout(rank=rank, files=tuple(files), whole=of)


# Sizes depend on the pipeline stage and never on the rank itself, so all ranks of a stage share their tensors.
@lru_cache(maxsize=512)
def _layer_tensors(model: Model, stage: int, scale: float) -> tuple[tuple[int, tuple[Tensor, ...]], ...]:
    """Return the layers of one pipeline stage, each cut over tensor-parallel ranks: a file each."""
    return tuple(
        (number, reduced(_tensors(f"layer_{number}", "float16", elements), scale))
        for number, elements in _stage_elements(model, stage, 1)
    )


@lru_cache(maxsize=512)
def _whole_stage_tensors(model: Model, stage: int, shards: int, scale: float) -> tuple[Tensor, ...]:
    """Return the layers of one pipeline stage, cut over tensor-parallel ranks and ``shards``: one file."""
    layers = _stage_elements(model, stage, shards)
    full = [tensor for number, layer in layers for tensor in _tensors(f"layer_{number}", "float16", layer)]
    return reduced(full, scale)


def _stage_elements(model: Model, stage: int, shards: int) -> Iterator[tuple[int, list[int]]]:
    h, cut = model.hidden, model.tensor_parallel
    vocabulary = h * model.vocabulary // cut // shards
    each, left_over = divmod(model.layers, model.pipeline_parallel)
    first = 1 + stage * each + min(stage, left_over)
    if stage == 0:
        yield 0, [vocabulary]
    for number in range(first, first + each + (stage < left_over)):
        yield (
            number,
            [
                h // shards,
                h * model.attention_width // cut // shards,
                h * h // cut // shards,
                h // shards,
                2 * model.feed_forward * h // cut // shards,
                model.feed_forward * h // cut // shards,
            ],
        )
    if stage == model.pipeline_parallel - 1:
        yield model.layers + 1, [vocabulary]
        yield model.layers + 2, [h // shards]


@lru_cache(maxsize=64)
def _optimizer_tensors(model: Model, processes: int, scale: float) -> tuple[Tensor, ...]:
    """Return the three states of an optimizer, each of which keeps a tensor at every scale."""
    states = [model.parameters // processes, 5 * model.hidden]
    full = _tensors("optimizer", "float32", states * 3)
    return tuple(
        tensor for n in range(0, len(full), len(states)) for tensor in reduced(full[n : n + len(states)], scale)
    )


def _tensors(group: str, dtype: Dtype, elements: list[int]) -> tuple[Tensor, ...]:
    return tuple(Tensor(name=f"{group}/{index}", dtype=dtype, elements=count) for index, count in enumerate(elements))

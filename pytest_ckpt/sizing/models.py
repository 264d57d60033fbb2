"""The tensors of a checkpoint, exact to the element, and the files and ranks that contain them. Pure functions.

The workload's models have the files, names and tensors of MLPerf Storage's checkpoint workload. The byte counts of each
file and rank equal the counts of its reference engine, DLIO. Model tensors are float16, and optimizer tensors are
float32. All tensors have one dimension. A checkpoint has about 14 bytes a parameter.

A user's model has the same kinds of files and ranks. Every parameter is in exactly one model file of a copy. Each
optimizer state of a parameter is in exactly one optimizer file. Training frameworks repeat some tensors on all
tensor-parallel ranks (norms, routers: less than 0.1 %). Here, all tensors are sharded.

TP, PP and EP are the degrees of tensor, pipeline and expert parallelism. Rank r has these positions, from 0:

    tensor-parallel    r % TP
    pipeline-parallel  (r // TP) % PP
    expert-parallel    (r // (TP PP)) % EP
    data-parallel      r // (TP PP)

Expert parallelism is within data parallelism, as in DeepSpeed and Megatron.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, cast, get_args

from pytest_ckpt.facts.models import PARAMETERS_SHARDED, Mode, Model
from pytest_ckpt.facts.subject import DEFAULT_ENGINE, DEFAULT_STRATEGY, Subject
from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.support.errors import UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_ckpt.facts.models import Precision

Dtype = Literal["float16", "float32", "uint8"]

ITEM_BYTES: dict[Dtype, int] = {"float16": 2, "float32": 4, "uint8": 1}
"""Bytes of an element."""


SUBSET_PROCESSES = 8
"""The number of ranks in subset mode: the ranks of one node of the full layout."""

# Random bytes are the same for all types of the same size.
_DTYPES: dict[Precision, Dtype] = {
    "float32": "float32", "float16": "float16", "bfloat16": "float16", "float8": "uint8",
}  # fmt: skip

_OF_EXPERTS = "-expert_rank_"
_REST = "/rest"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    """One tensor with one dimension. The name of the tensor is unique within its file."""

    name: str
    dtype: Dtype
    elements: int

    @property
    def bytes(self) -> int:
        """The bytes of all elements."""
        return self.elements * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardFile:
    """One file of one rank. The name of the file is unique within the checkpoint."""

    name: str
    tensors: tuple[Tensor, ...]

    @property
    def bytes(self) -> int:
        """The bytes of all tensors in the file, without the container's overhead."""
        return sum(tensor.bytes for tensor in self.tensors)


def dtypes(files: Iterable[ShardFile]) -> tuple[Dtype, ...]:
    """Return the data type of each tensor of a rank, in the order of the tensors in its files."""
    return tuple(tensor.dtype for file in files for tensor in file.tensors)


def reduced(tensors: Sequence[Tensor], scale: float) -> tuple[Tensor, ...]:
    """Reduce tensors of one data type to a scale; return the remaining tensors (at least one) in order.

    The total number of elements is as if each tensor were scaled separately: rounded down, but at least one element
    each. To reach this total, tensors are omitted, evenly over the sizes. The remaining tensors keep their sizes,
    except that the largest tensors are reduced to fit. So a reduced checkpoint has about as many tensors and requests
    per byte as a full checkpoint.

    The choice depends only on the sizes. So ranks with equal parts of the same tensors omit the same tensors.
    """
    if scale == 1 or not tensors:
        return tuple(tensors)
    kept = _selected_tensors(tuple(tensor.elements for tensor in tensors), scale)
    return tuple(replace(tensors[index], elements=elements) for index, elements in kept)


@dataclass(frozen=True, kw_only=True, slots=True)
class RankLayout:
    """The files of one rank, in order: model files, then the optimizer's file.

    ``whole`` is the layout that contains this rank; None if this layout is unknown.
    """

    rank: int
    files: tuple[ShardFile, ...]
    whole: Layout | None = field(default=None, compare=False, repr=False)

    @property
    def bytes(self) -> int:
        """Tensor bytes of the rank."""
        return sum(file.bytes for file in self.files)

    @property
    def largest_file_bytes(self) -> int:
        """Tensor bytes of the rank's largest file."""
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
    """One checkpoint: a model at a scale, sharded across a number of processes.

    The function `layout` creates a Layout and validates its values. All sizes are bytes of tensors. Totals are computed
    once and cached.
    """

    model: Model
    mode: Mode
    processes: int
    scale: float

    @property
    def name(self) -> str:
        """The name of the layout: ``llama3-8b-full``, ``llama3-70b-subset``, ``llama3-8b-open-16``."""
        return self.subject().layout

    def subject(self, engine: str = DEFAULT_ENGINE, strategy: str = DEFAULT_STRATEGY) -> Subject:
        """Return the subject (model, mode, engine, strategy) of a measurement. It does not contain the scale."""
        processes = self.processes if self.mode == "open" else None
        return Subject(model=self.model.name, mode=self.mode, processes=processes, engine=engine, strategy=strategy)

    @property
    def cluster_processes(self) -> int:
        """The number of processes that write the whole checkpoint; for a subset, the processes of the full layout."""
        return self.model.processes if self.mode == "subset" else self.processes

    @property
    def data_parallel(self) -> int:
        """The number of ranks across which the optimizer is sharded; a subset is sharded like the full layout."""
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
        """The number of tensors on the rank with the most tensors."""
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
        """The number of tensors of one checkpoint at scale 1.0, the maximum of all scales."""
        return _totals(replace(self, scale=1.0)).tensors

    @property
    def cluster_bytes(self) -> int:
        """Bytes of the whole checkpoint at scale 1.0. For a subset, the whole checkpoint is the full layout."""
        mode: Mode = "full" if self.mode == "subset" else self.mode
        return _totals(replace(self, mode=mode, processes=self.cluster_processes, scale=1.0)).bytes

    def rank(self, rank: int) -> RankLayout:
        """Return the files of rank ``rank``. Raises IndexError outside 0..processes-1."""
        if not 0 <= rank < self.processes:
            raise IndexError(f"rank {rank} of {self.name}, which has ranks 0..{self.processes - 1}")
        return _rank_layout(self, rank)

    def ranks(self) -> tuple[RankLayout, ...]:
        """Return the files of every rank, in rank order."""
        return _ranks(self)


def layout(of: Model | str, *, mode: str, processes: int | None = None, scale: float = 1.0) -> Layout:
    """Return the layout of a model's checkpoint; ``of`` is a model, or the name of a model of the workload.

    ``mode`` is ``full``, ``subset`` or ``open``. ``full`` has exactly the model's processes. ``subset`` has ranks 0..7
    of the full layout, for client-local storage. ``open`` has ``processes`` processes, a multiple of tensor x pipeline
    parallelism. ``scale`` is above 0 and at most 1. A scale below 1 keeps the files and reduces the tensors in each
    file (`reduced`).

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


class _Part(NamedTuple):
    """One rank's share of every tensor of one precision. Each tensor is divided into ``parts`` equal parts.

    ``part`` is the number of the rank's part, from 0. The rank with the last part also saves the remainder, as a
    separate tensor.
    """

    precision: Precision
    part: int
    parts: int

    def of(self, group: str, tensors: Sequence[int]) -> Iterator[Tensor]:
        for index, elements in enumerate(tensors):
            yield from self.of_one(f"{group}/{index}", elements)

    def of_one(self, name: str, elements: int) -> Iterator[Tensor]:
        each, remainder = divmod(elements, self.parts)
        if each:
            yield self._tensor(name, each)
        if remainder and self.part == self.parts - 1:
            yield self._tensor(f"{name}{_REST}", remainder)

    def _tensor(self, name: str, elements: int) -> Tensor:
        return Tensor(name=name, dtype=_DTYPES[self.precision], elements=elements)


def is_of_experts(file: str) -> bool:
    """Return whether a file, given its name, contains only experts."""
    return _OF_EXPERTS in file


@lru_cache(maxsize=1024)
def _selected_tensors(sizes: tuple[int, ...], scale: float) -> tuple[tuple[int, int], ...]:
    """Return (index, elements) of each tensor that a scale keeps, in ascending order of the index."""
    # Use the decimal as written: 0.29 of 100 elements is 29, although the nearest float to 0.29 is smaller.
    share = Fraction(repr(scale))
    wanted = min(sum(sizes), sum(max(1, math.floor(size * share)) for size in sizes))
    largest_first = sorted(range(len(sizes)), key=lambda index: (-sizes[index], index))
    # With that share of all tensors or slightly more, the tensors in the middle of equal steps over the sizes are
    # enough.
    count = -(-len(sizes) * wanted // sum(sizes))
    while sum(sizes[index] for index in _evenly(largest_first, count)) < wanted:
        count += 1
    chosen = _evenly(largest_first, count)
    excess = sum(sizes[index] for index in chosen) - wanted
    kept = []
    for index in chosen:
        # A rank's part of a small tensor may be empty.
        cut = min(excess, max(0, sizes[index] - 1))
        kept.append((index, sizes[index] - cut))
        excess -= cut
    return tuple(sorted(kept))


def _evenly(ordered: Sequence[int], count: int) -> list[int]:
    """Divide a sequence into ``count`` equal steps, and return the middle element of each step.

    Of two middle elements, the first is returned.
    """
    return [ordered[((2 * step + 1) * len(ordered) - 1) // (2 * count)] for step in range(count)]


def _fitting(model: Model, mode: str, processes: int | None) -> int:
    """Return the number of processes of a layout.

    Raises UsageError, with the valid numbers, if ``processes`` is not valid.
    """
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
        return RankLayout(
            rank=rank, files=tuple(_files_of_user_model(model, rank, of.cluster_processes, of.scale)), whole=of
        )
    data_rank, model_rank = divmod(rank, model.model_parallel)
    stage = model_rank // model.tensor_parallel
    zero_name = f"zero_pp_rank_{data_rank}_mp_rank_{model_rank}"
    files: list[ShardFile] = []
    if model.zero_stage == PARAMETERS_SHARDED:
        tensors = _complete_stage_tensors(model, stage, of.data_parallel, of.scale)
        files.append(ShardFile(name=f"{zero_name}_model_states.pt", tensors=tensors))
    elif data_rank == 0:
        files.extend(
            ShardFile(name=f"layer_{number}-model_{model_rank}_model_states.pt", tensors=layer)
            for number, layer in _layer_tensors(model, stage, of.scale)
        )
    optimizer = _optimizer_tensors(model, of.cluster_processes, of.scale)
    files.append(ShardFile(name=f"{zero_name}_optim_states.pt", tensors=optimizer))
    return RankLayout(rank=rank, files=tuple(files), whole=of)


# Sizes depend on the pipeline stage and not on the rank, so all ranks of a stage share their tensors.
@lru_cache(maxsize=512)
def _layer_tensors(model: Model, stage: int, scale: float) -> tuple[tuple[int, tuple[Tensor, ...]], ...]:
    """Return (number, tensors) of the layers of one pipeline stage, sharded across tensor-parallel ranks.

    Each layer is one file.
    """
    return tuple(
        (number, reduced(_tensors(f"layer_{number}", "float16", elements), scale))
        for number, elements in _stage_elements(model, stage, 1)
    )


@lru_cache(maxsize=512)
def _complete_stage_tensors(model: Model, stage: int, shards: int, scale: float) -> tuple[Tensor, ...]:
    """Return one rank's tensors of a pipeline stage for ZeRO-3. One file contains all these tensors.

    The tensors are sharded across the tensor-parallel ranks, and then across ``shards`` data-parallel ranks.
    """
    layers = _stage_elements(model, stage, shards)
    full = [tensor for number, layer in layers for tensor in _tensors(f"layer_{number}", "float16", layer)]
    return reduced(full, scale)


def _stage_elements(model: Model, stage: int, shards: int) -> Iterator[tuple[int, list[int]]]:
    h, cut = model.hidden, model.tensor_parallel
    vocabulary = h * model.vocabulary // cut // shards
    each, remainder = divmod(model.layers, model.pipeline_parallel)
    first = 1 + stage * each + min(stage, remainder)
    if stage == 0:
        yield 0, [vocabulary]
    for number in range(first, first + each + (stage < remainder)):
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
    """Return one rank's tensors of the optimizer's three states.

    Each state is reduced separately, so that it keeps at least one tensor at every scale.
    """
    states = [model.parameters // processes, 5 * model.hidden]
    full = _tensors("optimizer", "float32", states * 3)
    return tuple(
        tensor for n in range(0, len(full), len(states)) for tensor in reduced(full[n : n + len(states)], scale)
    )


def _tensors(group: str, dtype: Dtype, elements: list[int]) -> tuple[Tensor, ...]:
    return tuple(Tensor(name=f"{group}/{index}", dtype=dtype, elements=count) for index, count in enumerate(elements))


def _files_of_user_model(model: Model, rank: int, processes: int, scale: float) -> Iterator[ShardFile]:
    """Yield the files of a rank of a user's model, the optimizer's file last.

    ``processes`` is the number of processes of the whole checkpoint.
    """
    own = model.own
    assert own
    tensor_parallel, grid = model.tensor_parallel, model.tensor_parallel * model.pipeline_parallel
    data_rank, grid_rank = divmod(rank, grid)
    stage, tensor_rank = divmod(grid_rank, tensor_parallel)
    layers = {number: model.tensors(number) for number in _stage_layers(model, stage)}
    data_parallel = processes // grid
    of_all = data_rank * tensor_parallel + tensor_rank, data_parallel * tensor_parallel
    name = f"zero_pp_rank_{data_rank}_mp_rank_{grid_rank}"
    if model.zero_stage == PARAMETERS_SHARDED:
        mine = _Part(own.weights, *of_all)
        tensors = (
            tensor
            for number, (dense, experts) in layers.items()
            for tensor in (*mine.of(f"layer_{number}", dense), *mine.of(f"layer_{number}_experts", experts))
        )
        yield ShardFile(name=f"{name}_model_states.pt", tensors=_reduced_tensors(tensors, scale))
    else:
        yield from _layer_files_of_user_model(model, layers, data_rank, grid_rank, scale)
    # The states of experts are separate from the others, as in training.
    groups = {
        f"optimizer_stage_{stage}": sum(sum(dense) for dense, _ in layers.values()),
        f"optimizer_stage_{stage}_experts": sum(sum(experts) for _, experts in layers.values()),
    }
    ends = {f"optimizer_stage_{stage}_ends": sum(sum(layers[n][0]) for n in _ends(model) if n in layers)}
    states: list[Tensor] = []
    # Each state keeps a tensor at every scale.
    of_each = [*((precision, groups) for precision in own.optimizer), *((p, ends) for p in own.optimizer_of_ends)]
    for number, (precision, counts) in enumerate(of_each):
        mine = _Part(precision, *of_all)
        state = (tensor for group, count in counts.items() for tensor in mine.of_one(f"{group}/{number}", count))
        states += _reduced_tensors(state, scale)
    yield ShardFile(name=f"{name}_optim_states.pt", tensors=tuple(states))


def _ends(model: Model) -> tuple[int, int, int]:
    """Return the layer numbers of the embedding, the head and the last norm."""
    return 0, model.layers + 1, model.layers + 2


def _stage_layers(model: Model, stage: int) -> list[int]:
    """Return the layer numbers of a pipeline stage.

    The first ``layers % stages`` stages have one layer more than the others.
    """
    each, remainder = divmod(model.layers, model.pipeline_parallel)
    first = 1 + stage * each + min(stage, remainder)
    ends = [model.layers + 1, model.layers + 2] if stage == model.pipeline_parallel - 1 else []
    return [*([0] if stage == 0 else []), *range(first, first + each + (stage < remainder)), *ends]


def _reduced_tensors(tensors: Iterable[Tensor], scale: float) -> tuple[Tensor, ...]:
    """Return the tensors of a user's model that a scale keeps.

    Remainders are elements that could not be divided evenly. Only the last rank has remainders. They are reduced
    separately, so that all ranks keep the same tensors apart from the remainders.
    """
    full = tuple(tensors)
    if scale == 1:
        return full
    parts = {tensor.name: tensor for tensor in reduced([t for t in full if not t.name.endswith(_REST)], scale)}
    rests = {tensor.name: tensor for tensor in reduced([t for t in full if t.name.endswith(_REST)], scale)}
    kept = parts | rests
    return tuple(kept[tensor.name] for tensor in full if tensor.name in kept)


def _layer_files_of_user_model(
    model: Model, layers: Mapping[int, tuple[list[int], list[int]]], data_rank: int, grid_rank: int, scale: float
) -> Iterator[ShardFile]:
    """Yield the model files that one rank of a user's model writes for the given layers.

    Only the first data-parallel rank writes a file for each layer. Only the first expert-parallel group writes a file
    for the experts of each layer.
    """
    assert model.own
    own, cut = model.own, model.tensor_parallel
    tensor_rank = grid_rank % cut
    mine = _Part(own.weights, tensor_rank, cut)
    for number, (dense, _) in layers.items() if data_rank == 0 else ():
        if tensors := _reduced_tensors(mine.of(f"layer_{number}", dense), scale):
            yield ShardFile(name=f"layer_{number}-model_{grid_rank}_model_states.pt", tensors=tensors)
    mine = _Part(own.weights, data_rank * cut + tensor_rank, own.expert_parallel * cut)
    for number, (_, experts) in layers.items() if data_rank < own.expert_parallel else ():
        if tensors := _reduced_tensors(mine.of(f"layer_{number}_experts", experts), scale):
            name = f"layer_{number}{_OF_EXPERTS}{data_rank}-model_{grid_rank}_model_states.pt"
            yield ShardFile(name=name, tensors=tensors)

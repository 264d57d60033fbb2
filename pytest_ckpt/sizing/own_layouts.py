"""Which tensors in which files each rank writes of a model that a user describes, to the element. Pure.

Files and ranks are those of the workload's models (`pytest_ckpt.sizing.models`); every parameter is in exactly one
model file of a copy, and each optimizer state of it in exactly one optimizer file. What training frameworks repeat on
all tensor-parallel ranks (norms, routers: less than 0.1 %) is cut as all else.

Rank r: tp = r % TP, pp = (r // TP) % PP, ep = (r // (TP PP)) % EP, dp = r // (TP PP): expert parallelism lies within
data parallelism, as in DeepSpeed and Megatron.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_ckpt.facts.models import PARAMETERS_SHARDED
from pytest_ckpt.sizing.tensors import ShardFile, Tensor, reduced

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_ckpt.facts.models import Model, Precision
    from pytest_ckpt.sizing.tensors import Dtype

# Random bytes are the same in every type of a size.
_DTYPES: dict[Precision, Dtype] = {
    "float32": "float32", "float16": "float16", "bfloat16": "float16", "float8": "uint8",
}  # fmt: skip

_OF_EXPERTS = "-expert_rank_"
_REST = "/rest"


class _Part(NamedTuple):
    """Part ``part`` of ``parts`` of tensors of one precision.

    Parts are of one size; the last one has what is left over in a tensor of its own.
    """

    precision: Precision
    part: int
    parts: int

    def of(self, group: str, tensors: Sequence[int]) -> Iterator[Tensor]:
        for index, elements in enumerate(tensors):
            yield from self.of_one(f"{group}/{index}", elements)

    def of_one(self, name: str, elements: int) -> Iterator[Tensor]:
        each, left_over = divmod(elements, self.parts)
        if each:
            yield self._tensor(name, each)
        if left_over and self.part == self.parts - 1:
            yield self._tensor(f"{name}{_REST}", left_over)

    def _tensor(self, name: str, elements: int) -> Tensor:
        return Tensor(name=name, dtype=_DTYPES[self.precision], elements=elements)


def _reduced(tensors: Iterable[Tensor], scale: float) -> tuple[Tensor, ...]:
    """Return the tensors that a scale leaves.

    The last rank alone has what is left over of tensors: of the others it keeps the same ones as all ranks.
    """
    full = tuple(tensors)
    if scale == 1:
        return full
    parts = {tensor.name: tensor for tensor in reduced([t for t in full if not t.name.endswith(_REST)], scale)}
    rests = {tensor.name: tensor for tensor in reduced([t for t in full if t.name.endswith(_REST)], scale)}
    kept = parts | rests
    return tuple(kept[tensor.name] for tensor in full if tensor.name in kept)


def own_files(model: Model, rank: int, processes: int, scale: float) -> Iterator[ShardFile]:
    """Yield the files of a rank of so many processes that write the whole checkpoint: the optimizer's is the last."""
    own = model.own
    assert own
    tensor_parallel, grid = model.tensor_parallel, model.tensor_parallel * model.pipeline_parallel
    data_rank, grid_rank = divmod(rank, grid)
    stage, tensor_rank = divmod(grid_rank, tensor_parallel)
    layers = {number: model.tensors(number) for number in stage_layers(model, stage)}
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
        yield ShardFile(name=f"{name}_model_states.pt", tensors=_reduced(tensors, scale))
    else:
        yield from _layer_files(model, layers, data_rank, grid_rank, scale)
    # States of experts are kept apart from the others, as training does.
    groups = {
        f"optimizer_stage_{stage}": sum(sum(dense) for dense, _ in layers.values()),
        f"optimizer_stage_{stage}_experts": sum(sum(experts) for _, experts in layers.values()),
    }
    states: list[Tensor] = []
    # Each state keeps a tensor at every scale.
    for number, precision in enumerate(own.optimizer):
        mine = _Part(precision, *of_all)
        state = (tensor for group, count in groups.items() for tensor in mine.of_one(f"{group}/{number}", count))
        states += _reduced(state, scale)
    yield ShardFile(name=f"{name}_optim_states.pt", tensors=tuple(states))


def _layer_files(
    model: Model, layers: Mapping[int, tuple[list[int], list[int]]], data_rank: int, grid_rank: int, scale: float
) -> Iterator[ShardFile]:
    """Yield a file a layer: the first data-parallel rank's, and the experts' of the first expert-parallel group."""
    assert model.own
    own, cut = model.own, model.tensor_parallel
    tensor_rank = grid_rank % cut
    mine = _Part(own.weights, tensor_rank, cut)
    for number, (dense, _) in layers.items() if data_rank == 0 else ():
        if tensors := _reduced(mine.of(f"layer_{number}", dense), scale):
            yield ShardFile(name=f"layer_{number}-model_{grid_rank}_model_states.pt", tensors=tensors)
    mine = _Part(own.weights, data_rank * cut + tensor_rank, own.expert_parallel * cut)
    for number, (_, experts) in layers.items() if data_rank < own.expert_parallel else ():
        if tensors := _reduced(mine.of(f"layer_{number}_experts", experts), scale):
            name = f"layer_{number}{_OF_EXPERTS}{data_rank}-model_{grid_rank}_model_states.pt"
            yield ShardFile(name=name, tensors=tensors)


def is_of_experts(file: str) -> bool:
    """Whether a file of that name holds experts alone."""
    return _OF_EXPERTS in file


def stage_layers(model: Model, stage: int) -> list[int]:
    """Return the layers of a pipeline stage: the first ``layers % stages`` stages have one more than the others."""
    each, left_over = divmod(model.layers, model.pipeline_parallel)
    first = 1 + stage * each + min(stage, left_over)
    ends = [model.layers + 1, model.layers + 2] if stage == model.pipeline_parallel - 1 else []
    return [*([0] if stage == 0 else []), *range(first, first + each + (stage < left_over)), *ends]

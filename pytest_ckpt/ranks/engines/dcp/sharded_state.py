"""The state as the library takes it: DTensors, each cut over the ranks that hold a part of it.

A rank's layout names the parts of tensors that it holds, and parts of one tensor have the same name on all ranks. So
the whole tensor of a name is made of the parts of all ranks that hold the name, one row each, in the order of ranks: a
DTensor that is cut by rows. For weights under ZeRO-3 these are the data-parallel and tensor-parallel ranks of a
pipeline stage, under ZeRO-1 the tensor-parallel ranks of the first replica, for the optimizer all ranks. Row behind
row, that is the flat parameter that ZeRO and Megatron's distributed optimizer cut over ranks. A subset's whole tensors
are those of the ranks that take part. Since ``.metadata`` names whole tensors and where their parts lie, another number
of ranks can load the checkpoint, and so can the library without this package.

Why rows and no flat DTensors: of those, the library (torch 2.13) lists the index of every element of a part when it
plans, 8 bytes each, which no job pays that cuts matrices by rows as FSDP does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.sizing.models import RankLayout, Tensor

Holders = tuple[tuple[tuple[int, ...], tuple[str, ...]], ...]
"""Ranks, and the names of the tensors that they hold together; the same on all ranks, in the same order."""


def find_holders(group: Group, tensors: Iterable[Tensor]) -> Holders:
    """Return which ranks hold which tensors together; called by all ranks together.

    Raises RuntimeError where ranks hold parts of one tensor that differ in size or type: those are no rows of one.
    """
    held = group.gather({tensor.name: (tensor.dtype, tensor.elements) for tensor in tensors})
    shared: Holders | str = group.share(_holders(held) if group.rank == 0 else ())
    if isinstance(shared, str):
        raise RuntimeError(shared)
    return shared


def _holders(held: Sequence[Mapping[str, tuple[str, int]]]) -> Holders | str:
    """Return the holders, or what stands against it."""
    ranks: dict[str, list[int]] = {}
    for rank, tensors in enumerate(held):
        for name, part in tensors.items():
            ranks.setdefault(name, []).append(rank)
            if part != held[ranks[name][0]][name]:
                return f"ranks {ranks[name][0]} and {rank} hold parts of {name} that are not of one size and type"
    names: dict[tuple[int, ...], list[str]] = {}
    for name, of in ranks.items():
        names.setdefault(tuple(of), []).append(name)
    return tuple((of, tuple(together)) for of, together in names.items())


class ShardedState:
    """The tensors of a rank. ``whole`` is what the library is given, by name."""

    def __init__(self, shard: RankLayout, holders: Holders) -> None:
        """Make the tensors, all ranks together: the ranks that hold a tensor become a mesh."""
        own = {tensor.name: tensor for file in shard.files for tensor in file.tensors}
        self._parts = {name: torch.zeros(1, t.elements, dtype=_dtype(t)) for name, t in own.items()}
        self.whole: dict[str, Any] = {}
        for ranks, names in holders:
            # Every rank makes every mesh: it becomes a process group.
            mesh = DeviceMesh("cpu", list(ranks))
            for name in names if shard.rank in ranks else ():
                self.whole[name] = DTensor.from_local(self._parts[name], mesh, [Shard(0)], run_check=False)

    def bytes_of(self, name: str) -> NDArray[np.uint8]:
        """Return the memory of this rank's part of a tensor."""
        return self._parts[name].view(torch.uint8).numpy().reshape(-1)

    def copy_from(self, other: ShardedState) -> int:
        """Copy this rank's parts of another state of the same tensors; return the bytes."""
        for name, part in self._parts.items():
            part.copy_(other._parts[name])
        return sum(part.nbytes for part in self._parts.values())

    def item_bytes(self, name: str) -> int:
        """Return the bytes of an element of a tensor."""
        return self._parts[name].element_size()

    def clear(self) -> None:
        """Overwrite all: what a load then leaves out is no content of a checkpoint before."""
        for part in self._parts.values():
            part.zero_()


def _dtype(tensor: Tensor) -> torch.dtype:
    return {"float16": torch.float16, "float32": torch.float32, "uint8": torch.uint8}[tensor.dtype]

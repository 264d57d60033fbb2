"""Loads a checkpoint of engine ``dcp`` with more or fewer ranks than saved the checkpoint.

The library reshards by `.metadata`. Each tensor is a DTensor of the saved shape, sharded by rows and columns across the
loading ranks (`pytest_ckpt.sizing.resharding`). If a rank needs some bytes of a saved part, the library reads the
complete part. Therefore two ranks that each need half of a part both read the complete part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard, zeros

from pytest_ckpt.facts.file_rules import DCP_FILES
from pytest_ckpt.ranks.content import TensorKey, compare
from pytest_ckpt.ranks.engines.dcp import DcpEngine, ShardedState, dtype_of
from pytest_ckpt.ranks.engines.protocol import MAXIMUM_FAULTS_OF_RANK, Comparison, LocalFault
from pytest_ckpt.sizing.files import shard_files
from pytest_ckpt.sizing.models import RankLayout, ShardFile, Tensor
from pytest_ckpt.sizing.resharding import resharded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_ckpt.ranks.content import Content
    from pytest_ckpt.ranks.process.activity import Activity
    from pytest_ckpt.ranks.process.group import Group
    from pytest_ckpt.ranks.process.job import EngineOptions
    from pytest_ckpt.sizing.models import Layout
    from pytest_ckpt.sizing.resharding import ResizedTensor


class ResizedLoader(DcpEngine):
    """Loads this rank's part of every tensor. ``shards`` is the layout of the ranks that saved the checkpoint.

    All ranks call each method together.
    """

    def __init__(
        self, shards: Layout, content: Content, group: Group, activity: Activity, options: EngineOptions
    ) -> None:
        self._resharded = resharded(shards, group.size)
        own = [(tensor, tensor.shape_of(group.rank)) for tensor in self._resharded]
        tensors = tuple(
            Tensor(name=tensor.name, dtype=tensor.dtype, elements=rows * columns)
            for tensor, (rows, columns) in own
            if rows
        )
        files = (ShardFile(name="resized", tensors=tensors),) if tensors else ()
        super().__init__(RankLayout(rank=group.rank, files=files), content, group, activity, options)
        self._saved_in = {
            (shard.rank, tensor.name): file.name
            for shard in shards.ranks()
            for file in shard_files(shard, DCP_FILES)
            for tensor in file.tensors
        }

    def verify(self, checkpoint: int) -> Comparison:
        """Compare every byte of each loaded tensor with the content of the saved checkpoint."""
        faults, state = self._faults, self._ready()
        checked, count = 0, len(faults)
        for tensor in self._resharded:
            if tensor.name not in self._arrived:
                continue
            data, begin = state.bytes_of(tensor.name), 0
            for part in tensor.parts_of(self._group.rank):
                piece = data[begin : begin + part.stop - part.start]
                begin += len(piece)
                place = TensorKey(checkpoint=checkpoint, rank=part.rank, tensor=part.number)
                pages, findings = compare(self._content, piece, place, part.start)
                checked, count = checked + len(piece), count + pages
                file = self._saved_in[part.rank, tensor.name]
                faults += [LocalFault.of(finding, file, tensor.name) for finding in findings]
        return Comparison(bytes_checked=checked, fault_count=count, faults=tuple(faults[:MAXIMUM_FAULTS_OF_RANK]))

    def _new_state(self, *, is_shared: bool = False) -> ShardedState:
        assert not is_shared, "only a copy that another process saves is shared"
        return ResizedState(self._resharded, self._group.rank)


class ResizedState(ShardedState):
    """The tensors of a rank that loads a checkpoint saved by another number of ranks."""

    def __init__(self, tensors: Sequence[ResizedTensor], rank: int) -> None:
        """Create the tensors of this rank. All ranks call this together.

        For each different grid of ranks in ``tensors``, torch creates a device mesh of these ranks.
        """
        self._parts = {}
        self.whole = {}
        meshes: dict[tuple[tuple[int, ...], ...], DeviceMesh] = {}
        for tensor in tensors:
            # Every rank creates every mesh, in the same order, because each mesh becomes process groups.
            if tensor.grid not in meshes:
                meshes[tensor.grid] = DeviceMesh("cpu", [list(row) for row in tensor.grid])
            if not tensor.shape_of(rank)[0]:
                continue
            size = (len(tensor.rows), tensor.columns)
            whole: DTensor = zeros(
                size, dtype=dtype_of(tensor.dtype), device_mesh=meshes[tensor.grid], placements=[Shard(0), Shard(1)]
            )
            part = whole.to_local()
            if tuple(part.shape) != tensor.shape_of(rank):
                raise RuntimeError(
                    f"the library gives rank {rank} {tuple(part.shape)} elements of {tensor.name}, not "
                    f"{tensor.shape_of(rank)}"
                )
            self.whole[tensor.name], self._parts[tensor.name] = whole, part


def make(
    *, shards: Layout, content: Content, group: Group, activity: Activity, options: EngineOptions
) -> ResizedLoader:
    """Return the loader of one rank.

    ``shards`` is the layout of the ranks that saved the checkpoint; ``group`` contains the loading ranks.
    """
    return ResizedLoader(shards, content, group, activity, options)

"""What of a load has arrived: the library's reader and planner, which also say where a load stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader

from pytest_ckpt.ranks.engines.protocol import LocalFault

if TYPE_CHECKING:
    import torch
    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.planner import LoadPlan, ReadItem

    from pytest_ckpt.facts.proofs import FaultKind
    from pytest_ckpt.ranks.engines.dcp.sharded_state import ShardedState
    from pytest_ckpt.ranks.engines.dcp.watch import Watch


class OneMetadataReader(FileSystemReader):
    """Reads one `.metadata` for all ranks. The library would then look for one of each rank, which nobody wrote."""

    def read_metadata(self) -> Metadata:
        """Read it."""
        return super().read_metadata()


class Arrivals(DefaultLoadPlanner):
    """The library's planner, which also counts what arrives."""

    def __init__(self) -> None:
        super().__init__()
        self._planned: list[ReadItem] = []
        self._waiting: list[ReadItem] = []

    def finish_plan(self, new_plan: LoadPlan) -> LoadPlan:
        """Take in what this rank is going to read."""
        plan = super().finish_plan(new_plan)
        self._planned, self._waiting = list(plan.items), list(plan.items)
        return plan

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        """Take in that a part of a tensor has arrived."""
        super().commit_tensor(read_item, tensor)
        self._waiting = [item for item in self._waiting if item is not read_item]

    @property
    def whole(self) -> frozenset[str]:
        """The names of the tensors of which this rank's part has arrived in full."""
        waiting = {item.dest_index.fqn for item in self._waiting}
        return frozenset(item.dest_index.fqn for item in self._planned) - waiting

    def files(self, places: dict[Any, Any]) -> dict[str, str]:
        """Return in which file this rank's part of each tensor stands."""
        return {item.dest_index.fqn: places[item.storage_index].relative_path for item in self._planned}

    def fault(self, why: str, places: dict[Any, Any], state: ShardedState, files: Watch) -> LocalFault | None:
        """Return what stopped the load as a fault of the file that was read; None where no tensor was.

        ``places`` goes from the index of a part in the storage to where it stands, as `.metadata` has it.
        """
        by_file: dict[str, list[ReadItem]] = {}
        for item in self._planned:
            by_file.setdefault(places[item.storage_index].relative_path, []).append(item)
        for name, items in by_file.items():
            for item in items:
                if not any(item is waits for waits in self._waiting):
                    continue
                place, size = places[item.storage_index], files.sizes.get(name, 0)
                ends_early = place.offset + place.length > size
                kind: FaultKind = "short" if ends_early else "unreadable"
                seen = f"{size} bytes, the part ends at {place.offset + place.length}"
                each = state.item_bytes(item.dest_index.fqn)
                return LocalFault(
                    kind=kind,
                    file=name,
                    tensor=item.dest_index.fqn,
                    # A part is a row.
                    offset=item.dest_offsets[-1] * each,
                    bytes=item.lengths[-1] * each,
                    detail=f"torch.distributed.checkpoint cannot read it, nor what stands behind it ({seen}): {why}",
                )
        return None


def of_places(name: str, kind: FaultKind, size: int, why: str) -> LocalFault:
    """Return what is wrong with a file that says where tensors stand."""
    return LocalFault(kind=kind, file=name, tensor="", offset=0, bytes=size, detail=why)


def of_other_size(name: str, size: int, written: int) -> LocalFault:
    """Return that a file has grown or shrunk."""
    detail = f"the file has {size} bytes, {written} were written"
    return LocalFault(kind="foreign", file=name, tensor="", offset=written, bytes=size, detail=detail)

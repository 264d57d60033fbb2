"""The index of a checkpoint: which tensor stands in which file, in the form that Hugging Face's writers give it. Pure.

It maps each name to one file. Ranks hold parts of the same tensors, so the part of each rank has a name of its own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_ckpt.facts.file_rules import SAFETENSORS_FILES
from pytest_ckpt.sizing.files import shard_files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_ckpt.sizing.models import RankLayout

(INDEX,) = SAFETENSORS_FILES.shared


def stored_name(tensor: str, rank: int) -> str:
    """Return what the part of a tensor that a rank holds is called in files."""
    return f"{tensor}/rank{rank}"


def files_of_tensors(shard: RankLayout) -> dict[str, str]:
    """Return the file of each tensor of a rank, by the tensor's name in files."""
    files = shard_files(shard, SAFETENSORS_FILES)
    return {stored_name(tensor.name, shard.rank): file.name for file in files for tensor in file.tensors}


def index_of(shard: RankLayout) -> bytes:
    """Return the index of the checkpoint that a rank's tensors are a part of."""
    shards = shard.whole.ranks() if shard.whole else (shard,)
    index = {
        "metadata": {"total_size": sum(each.bytes for each in shards)},
        "weight_map": {name: file for each in shards for name, file in files_of_tensors(each).items()},
    }
    return f"{json.dumps(index, indent=2, sort_keys=True)}\n".encode()


def weight_map(index: bytes) -> Mapping[str, Any]:
    """Return where an index says that tensors stand. Raises ValueError where it is none."""
    try:
        found = json.loads(index)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    placed = found.get("weight_map") if isinstance(found, dict) else None
    if not isinstance(placed, dict):
        raise ValueError("it has no weight_map")
    return placed

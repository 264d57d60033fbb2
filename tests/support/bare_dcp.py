"""Saves and loads with torch.distributed.checkpoint in several processes, without pytest-ckpt, as a job does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_ckpt.ranks.content import Content, TensorKey, content_seed
from pytest_ckpt.sizing.models import layout
from tests.support.machine import patience

_SECONDS = 300

_BEGIN = """
import hashlib, json, os, sys
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor, zeros

directory, scratch, rank, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
dist.init_process_group("gloo", store=dist.FileStore(scratch + "/store", count), rank=rank, world_size=count)
mesh = init_device_mesh("cpu", (count,))
"""
_LOAD = """
found = dcp.FileSystemReader(directory).read_metadata().state_dict_metadata
state = {
    name: zeros(of.size, dtype=of.properties.dtype, device_mesh=mesh, placements=[Shard(0)])
    for name, of in found.items()
}
dcp.load(state, checkpoint_id=directory)
for name, tensor in state.items():
    whole = tensor.full_tensor()
    if rank == 0:
        with open(os.path.join(scratch, name.replace("/", "+")), "wb") as out:
            out.write(whole.reshape(-1).view(torch.uint8).numpy().tobytes())
"""
_SAVE = """
with open(scratch + "/types.json") as file:
    types = json.load(file)
state = {}
for name, kind in types.items():
    with open(os.path.join(scratch, name.replace("/", "+")), "rb") as file:
        whole = torch.frombuffer(bytearray(file.read()), dtype=getattr(torch, kind))
    # A row for each rank that pytest-ckpt has: here one, cut by columns.
    state[name] = distribute_tensor(whole.reshape(1, -1), mesh, [Shard(1)])
dcp.save(state, checkpoint_id=directory)
"""
_END = """
assert not [name for name in sys.modules if name.split(".")[0] == "pytest_ckpt"]
dist.barrier()
dist.destroy_process_group()
"""


def load_bare(directory: Path, scratch: Path, processes: int) -> dict[str, bytes]:
    """Load a checkpoint with ``processes`` processes; return {tensor name: bytes of the complete tensor}."""
    _run(_LOAD, directory, scratch, processes)
    return {path.name.replace("+", "/"): path.read_bytes() for path in scratch.iterdir() if "+" in path.name}


def save_bare(directory: Path, scratch: Path, processes: int, tensors: Mapping[str, tuple[str, bytes]]) -> None:
    """Save complete tensors with ``processes`` processes; each tensor is sharded across all processes.

    ``tensors`` is {tensor name: (type, bytes)}. A tensor is saved with the shape (1, number of elements).
    """
    for name, (_, data) in tensors.items():
        (scratch / name.replace("/", "+")).write_bytes(data)
    (scratch / "types.json").write_text(json.dumps({name: kind for name, (kind, _) in tensors.items()}))
    _run(_SAVE, directory, scratch, processes)


def whole_tensors(measurement: Mapping[str, Any], seed: int, checkpoint: int) -> dict[str, bytes]:
    """Return {tensor name: expected bytes of the complete tensor} of a checkpoint that pytest-ckpt saved.

    The bytes of a tensor are the bytes of its shards, in the order of the ranks.
    """
    content = Content(content_seed(seed, measurement["subject"]))
    shards = layout("llama3-8b", mode="open", processes=measurement["processes"], scale=measurement["scale"])
    found: dict[str, bytes] = {}
    for shard in shards.ranks():
        tensors = [tensor for file in shard.files for tensor in file.tensors]
        for number, tensor in enumerate(tensors):
            place = TensorKey(checkpoint=checkpoint, rank=shard.rank, tensor=number)
            found[tensor.name] = found.get(tensor.name, b"") + content.expected(place, 0, tensor.bytes).tobytes()
    return found


def _run(program: str, directory: Path, scratch: Path, processes: int) -> None:
    words = [sys.executable, "-I", "-c", _BEGIN + program + _END, str(directory), str(scratch)]
    started = [
        subprocess.Popen([*words, str(rank), str(processes)], stderr=subprocess.PIPE, text=True)
        for rank in range(processes)
    ]
    try:
        output = [process.communicate(timeout=patience(_SECONDS))[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * processes, output

"""torch.distributed.checkpoint on a bucket by itself: a program that loads as jobs do, without pytest-ckpt."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_SECONDS = 300
_PROGRAM = """
import os, sys
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp

client, url, endpoint, scratch = sys.argv[1:]
torch.set_num_threads(1)
if client == "dcp-s3fs":
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader
    reader = FsspecReader(url, endpoint_url=endpoint, config_kwargs={"s3": {"addressing_style": "path"}})
else:
    from s3torchconnector import S3ClientConfig
    from s3torchconnector._s3client import S3Client
    from s3torchconnector.dcp import S3StorageReader
    reader = S3StorageReader("us-east-1", url)
    reader.fs._client = S3Client("us-east-1", endpoint=endpoint, s3client_config=S3ClientConfig(force_path_style=True))
found = reader.read_metadata().state_dict_metadata
state = {name: torch.zeros(of.size, dtype=of.properties.dtype) for name, of in found.items()}
dcp.load(state, storage_reader=reader, no_dist=True)
for name, tensor in state.items():
    with open(os.path.join(scratch, name.replace("/", "+")), "wb") as out:
        out.write(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
assert not [name for name in sys.modules if name.split(".")[0] == "pytest_ckpt"]
"""


def load_bare(client: str, url: str, endpoint: str, scratch: Path, keys: Mapping[str, str]) -> dict[str, bytes]:
    """Return the whole tensors of a checkpoint, which one process has loaded by the client of an engine."""
    words = [sys.executable, "-I", "-c", _PROGRAM, client, url, endpoint, str(scratch)]
    done = subprocess.run(
        words, env={**os.environ, **keys}, capture_output=True, text=True, check=False, timeout=_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return {path.name.replace("+", "/"): path.read_bytes() for path in scratch.iterdir()}

"""Common code for tests of the engine safetensors with one rank: its shard, a save and a load."""

from __future__ import annotations

import functools

from pytest_ckpt.facts.file_rules import SAFETENSORS_FILES
from pytest_ckpt.ranks.content import Content, TensorKey
from pytest_ckpt.ranks.engines.safetensors import make
from pytest_ckpt.ranks.engines.safetensors_files import INDEX, index_of, stored_name
from pytest_ckpt.ranks.process.activity import Activity
from pytest_ckpt.ranks.process.job import EngineOptions
from pytest_ckpt.sizing.files import shard_files
from pytest_ckpt.sizing.models import layout
from tests.support import posix_files
from tests.support.one_rank import SingleRankGroup
from tests.support.posix_files import CHECKPOINT

# The first of eight ranks of a full model, so that its shard is divided into files as at full size.
WHOLE = layout("llama3-8b", mode="full", scale=1e-5)
SHARD = WHOLE.rank(0)
CONTENT = Content(7)


def engine_of(shard=SHARD, **options):
    return make(
        shard=shard, content=CONTENT, group=SingleRankGroup(), activity=Activity(), options=EngineOptions(**options)
    )


def save(directory, number=CHECKPOINT, engine=None):
    return posix_files.save(engine or engine_of(), directory, number)


def load(directory, number=CHECKPOINT, engine=None):
    return posix_files.load(engine or engine_of(), directory, number)


def expected(number, tensor, rank=0):
    return CONTENT.expected(TensorKey(checkpoint=CHECKPOINT, rank=rank, tensor=number), 0, tensor.bytes).tobytes()


def tensors_of(shard=SHARD):
    """Return the tensors that a rank passes to the library, as {file name: {tensor name: (type, bytes)}}."""
    given_to, number = {}, 0
    for file in shard_files(shard, SAFETENSORS_FILES):
        given_to[file.name] = {}
        for tensor in file.tensors:
            data = expected(number, tensor, shard.rank)
            given_to[file.name][stored_name(tensor.name, shard.rank)] = (tensor.dtype, data)
            number += 1
    return given_to


@functools.cache
def expected_files():
    """Return {file name: expected content} of a checkpoint."""
    files = {place: bytes(_bare_file(tensors)) for place, tensors in tensors_of().items()}
    return files | {INDEX: index_of(SHARD)}


def _bare_file(tensors):
    import numpy as np  # noqa: PLC0415 - with the library, which not all workers need
    from safetensors.numpy import save as bytes_of_file  # noqa: PLC0415

    return bytes_of_file(
        {name: np.frombuffer(data, dtype=kind) for name, (kind, data) in tensors.items()}, {"format": "pt"}
    )

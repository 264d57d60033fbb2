"""How many requests a checkpoint takes, and how many more a byte at a reduced scale. Pure."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ckpt.sizing.models import Layout


@lru_cache(maxsize=64)
def request_count(layout: Layout, request_bytes: int) -> int:
    """Return the requests of a client that moves each tensor by itself: one for each file, and those of its tensors.

    Clients that move several tensors in one request make fewer.
    """
    files = (file for shard in layout.ranks() for file in shard.files)
    return sum(1 + sum(-(-tensor.bytes // request_bytes) for tensor in file.tensors) for file in files)


def requests_against_full_size(layout: Layout, request_bytes: int) -> float:
    """Return the requests a byte of a checkpoint, as a multiple of those at scale 1.0."""
    full = replace(layout, scale=1.0)
    here, there = request_count(layout, request_bytes), request_count(full, request_bytes)
    return here * full.bytes / (layout.bytes * there)

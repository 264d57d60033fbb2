"""Weights alone, as replicas of a serving engine load them, and as one client brings them into files of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_ckpt.facts.proofs import Integrity

WayOfReading = Literal["reads", "mmap"]
"""Through a file object, or from a mapping of the file; both through the page cache, as serving engines load."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsLoad:
    """One load of the weights by all replicas at once, until the slowest reader had its part.

    ``is_warm``: straight after a load of the same bytes by the same readers. ``resident_bytes`` of ``mapped_bytes``
    were in the page caches of readers before it, None where nothing shows that.
    """

    way: WayOfReading
    is_warm: bool
    seconds: float
    slowest_rank: int
    resident_bytes: int | None
    mapped_bytes: int | None
    integrity: Integrity


@dataclass(frozen=True, kw_only=True, slots=True)
class Serving:
    """Loads of ``bytes`` of weights (``full_bytes`` at full size) in ``files`` files.

    Each of ``replicas`` read all of them, by ``readers`` ranks, each a part of every file. ``limit_seconds`` is the
    user's at full size, 0 where the load limit of the cluster stands in for it.
    """

    bytes: int
    full_bytes: int
    files: int
    replicas: int
    readers: int
    limit_seconds: float
    loads: tuple[WeightsLoad, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Consolidation:
    """One client read ``bytes`` of weights that others wrote (``full_bytes`` at full size) and wrote them again.

    ``seconds``: from the first read until the copy was committed. ``integrity`` is that of the copy.
    """

    bytes: int
    full_bytes: int
    limit_seconds: float
    seconds: float
    integrity: Integrity

"""What became of a chain of deltas when the checkpoints before it were deleted."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ckpt.facts.proofs import Integrity


@dataclass(frozen=True, kw_only=True, slots=True)
class Chains:
    """A full save and ``deltas`` behind it, loaded after ``deleted`` older checkpoints were deleted.

    The deleted ones had ``deleted_bytes`` of tensors; ``freed_bytes`` is by how much the volume's used space fell, None
    where the target does not tell. ``misses_deleted``: with one delta deleted, its file was no longer found by any
    rank.
    """

    deltas: int
    deleted: int
    deleted_bytes: int
    freed_bytes: int | None
    integrity: Integrity
    misses_deleted: bool

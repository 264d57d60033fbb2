"""The sizes of the parts in which an object is sent. Pure functions."""

from __future__ import annotations

MINIMUM_PART_BYTES = 5 << 20
"""S3 refuses smaller parts, except the last one."""

MAXIMUM_PARTS = 10_000
_STEP_BYTES = 1 << 20
# For files of unknown size, as written by torch.save: sufficient for the largest file of every model.
_UNKNOWN_PART_BYTES = 16 << 20


def part_bytes(size: int | None, minimum: int) -> int:
    """Return the part size for an object of ``size`` bytes (None: unknown).

    The result is at least ``minimum`` and at least 5 MiB. For an object of known size, a larger result is a multiple of
    1 MiB, and the object has at most 10,000 parts.
    """
    smallest = max(MINIMUM_PART_BYTES, minimum)
    if size is None:
        return max(smallest, _UNKNOWN_PART_BYTES)
    needed = -(-size // MAXIMUM_PARTS)
    return smallest if needed <= smallest else -(-needed // _STEP_BYTES) * _STEP_BYTES

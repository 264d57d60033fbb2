"""The sizes of the parts in which an object is sent. Pure."""

from __future__ import annotations

MINIMUM_PART_BYTES = 5 << 20
"""S3 refuses smaller parts, but for the last."""

MAXIMUM_PARTS = 10_000
_STEP_BYTES = 1 << 20
# A file whose size is not known, such as torch.save writes: enough for the largest file of every model.
_UNKNOWN_PART_BYTES = 16 << 20


def part_bytes(size: int | None, minimum: int) -> int:
    """Return the size of the parts of an object of ``size`` bytes, None: unknown; at least ``minimum`` bytes.

    No object needs more than 10,000 parts; a size above the smallest part size is a multiple of 1 MiB.
    """
    smallest = max(MINIMUM_PART_BYTES, minimum)
    if size is None:
        return max(smallest, _UNKNOWN_PART_BYTES)
    needed = -(-size // MAXIMUM_PARTS)
    return smallest if needed <= smallest else -(-needed // _STEP_BYTES) * _STEP_BYTES

"""How many requests in flight the buffers of a rank of the engine ``stream`` permit. Pure."""

from __future__ import annotations

from pytest_ckpt.sizing.files import buffer_count

MAXIMUM_BUFFERS_BYTES = 128 << 20
"""Buffers of a rank, at most, unless the operator sets the number of requests in flight."""

USUAL_DEPTH = 2
"""Requests in flight on a rank without a ramp."""

DEPTHS = (1, 2, 4, 8, 16)
"""Requests in flight on a rank that a ramp tries."""


def depths_within_memory(request_bytes: int) -> tuple[int, ...]:
    """Return the depths of a ramp whose buffers need at most `MAXIMUM_BUFFERS_BYTES`."""
    return tuple(d for d in DEPTHS if buffer_count(request_bytes, d) * request_bytes <= MAXIMUM_BUFFERS_BYTES)

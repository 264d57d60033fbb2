"""How many buffers a rank of the engine ``stream`` has."""

from __future__ import annotations

USUAL_BUFFERS_BYTES = 32 << 20
"""Buffers of every rank; more are made only where more requests are to be in flight."""

# In addition to those in flight: buffers that wait for the comparison while a thread is not scheduled.
_SPARE_BUFFERS = 4


def buffer_count(request_bytes: int, depth: int) -> int:
    """Return the buffers for ``depth`` requests in flight of ``request_bytes`` each."""
    return max(USUAL_BUFFERS_BYTES // request_bytes, depth + _SPARE_BUFFERS)


def beyond_usual_bytes(request_bytes: int, depth: int) -> int:
    """Return the bytes of buffers that a rank has beyond the usual ones."""
    return max(0, buffer_count(request_bytes, depth) * request_bytes - USUAL_BUFFERS_BYTES)

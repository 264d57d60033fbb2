"""The buffers of a rank of the engine ``stream``, and the numbers of requests in flight that these buffers permit.

All functions are pure.
"""

from __future__ import annotations

USUAL_BUFFERS_BYTES = 32 << 20
"""The size of a rank's buffers in the engine ``stream``; larger buffers are allocated only for more requests
in flight.
"""

# Buffers in addition to those in flight: they wait for the comparison while a thread is not scheduled.
_SPARE_BUFFERS = 4

MAXIMUM_BUFFERS_BYTES = 128 << 20
"""The maximum bytes of a rank's buffers, unless the operator sets the number of requests in flight."""

USUAL_DEPTH = 2
"""The number of requests in flight on a rank without a ramp."""

DEPTHS = (1, 2, 4, 8, 16)
"""The numbers of requests in flight on a rank that a ramp tries."""


def buffer_count(request_bytes: int, depth: int) -> int:
    """Return the number of a rank's buffers for ``depth`` requests of ``request_bytes`` in flight."""
    return max(USUAL_BUFFERS_BYTES // request_bytes, depth + _SPARE_BUFFERS)


def beyond_usual_bytes(request_bytes: int, depth: int) -> int:
    """Return the bytes of a rank's buffers that exceed `USUAL_BUFFERS_BYTES`."""
    return max(0, buffer_count(request_bytes, depth) * request_bytes - USUAL_BUFFERS_BYTES)


def depths_within_memory(request_bytes: int) -> tuple[int, ...]:
    """Return the depths (requests in flight) whose buffers need at most `MAXIMUM_BUFFERS_BYTES`."""
    return tuple(d for d in DEPTHS if buffer_count(request_bytes, d) * request_bytes <= MAXIMUM_BUFFERS_BYTES)

"""The buffers of the engine stream: 32 MiB per rank, or more if the requests in flight need more."""

from __future__ import annotations

import pytest

from pytest_ckpt.sizing.stream_buffers import beyond_usual_bytes, buffer_count

MIB = 1 << 20


@pytest.mark.parametrize(
    ("request_mib", "depth", "count", "beyond_mib"),
    [(4, 2, 8, 0), (4, 4, 8, 0), (4, 16, 20, 48), (1, 2, 32, 0), (64, 2, 6, 352)],
)
def test_every_request_in_flight_has_a_buffer_and_some_wait_to_be_compared(request_mib, depth, count, beyond_mib):
    assert buffer_count(request_mib * MIB, depth) == count
    assert beyond_usual_bytes(request_mib * MIB, depth) == beyond_mib * MIB

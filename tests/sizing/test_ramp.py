"""The planned ramp of request depths: the depths to measure, with their bytes and memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ckpt.config.options import resolve
from pytest_ckpt.sizing.plan import plan_run
from pytest_ckpt.sizing.ramp import OF_RAMP, PASSES, RAMP_BYTES, planned_ramp
from pytest_ckpt.sizing.stream_buffers import (
    DEPTHS,
    MAXIMUM_BUFFERS_BYTES,
    USUAL_DEPTH,
    buffer_count,
    depths_within_memory,
)

MIB = 1 << 20


def planned(**options):
    given = {"target": "/mnt/array", "cluster": "16000", "model": "llama3-8b", "engine": "stream", **options}
    (checkpoint,) = plan_run(resolve({f"ckpt_{name}": text for name, text in given.items()}, {}), None).checkpoints
    return checkpoint


@given(st.integers(1, 256))
def test_the_buffers_of_every_depth_are_within_the_maximum(steps):
    request = steps * (64 << 10)
    depths = depths_within_memory(request)
    assert all(buffer_count(request, depth) * request <= MAXIMUM_BUFFERS_BYTES for depth in depths)
    assert depths == DEPTHS[: len(depths)]
    assert len(depths) == len(DEPTHS) or buffer_count(request, DEPTHS[len(depths)]) * request > MAXIMUM_BUFFERS_BYTES
    assert len(depths) >= 3, "a ramp has depths to compare for every size of a request"


@pytest.mark.parametrize(
    ("options", "depths"),
    [
        ({}, (1, 2, 4, 8, 16)),
        ({"engine": "stream:io-size=16MiB"}, (1, 2, 4)),
        ({"model": "llama3-405b", "ranks": "512"}, (1, 2, 4, 8, 16)),
        ({"cluster": "64"}, (1, 2, 4, 8, 16)),
        ({"profile": "nightly"}, (1, 2, 4)),
        ({"profile": "smoke"}, ()),
    ],
)
def test_depths_are_tried_that_the_files_of_a_run_can_show(options, depths):
    assert planned(**options).ramp.depths == depths


@pytest.mark.parametrize("options", [{}, {"profile": "nightly"}, {"cluster": "64"}, {"operations": "1"}])
def test_a_scratch_checkpoint_is_small_and_needs_no_more_space(options):
    checkpoint = planned(**options)
    ramp, saved = checkpoint.ramp, checkpoint.saved_bytes
    # Whole tensors are dropped, so a layout may be a little larger or smaller than its scale.
    assert ramp.bytes <= checkpoint.layout.bytes
    assert PASSES * len(DEPTHS) * ramp.bytes <= 0.51 * saved
    assert checkpoint.space_bytes == planned(**options, engine="stream:depth=1").space_bytes


def test_memory_is_that_of_the_largest_number_that_may_be_found():
    memory = planned().largest_rank_memory_bytes
    assert memory - planned(engine="stream:depth=16").largest_rank_memory_bytes == RAMP_BYTES
    assert memory - planned(engine="stream:depth=2").largest_rank_memory_bytes == 48 * MIB + RAMP_BYTES
    assert planned(profile="smoke").largest_rank_memory_bytes == 100_000_000


def test_without_a_ramp_the_plan_gives_the_reason():
    few = planned(profile="smoke").ramp
    assert (few.largest_depth, few.because) == (
        USUAL_DEPTH,
        "a scratch file of a ramp would have 1 request, too few to tell",
    )
    # A large object needs large parts, so requests may be larger than the option permits.
    model, limits = planned().layout, planned().demand
    large = planned_ramp(model, limits, request_bytes=26 * MIB, operations=10)
    assert (large.depths, large.because) == ((), "buffers for requests of 27.3 MB leave no numbers to compare")
    many = planned(operations=str(4093 - OF_RAMP + 1)).ramp
    assert many.because.startswith("the content of 3,774 operations leaves no number")


def test_a_number_that_is_set_or_an_engine_without_requests_has_no_ramp():
    assert planned(engine="stream:depth=16").ramp is None
    assert planned(engine="torch").ramp is None


def test_the_memory_after_a_ramp_is_planned_for_each_depth_that_it_may_find():
    checkpoint = planned()
    assert tuple(checkpoint.memory_after_ramp) == checkpoint.ramp.depths
    for depth, memory in checkpoint.memory_after_ramp.items():
        assert memory == planned(engine=f"stream:depth={depth}").largest_rank_memory_bytes
    assert planned(engine="stream:depth=2").memory_after_ramp == {}

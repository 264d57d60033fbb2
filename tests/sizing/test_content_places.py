"""Generated content identifies every page of a layout. A layout that has too many pages for this is refused."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.sizing.content_places import USUAL_TENSOR_BITS, check_places, tensor_bits
from pytest_ckpt.sizing.models import layout
from pytest_ckpt.support.errors import UsageError


def counted(tensors: int, largest_bytes: int, processes: int = 8):
    """Return the fields of a layout that the function `check_places` uses."""
    model = SimpleNamespace(name="my-model")
    return SimpleNamespace(most_tensors=tensors, largest_tensor_bytes=largest_bytes, processes=processes, model=model)


@pytest.mark.parametrize("name", list(MODELS))
def test_every_model_of_the_workload_has_the_usual_widths(name):
    whole = layout(MODELS[name], mode="full")
    check_places(whole)
    assert tensor_bits(whole.most_tensors) == USUAL_TENSOR_BITS


@pytest.mark.parametrize(("tensors", "bits"), [(1, 10), (1024, 10), (1025, 11), (60_000, 16)])
def test_a_rank_with_many_tensors_takes_bits_from_their_pages(tensors, bits):
    assert tensor_bits(tensors) == bits
    check_places(counted(tensors, 1 << 30))


@pytest.mark.parametrize("whole", [counted(60_000, 17 << 30), counted(100, 1 << 41), counted(1, 1, 16_385)])
def test_a_model_too_large_for_distinct_page_marks_is_refused(whole):
    with pytest.raises(UsageError, match="my-model: "):
        check_places(whole)

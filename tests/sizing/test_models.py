"""The files of every rank of a published workload. Their sizes are exact to the byte."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ckpt.sizing import models
from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.sizing.files import requests_against_full_size
from pytest_ckpt.sizing.models import Layout, Tensor, layout, reduced
from pytest_ckpt.support.errors import UsageError
from tests.support.selection import examples

GIB = 2**30

#            parameters         full bytes          GiB         published  files  largest file
FULL = {
    "llama3-8b": (8_030_261_248, 112_425_623_552, 104.705, 105, 16, 12_045_637_632),
    "llama3-70b": (69_882_617_856, 978_406_572_032, 911.212, 912, 128, 13_103_482_368),
    "llama3-405b": (405_853_388_800, 5_682_508_791_808, 5_292.249, 5_290, 1_544, 9_513_171_840),
    "llama3-1t": (1_183_035_102_480, 16_564_174_094_592, 15_426.589, 15_000, 2_072, 13_865_244_924),
}
#            subset bytes     GiB      published
SUBSET = {
    "llama3-8b": (112_425_623_552, 104.705, 105),
    "llama3-70b": (122_300_821_504, 113.902, 114),
    "llama3-405b": (105_811_532_800, 98.545, 94),
    "llama3-1t": (154_322_342_880, 143.724, 144),
}
PARALLEL = {  # tensor x pipeline, data parallel, processes, processes that hold one copy
    "llama3-8b": (1, 8, 8, 8),
    "llama3-70b": (8, 8, 64, 64),
    "llama3-405b": (256, 2, 512, 256),
    "llama3-1t": (512, 2, 1024, 512),
}

all_models = pytest.mark.parametrize("name", MODELS)
# The models whose sizes are published; a model that is added has no published size.
published_models = pytest.mark.parametrize("name", FULL)


def _optimizer_bytes(of: Layout) -> int:
    return sum(rank.files[-1].bytes for rank in of.ranks())


@published_models
def test_full_layouts_agree_with_the_reference(name: str):
    parameters, size, gib, _, files, largest = FULL[name]
    full = layout(name, mode="full")
    assert MODELS[name].parameters == parameters
    assert full.bytes == full.full_bytes == full.cluster_bytes == size
    assert full.files == files
    assert full.largest_file_bytes == largest
    assert round(full.bytes / GIB, 3) == gib


@published_models
def test_full_layouts_are_published_in_gib(name: str):
    published = FULL[name][3]
    # 15 TB is published, which is 15,427 GiB without its last three digits.
    tolerance = 0.03 if name == "llama3-1t" else 0.003
    assert layout(name, mode="full").bytes / GIB == pytest.approx(published, rel=tolerance)


@published_models
def test_subset_layouts_agree_with_the_reference(name: str):
    size, gib, published = SUBSET[name]
    subset = layout(name, mode="subset")
    assert subset.processes == 8
    assert subset.bytes == subset.full_bytes == size
    assert subset.cluster_bytes == FULL[name][1]
    assert round(subset.bytes / GIB, 3) == gib
    if name == "llama3-405b":
        # The published size is eight times the mean of the ranks that write a model. The first ranks also hold the
        # embedding.
        first_copy = layout(name, mode="full").ranks()[: MODELS[name].model_parallel]
        mean_of_eight = sum(rank.bytes for rank in first_copy) / len(first_copy) * 8 / GIB
        assert mean_of_eight == pytest.approx(published, rel=0.006)
        assert gib > mean_of_eight
    else:
        assert gib == pytest.approx(published, rel=0.004)


@published_models
def test_parallelism(name: str):
    model = MODELS[name]
    assert (model.model_parallel, model.data_parallel, model.processes, model.processes_per_copy) == PARALLEL[name]


def test_copies_of_the_model_are_as_published():
    assert [MODELS[name].processes // MODELS[name].processes_per_copy for name in FULL] == [1, 1, 2, 2]


@all_models
def test_about_fourteen_bytes_a_parameter(name: str):
    assert layout(name, mode="full").bytes / MODELS[name].parameters == pytest.approx(14, rel=0.001)


def test_the_first_rank_of_zero_3_writes_two_files():
    rank = layout("llama3-70b", mode="full").rank(9)
    assert [file.name for file in rank.files] == [
        "zero_pp_rank_1_mp_rank_1_model_states.pt",
        "zero_pp_rank_1_mp_rank_1_optim_states.pt",
    ]
    model_file, optimizer_file = rank.files
    assert len(model_file.tensors) == 80 * 6 + 3
    assert model_file.tensors[0] == Tensor(name="layer_0/0", dtype="float16", elements=8192 * 128256 // 64)
    assert model_file.tensors[1].name == "layer_1/0"
    assert model_file.tensors[-1] == Tensor(name="layer_82/0", dtype="float16", elements=8192 // 8)
    assert [(t.name, t.dtype, t.elements) for t in optimizer_file.tensors] == [
        (f"optimizer/{i}", "float32", 40_960 if i % 2 else 69_882_617_856 // 64) for i in range(6)
    ]


def test_the_first_rank_of_zero_1_writes_a_file_a_layer():
    full = layout("llama3-405b", mode="full")
    assert [file.name for file in full.rank(0).files] == [
        *(f"layer_{i}-model_0_model_states.pt" for i in range(5)),
        "zero_pp_rank_0_mp_rank_0_optim_states.pt",
    ]
    assert [file.name for file in full.rank(255).files] == [
        *(f"layer_{i}-model_255_model_states.pt" for i in (124, 125, 126, 127, 128)),
        "zero_pp_rank_0_mp_rank_255_optim_states.pt",
    ]
    assert [file.name for file in full.rank(256).files] == ["zero_pp_rank_1_mp_rank_0_optim_states.pt"]
    h, kv = 16384, 1024
    assert [t.elements for t in full.rank(0).files[1].tensors] == [
        h,
        h * (h + 2 * kv) // 8,
        h * h // 8,
        h,
        2 * 53248 * h // 8,
        53248 * h // 8,
    ]


@pytest.mark.parametrize("name", ["llama3-405b", "llama3-1t"])
def test_with_zero_1_only_the_first_copy_holds_the_model(name: str):
    full = layout(name, mode="full")
    for rank in full.ranks()[MODELS[name].model_parallel :]:
        assert len(rank.files) == 1
        assert rank.files[0].tensors == full.rank(0).files[-1].tensors


@all_models
def test_every_layer_lies_on_one_stage(name: str):
    model = MODELS[name]
    groups = [
        tuple(dict.fromkeys(t.name.split("/")[0] for file in rank.files[:-1] or rank.files for t in file.tensors))
        for rank in layout(name, mode="full").ranks()[: model.model_parallel]
    ]
    layers = [group for stage in groups[:: model.tensor_parallel] for group in stage if group != "optimizer"]
    assert layers == [f"layer_{i}" for i in range(model.layers + 3)]


def test_layers_that_do_not_divide_go_to_the_first_stages():
    full = layout("llama3-405b", mode="full")
    per_stage = [len(full.rank(8 * stage).files) - 1 for stage in range(32)]
    assert per_stage == [5, *[4] * 29, 3, 5]


@all_models
def test_names_are_unique(name: str):
    full = layout(name, mode="full")
    names = [file.name for rank in full.ranks() for file in rank.files]
    assert len(set(names)) == len(names) == full.files
    for file in full.rank(0).files:
        assert len({t.name for t in file.tensors}) == len(file.tensors)


@all_models
def test_a_subset_is_the_first_eight_ranks_of_the_full_layout(name: str):
    full, subset = layout(name, mode="full", scale=0.01), layout(name, mode="subset", scale=0.01)
    assert subset.ranks() == full.ranks()[:8]
    assert subset.rank(7) == full.rank(7)


@all_models
def test_totals_are_sums_over_ranks(name: str):
    of = layout(name, mode="full", scale=0.001)
    assert [rank.rank for rank in of.ranks()] == list(range(of.processes))
    assert of.bytes == sum(rank.bytes for rank in of.ranks())
    assert of.largest_rank_bytes == max(rank.bytes for rank in of.ranks())
    assert of.largest_file_bytes == max(rank.largest_file_bytes for rank in of.ranks())
    assert of.full_bytes == layout(name, mode="full").bytes


def test_subjects():
    assert str(layout("llama3-8b", mode="full").subject()) == "llama3-8b-full"
    assert str(layout("llama3-70b", mode="subset").subject()) == "llama3-70b-subset"
    assert str(layout("llama3-8b", mode="open", processes=16).subject()) == "llama3-8b-open-16"


def test_open_at_the_published_count_is_the_full_layout():
    for name, model in MODELS.items():
        opened = layout(name, mode="open", processes=model.processes)
        assert opened.ranks() == layout(name, mode="full").ranks()


def test_scale_is_the_decimal_that_was_written():
    whole = Tensor(name="t", dtype="float16", elements=100)
    # As a float, 0.29 is slightly smaller. If the cut used floats, 100 elements would become 28.
    assert reduced([whole], 0.29) == (replace(whole, elements=29),)


def test_the_smallest_scale_leaves_one_tensor_of_a_file_and_of_each_state():
    of, full = layout("llama3-8b", mode="full", scale=1e-12), layout("llama3-8b", mode="full")
    for rank in of.ranks():
        model_file, optimizer_file = rank.files
        assert [t.elements for t in model_file.tensors] == [len(full.rank(rank.rank).files[0].tensors)]
        assert [t.name for t in optimizer_file.tensors] == ["optimizer/0", "optimizer/2", "optimizer/4"]
        assert {t.elements for t in optimizer_file.tensors} == {2}
    assert of.files == full.files == 16


@all_models
def test_a_reduced_scale_makes_about_as_many_requests_a_byte(name: str):
    """At a reduced scale, the number of requests per byte is similar to the number at full size.

    The test requires this only if the average file is larger than a request.
    """
    request_bytes = 16 << 20
    for scale, times in ((0.5, 1.02), (0.1, 1.3), (0.01, 2.2)):
        of = layout(name, mode="subset" if name != "llama3-8b" else "full", scale=scale)
        if of.bytes > of.files * request_bytes:
            assert 0.99 < requests_against_full_size(of, request_bytes) < times


@pytest.mark.parametrize(
    ("name", "arguments", "what", "remedy"),
    [
        ("llama3-8", {"mode": "full"}, "did you mean 'llama3-8b'", "llama3-405b"),
        ("llama3-8b", {"mode": "auto"}, "no mode is called 'auto'", "full, subset, open"),
        ("llama3-70b", {"mode": "full", "processes": 8}, "8 processes do not fit llama3-70b", "exactly 64"),
        ("llama3-70b", {"mode": "subset", "processes": 16}, "16 processes do not fit", "subset 8"),
        ("llama3-70b", {"mode": "open", "processes": 12}, "12 processes do not fit", "multiple of 8 (8, 16, 24, ...)"),
        ("llama3-8b", {"mode": "open", "processes": 0}, "0 processes do not fit", "multiple of 1"),
        ("llama3-8b", {"mode": "open", "processes": -8}, "-8 processes do not fit", "multiple of 1"),
        ("llama3-8b", {"mode": "open"}, "needs a number of processes", "multiple of 1"),
        ("llama3-8b", {"mode": "full", "scale": 0.0}, "scale of 0.0", "above 0"),
        ("llama3-8b", {"mode": "full", "scale": 1.5}, "scale of 1.5", "at most 1"),
        ("llama3-8b", {"mode": "full", "scale": float("nan")}, "scale of nan", "at most 1"),
    ],
)
def test_a_run_that_does_not_fit_is_refused_with_sizes_that_fit(name: str, arguments: dict, what: str, remedy: str):
    with pytest.raises(UsageError) as error:
        layout(name, **arguments)
    assert what in error.value.what
    assert remedy in error.value.remedy


@pytest.mark.parametrize("rank", [-1, 8])
def test_a_rank_outside_the_layout_is_an_error(rank: int):
    with pytest.raises(IndexError, match=r"ranks 0\.\.7"):
        layout("llama3-1t", mode="subset").rank(rank)


def test_the_largest_layout_is_laid_out_in_no_time():
    for cache in (
        models._ranks,
        models._totals,
        models._layer_tensors,
        models._complete_stage_tensors,
        models._optimizer_tensors,
    ):
        cache.cache_clear()
    start = time.process_time()
    of = layout("llama3-1t", mode="full", scale=0.001)
    assert (len(of.ranks()), of.files) == (1024, 2072)
    assert of.full_bytes > of.bytes
    assert time.process_time() - start < 1


@given(name=st.sampled_from(list(MODELS)), copies=st.integers(min_value=1, max_value=6))
@settings(max_examples=30, deadline=None)
def test_open_keeps_the_bytes_of_model_and_optimizer(name: str, copies: int):
    model = MODELS[name]
    full = layout(name, mode="full")
    opened = layout(name, mode="open", processes=copies * model.model_parallel)
    # The optimizer: three tensors of the share of parameters, and three of 5 H that are not sharded.
    parameter_bytes = _optimizer_bytes(opened) - opened.processes * 3 * 5 * model.hidden * 4
    assert 0 <= 12 * model.parameters - parameter_bytes < 12 * opened.processes
    # The model: each cut loses less than one element per shard.
    difference = abs((opened.bytes - _optimizer_bytes(opened)) - (full.bytes - _optimizer_bytes(full)))
    assert difference <= 2 * (opened.processes + full.processes) * 6 * (model.layers + 3)
    if model.zero_stage == 1:
        assert difference == 0
    names = [file.name for rank in opened.ranks() for file in rank.files]
    assert len(set(names)) == len(names)


@given(
    name=st.sampled_from(list(MODELS)),
    scales=st.tuples(*[st.floats(min_value=1e-9, max_value=1.0)] * 2),
    rank=st.integers(min_value=0, max_value=7),
)
@settings(max_examples=50, deadline=None)
def test_a_larger_scale_is_never_smaller(name: str, scales: tuple[float, float], rank: int):
    small, large = (layout(name, mode="subset", scale=scale).rank(rank) for scale in sorted(scales))
    for ours, theirs in zip(small.files, large.files, strict=True):
        assert ours.name == theirs.name
        assert ours.bytes <= theirs.bytes
        assert len(ours.tensors) <= len(theirs.tensors) + 2


@given(
    sizes=st.lists(st.integers(1, 10**6), min_size=1, max_size=40) | st.lists(st.integers(1, 5), min_size=1),
    scale=st.floats(min_value=1e-9, max_value=1.0),
)
@settings(max_examples=examples(500), deadline=None)
def test_a_scale_keeps_the_sizes_of_tensors_and_leaves_tensors_out(sizes: list[int], scale: float):
    full = [Tensor(name=f"t/{n}", dtype="float16", elements=size) for n, size in enumerate(sizes)]
    kept = reduced(full, scale)
    of = {tensor.name: tensor.elements for tensor in full}
    assert sum(t.elements for t in kept) == sum(max(1, math.floor(size * Fraction(repr(scale)))) for size in sizes)
    assert all(1 <= tensor.elements <= of[tensor.name] for tensor in kept)
    assert [tensor.name for tensor in kept] == [t.name for t in full if t.name in {k.name for k in kept}]
    assert 1 <= len(kept) <= len(full)
    if scale == 1:
        assert kept == tuple(full)
    # Only the tensors that are needed for the bytes are kept. The less even the sizes are, the more tensors are kept.
    if len(set(sizes)) == 1 and sizes[0] * scale >= 1:
        assert len(kept) == math.ceil(len(full) * sum(t.elements for t in kept) / sum(sizes))
        assert sum(t.elements < sizes[0] for t in kept) <= 1


@given(name=st.sampled_from(list(MODELS)), scale=st.floats(min_value=1e-6, max_value=1.0))
@settings(max_examples=30, deadline=None)
def test_a_scale_is_that_share_of_the_bytes(name: str, scale: float):
    of, full = layout(name, mode="subset", scale=scale), layout(name, mode="subset")
    share = Fraction(repr(scale))
    for rank, whole in zip(of.ranks(), full.ranks(), strict=True):
        assert [file.name for file in rank.files] == [file.name for file in whole.files]
        for file, whole_file in zip(rank.files, whole.files, strict=True):
            item = {t.name: t.bytes // t.elements for t in whole_file.tensors}
            assert file.bytes == sum(max(1, math.floor(t.elements * share)) * item[t.name] for t in whole_file.tensors)
            assert file.tensors
    assert of.bytes == pytest.approx(full.bytes * scale, abs=4 * full.full_tensors)

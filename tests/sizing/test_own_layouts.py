"""Layouts of user-described models: each copy contains each parameter once, bytes add up, names are unique."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytest_ckpt.config.models import checked_model
from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.facts.models import PRECISION_BYTES, Model, OwnModel, Precision
from pytest_ckpt.sizing.models import Layout, layout
from pytest_ckpt.sizing.reading import storm
from pytest_ckpt.support.errors import UsageError
from tests.support.selection import examples

PRECISIONS = st.sampled_from(sorted(PRECISION_BYTES))


@st.composite
def own_models(draw: st.DrawFn) -> Model:
    """Let Hypothesis choose a model that a model file can describe.

    The model is dense or has experts, with any possible sharding.
    """
    experts = draw(st.sampled_from([0, 0, 4, 12]))
    expert_parallel = draw(st.sampled_from([1, 2, 4])) if experts else 1
    tensor, stages = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    layers, heads = draw(st.integers(stages, 7)), draw(st.sampled_from([4, 5, 8]))
    latent = draw(st.booleans())
    own = OwnModel(
        file="toy.toml",
        sha256="0" * 64,
        given_as="./toy.toml",
        head_size=draw(st.integers(3, 32)),
        experts=experts,
        active_experts=min(experts, 2),
        shared_experts=draw(st.integers(0, 2)) if experts else 0,
        expert_feed_forward=draw(st.integers(1, 90)) if experts else 0,
        dense_layers=draw(st.integers(0, layers)) if experts else 0,
        router_bias=draw(st.booleans()),
        query_rank=draw(st.sampled_from([0, 17])) if latent else 0,
        key_value_rank=9 if latent else 0,
        rope_size=4 if latent else 0,
        value_size=11 if latent else 0,
        mlp_matrices=draw(st.sampled_from([2, 3])),
        biases=tuple(draw(st.lists(st.sampled_from(["qkv", "output", "feed_forward"]), unique=True))),
        norms=draw(st.integers(0, 4)),
        norm_bias=draw(st.booleans()),
        query_key_norm=draw(st.integers(0, 9)),
        tied_embeddings=draw(st.booleans()),
        positions=draw(st.sampled_from([0, 64])),
        weights=draw(PRECISIONS),
        optimizer=tuple(draw(st.lists(PRECISIONS, min_size=1, max_size=4))),
        expert_parallel=expert_parallel,
    )
    return checked_model(
        Model(
            name="",
            layers=layers,
            hidden=draw(st.integers(64, 130)),
            feed_forward=draw(st.integers(1, 300)),
            vocabulary=draw(st.integers(1, 999)),
            heads=heads,
            key_value_heads=draw(st.integers(1, heads)),
            tensor_parallel=tensor,
            pipeline_parallel=stages,
            zero_stage=draw(st.sampled_from([1, 2, 3])),
            processes=tensor * stages * expert_parallel * draw(st.integers(1, 3)),
            own=own,
        )
    )


def elements(of: Layout, *, states: bool) -> Counter[str]:
    """Return {tensor: number of its elements}, summed over all ranks of a checkpoint.

    If ``states`` is true, the tensors are those of the optimizer. If it is false, they are those of the model.
    """
    found: Counter[str] = Counter()
    for rank in of.ranks():
        for file in rank.files:
            if file.name.endswith("_optim_states.pt") is states:
                for tensor in file.tensors:
                    found[tensor.name.removesuffix("/rest")] += tensor.elements
    return found


def wanted(model: Model) -> dict[str, int]:
    """Return {tensor: number of its elements} that follows from the definition of the model."""
    found = {}
    for number in range(model.layers + 3):
        for group, tensors in zip((f"layer_{number}", f"layer_{number}_experts"), model.tensors(number), strict=True):
            found |= {f"{group}/{index}": count for index, count in enumerate(tensors)}
    return found


@given(model=own_models())
@settings(max_examples=examples(300), deadline=None)
def test_every_parameter_is_in_exactly_one_model_file(model: Model) -> None:
    of = layout(model, mode="full")
    assert dict(elements(of, states=False)) == wanted(model)
    assert sum(wanted(model).values()) == model.parameters


@given(model=own_models())
@settings(max_examples=examples(300), deadline=None)
def test_each_optimizer_state_has_an_element_for_every_parameter(model: Model) -> None:
    assert model.own
    found = elements(layout(model, mode="full"), states=True)
    for state in range(len(model.own.optimizer)):
        assert sum(n for name, n in found.items() if name.endswith(f"/{state}")) == model.parameters


@given(model=own_models())
@settings(max_examples=examples(300), deadline=None)
def test_bytes_are_parameters_times_their_precisions(model: Model) -> None:
    assert model.own
    of = layout(model, mode="full")
    each = sum(PRECISION_BYTES[p] for p in (model.own.weights, *model.own.optimizer))
    assert of.bytes == each * model.parameters == sum(of.rank_bytes)
    assert min(of.rank_bytes) > 0
    assert of.cluster_bytes == of.full_bytes == of.bytes


@given(model=own_models())
@settings(max_examples=examples(300), deadline=None)
def test_files_have_names_of_their_own_and_hold_something(model: Model) -> None:
    of = layout(model, mode="full")
    names = [file.name for rank in of.ranks() for file in rank.files]
    assert len(set(names)) == len(names) == of.files
    for rank in of.ranks():
        assert rank.files[-1].name.endswith("_optim_states.pt")
        for file in rank.files:
            assert file.tensors
            assert len({t.name for t in file.tensors}) == len(file.tensors)


@given(model=own_models(), scale=st.just(1.0) | st.floats(1e-6, 1.0))
@settings(max_examples=examples(300), deadline=None)
def test_ranks_that_share_a_tensor_hold_parts_of_one_size(model: Model, scale: float) -> None:
    """If several ranks share a tensor, each of them has the same number of elements.

    torch.distributed.checkpoint requires this.
    """
    sizes: dict[str, set[tuple[str, int]]] = {}
    holders: dict[str, list[int]] = {}
    of = layout(model, mode="full", scale=scale)
    for rank in of.ranks():
        for tensor in (t for file in rank.files for t in file.tensors):
            sizes.setdefault(tensor.name, set()).add((tensor.dtype, tensor.elements))
            holders.setdefault(tensor.name, []).append(rank.rank)
    assert {name: found for name, found in sizes.items() if len(found) > 1} == {}
    # At a scale, either all ranks that hold a tensor at full size hold it, or none does.
    full: dict[str, list[int]] = {}
    for rank in layout(model, mode="full").ranks():
        for tensor in (t for file in rank.files for t in file.tensors):
            full.setdefault(tensor.name, []).append(rank.rank)
    assert holders == {name: ranks for name, ranks in full.items() if name in holders}


@given(model=own_models(), scale=st.floats(1e-6, 1.0))
@settings(max_examples=examples(300), deadline=None)
def test_a_scale_reduces_each_file_proportionally_and_keeps_all_optimizer_states(model: Model, scale: float) -> None:
    of, full = layout(model, mode="full", scale=scale), layout(model, mode="full")
    share = Fraction(repr(scale))
    for rank, whole in zip(of.ranks(), full.ranks(), strict=True):
        assert [file.name for file in rank.files] == [file.name for file in whole.files]
        for file, whole_file in zip(rank.files, whole.files, strict=True):
            tensors = {t.name: t for t in whole_file.tensors}
            cut = (max(1, math.floor(t.elements * share)) * (t.bytes // t.elements) for t in whole_file.tensors)
            assert file.bytes == sum(cut)
            assert file.tensors
            assert all(t.name in tensors and 1 <= t.elements <= tensors[t.name].elements for t in file.tensors)
        states = [
            {t.name.removesuffix("/rest").rpartition("/")[2] for t in of.files[-1].tensors} for of in (rank, whole)
        ]
        assert states[0] == states[1]


@given(model=own_models(), copies=st.integers(1, 4))
@settings(max_examples=examples(200), deadline=None)
def test_more_data_parallel_ranks_hold_the_same(model: Model, copies: int) -> None:
    full, opened = layout(model, mode="full"), layout(model, mode="open", processes=copies * model.model_parallel)
    assert opened.bytes == full.bytes
    assert elements(opened, states=False) == elements(full, states=False)


@given(model=own_models())
@settings(max_examples=examples(100), deadline=None)
def test_a_subset_is_the_first_eight_ranks(model: Model) -> None:
    if model.processes < 8:
        with pytest.raises(UsageError, match="has no subset"):
            layout(model, mode="subset")
    else:
        assert layout(model, mode="subset").ranks() == layout(model, mode="full").ranks()[:8]


@given(model=own_models())
@settings(max_examples=examples(100), deadline=None)
def test_a_storm_reads_all_weights_for_each_replica(model: Model) -> None:
    assume(model.zero_stage < 3 and model.data_parallel > 1)
    of = layout(model, mode="full")
    every = {f.name for r in of.ranks() for f in r.files if not f.name.endswith("_optim_states.pt")}
    for replica in range(model.data_parallel):
        ranks = range(replica * model.model_parallel, (replica + 1) * model.model_parallel)
        read = {f.name for r in ranks for piece in storm(of).of(r) for f in piece.shard.files}
        assert every <= read


@given(model=own_models(), other=own_models())
@settings(max_examples=examples(200), deadline=None)
def test_a_name_is_that_of_one_definition(model: Model, other: Model) -> None:
    assert (model.name == other.name) is (model == other)
    elsewhere = replace(model, own=replace(model.own, given_as="/other/toy.toml", sha256="1" * 64))
    assert elsewhere.digest == model.digest
    assert from_plain(Model, to_plain(model)) == model


def test_experts_lie_on_expert_parallel_ranks() -> None:
    own = OwnModel(file="moe.toml", sha256="", given_as="moe.toml", head_size=16, experts=4, active_experts=2,
                   expert_feed_forward=64, expert_parallel=2)  # fmt: skip
    model = checked_model(
        Model(name="", layers=2, hidden=64, feed_forward=0, vocabulary=10, heads=4, key_value_heads=4, own=own,
              tensor_parallel=1, pipeline_parallel=1, zero_stage=1, processes=4)
    )  # fmt: skip
    assert model.model_parallel == 2
    names = [[file.name for file in rank.files] for rank in layout(model, mode="full").ranks()]
    assert names == [
        [
            *(f"layer_{n}-model_0_model_states.pt" for n in range(5)),
            *(f"layer_{n}-expert_rank_0-model_0_model_states.pt" for n in (1, 2)),
            "zero_pp_rank_0_mp_rank_0_optim_states.pt",
        ],
        [
            *(f"layer_{n}-expert_rank_1-model_0_model_states.pt" for n in (1, 2)),
            "zero_pp_rank_1_mp_rank_0_optim_states.pt",
        ],
        ["zero_pp_rank_2_mp_rank_0_optim_states.pt"],
        ["zero_pp_rank_3_mp_rank_0_optim_states.pt"],
    ]
    # A token uses two of four experts.
    assert model.active_parameters == model.parameters - 2 * 2 * 3 * 64 * 64


def test_precisions_are_those_of_tensors() -> None:
    kinds: dict[Precision, str] = {
        "float32": "float32", "float16": "float16", "bfloat16": "float16", "float8": "uint8",
    }  # fmt: skip
    for precision, dtype in kinds.items():
        own = OwnModel(
            file="a.toml", sha256="", given_as="a.toml", head_size=16, weights=precision, optimizer=(precision,)
        )
        model = checked_model(
            Model(name="", layers=1, hidden=64, feed_forward=64, vocabulary=10, heads=4, key_value_heads=4, own=own,
                  tensor_parallel=1, pipeline_parallel=1, zero_stage=3, processes=2)
        )  # fmt: skip
        assert {t.dtype for r in layout(model, mode="full").ranks() for f in r.files for t in f.tensors} == {dtype}

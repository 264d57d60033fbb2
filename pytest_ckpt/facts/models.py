"""Models, and how training shards them. A model is built in (a model of the workload) or described in a user's file.

Parameters are counted tensor by tensor, from the values in the model's configuration.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pytest_ckpt.facts.codec import to_plain

Mode = Literal["full", "subset", "open"]
"""The part of a layout that runs: all ranks, the ranks of one node, or a number of ranks that the user gives."""

Precision = Literal["float32", "float16", "bfloat16", "float8"]
Bias = Literal["qkv", "output", "feed_forward"]
FeedForward = Literal["dense", "experts", "none"]
"""The kind of feed-forward block of a layer."""

PARAMETERS_SHARDED = 3
"""The lowest ZeRO stage that also shards parameters across the data-parallel ranks."""

PRECISION_BYTES: dict[Precision, int] = {"float32": 4, "float16": 2, "bfloat16": 2, "float8": 1}
"""Bytes of an element."""

_DIGITS = 12
# These fields give the origin of a definition and are not part of its digest.
_OF_FILE = ("file", "sha256", "given_as", "counted_by")
# Optional parts of a definition. An absent part does not change the digest.
_OPTIONAL = ("layer_kinds", "layer_order", "optimizer_of_ends")


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerKind:
    """One kind of layer: the element counts of its tensors, in order.

    ``experts`` has one count for each kind of expert tensor, summed over all experts of the layer. ``dense`` has the
    counts of all other tensors.
    """

    name: str
    dense: tuple[int, ...] = ()
    experts: tuple[int, ...] = ()


Tensors = tuple[tuple[int, ...], tuple[int, ...]]
"""The element counts of a layer's tensors: of dense tensors, and of tensors of experts."""


def numbered_kinds(layers: Iterable[tuple[Sequence[int], Sequence[int]]]) -> tuple[list[Tensors], tuple[int, ...]]:
    """Return (distinct kinds of layers in the order of first occurrence, kind number of each layer).

    Each item of ``layers`` has the element counts of one layer: (dense tensors, tensors of experts).
    """
    numbers: dict[Tensors, int] = {}
    order = tuple(numbers.setdefault((tuple(dense), tuple(experts)), len(numbers)) for dense, experts in layers)
    return list(numbers), order


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnModel:
    """The values of a user's own model, in addition to `Model`. Sizes are in elements.

    - ``file``, ``sha256``: the name of the model's file, and the digest of its bytes.
    - ``given_as``: the value of the user's option.
    - ``head_size``: the size of one attention head.
    - ``active_experts``: the number of experts that a token uses, in addition to all ``shared_experts``.
    - ``expert_feed_forward``: the feed-forward size of one expert.
    - ``dense_layers``: the number of layers without experts. These layers come first.
    - ``key_value_rank``: above 0 for multi-head latent attention. The next three fields apply only to such models.
    - ``query_rank``: 0 if queries are not compressed.
    - ``rope_size``, ``value_size``: sizes of one attention head.
    - ``mlp_matrices``: 3 for a gated feed-forward, else 2.
    - ``norms``: the number of norms of the hidden size in a layer; 0 if the model has no norms.
    - ``query_key_norm``: the elements of the norms of queries and keys in a layer.
    - ``positions``: the number of learned positions.
    - ``optimizer``: the precision of each state that the optimizer keeps for a parameter.
    - ``optimizer_of_ends``: the precisions of additional states for embedding, head and last norm.
    - ``layer_kinds``: if given, these kinds define all tensors, and the sizes of single layers do not apply.
    - ``layer_order``: for each layer number of `Model.tensors`, the index of the layer's kind in ``layer_kinds``.
    - ``counted_by``: the library that listed the tensors, with its version.
    """

    file: str
    sha256: str
    given_as: str
    head_size: int
    experts: int = 0
    active_experts: int = 0
    shared_experts: int = 0
    expert_feed_forward: int = 0
    dense_layers: int = 0
    router_bias: bool = False
    query_rank: int = 0
    key_value_rank: int = 0
    rope_size: int = 0
    value_size: int = 0
    mlp_matrices: int = 3
    biases: tuple[Bias, ...] = ()
    norms: int = 2
    norm_bias: bool = False
    query_key_norm: int = 0
    tied_embeddings: bool = False
    positions: int = 0
    weights: Precision = "bfloat16"
    optimizer: tuple[Precision, ...] = ("float32", "float32", "float32")
    expert_parallel: int = 1
    layer_kinds: tuple[LayerKind, ...] = ()
    layer_order: tuple[int, ...] = ()
    optimizer_of_ends: tuple[Precision, ...] = ()
    counted_by: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """One transformer, and how training shards it.

    - ``processes``: the number of ranks of the full layout.
    - ``zero_stage``: the ZeRO stage of DeepSpeed. Stage 1 shards only the optimizer across the data-parallel ranks;
      stage 3 shards parameters and optimizer.
    - ``own``: the values of a user's model; None for a model of the workload.
    """

    name: str
    layers: int
    hidden: int
    feed_forward: int
    vocabulary: int
    heads: int
    key_value_heads: int
    tensor_parallel: int
    pipeline_parallel: int
    zero_stage: int
    processes: int
    own: OwnModel | None = None

    @property
    def parameters(self) -> int:
        """The number of parameters.

        A model of the workload has 2VH + H + L(2H + H(H + 2 dim_kv) + HH + 3FH) parameters.
        """
        if self.own:
            return sum(sum(dense) + sum(of_experts) for dense, of_experts in map(self.tensors, range(self.layers + 3)))
        h = self.hidden
        layer = 2 * h + h * self.attention_width + h * h + 3 * self.feed_forward * h
        return 2 * self.vocabulary * h + h + self.layers * layer

    @property
    def active_parameters(self) -> int:
        """The number of parameters that one token uses. Without experts, these are all parameters."""
        own = self.own
        if not own or not own.experts:
            return self.parameters
        of_experts = sum(sum(self.tensors(number)[1]) for number in range(self.layers + 3))
        return self.parameters - of_experts // own.experts * (own.experts - own.active_experts)

    @property
    def attention_width(self) -> int:
        """The number of columns of the joint query, key and value matrix.

        The number is H + 2 dim_kv, with dim_kv = H // heads * KV heads.
        """
        return self.hidden + 2 * (self.hidden // self.heads * self.key_value_heads)

    @property
    def model_parallel(self) -> int:
        """The number of ranks that share one copy of the weights: tensor x pipeline (x expert) parallelism."""
        return self.tensor_parallel * self.pipeline_parallel * (self.own.expert_parallel if self.own else 1)

    @property
    def data_parallel(self) -> int:
        """The number of data-parallel ranks of the full layout."""
        return self.processes // self.model_parallel

    @property
    def processes_per_copy(self) -> int:
        """The number of processes that share one copy of the weights. With ZeRO-3, all processes share one copy."""
        return self.processes if self.zero_stage == PARAMETERS_SHARDED else self.model_parallel

    @property
    def label(self) -> str:
        """The model's name for a sentence. The name of a user's model includes file, parameters and digest."""
        if not self.own:
            return self.name
        return f"own model {self.own.file} ({self.parameters:,} parameters, digest {self.digest[:_DIGITS]})"

    @property
    def word(self) -> str:
        """The value by which a user selects the model in an option."""
        return self.own.given_as if self.own else self.name

    @property
    def digest(self) -> str:
        """The SHA-256 of the model's sizes, precisions and parallelism, in hexadecimal digits."""
        plain = {name: value for name, value in to_plain(self).items() if name != "name"}
        if plain["own"]:
            plain["own"] = {
                name: value
                for name, value in plain["own"].items()
                if name not in _OF_FILE and (value or name not in _OPTIONAL)
            }
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()

    def tensors(self, number: int) -> tuple[list[int], list[int]]:
        """Return the element counts of one layer of a user's model: (dense tensors, tensors of experts).

        Layer 0 is the embedding. Layers 1 to L are the transformer's layers, L + 1 is the output head, L + 2 the last
        norm.
        """
        own, h = self.own, self.hidden
        assert own
        if own.layer_kinds:
            kind = own.layer_kinds[own.layer_order[number]]
            return list(kind.dense), list(kind.experts)
        if number == 0:
            return [n * h for n in (self.vocabulary, own.positions) if n], []
        if number == self.layers + 1:
            return [] if own.tied_embeddings else [self.vocabulary * h], []
        if number == self.layers + 2:
            return [_norm(self, own)] if own.norms else [], []
        return layer_tensors(self, own.norms, "experts" if own.experts and number > own.dense_layers else "dense")


def layer_tensors(
    model: Model, norms: int, feed_forward: FeedForward, *, has_attention: bool = True
) -> tuple[list[int], list[int]]:
    """Return the element counts of a transformer layer of a user's model: (dense tensors, tensors of experts).

    - ``norms``: the number of norms in the layer.
    - ``feed_forward``: the layer has a dense feed-forward block, experts, or none of them.
    - ``has_attention``: the layer has an attention block.
    """
    own, h = model.own, model.hidden
    assert own
    dense = [_norm(model, own)] * norms
    if has_attention:
        dense += [n for n in (own.query_key_norm,) if n] + _attention(model, own)
    if feed_forward == "dense":
        dense += _mlp(model, own, model.feed_forward)
    if feed_forward != "experts":
        return dense, []
    dense.append(h * own.experts + (own.experts if own.router_bias else 0))
    if own.shared_experts:
        dense += _mlp(model, own, own.shared_experts * own.expert_feed_forward)
    return dense, [own.experts * elements for elements in _mlp(model, own, own.expert_feed_forward)]


def named(model: Model) -> Model:
    """Return a copy of a user's model whose name is the file's name and the first digits of the digest."""
    assert model.own
    return replace(model, name=f"{model.own.file}-{model.digest[:_DIGITS]}")


def _norm(model: Model, own: OwnModel) -> int:
    return model.hidden * (2 if own.norm_bias else 1)


def _attention(model: Model, own: OwnModel) -> list[int]:
    h, heads = model.hidden, model.heads
    if own.key_value_rank:
        # DeepSeek-V2, arXiv 2405.04434, section 2.1: compressed queries, keys and values, and a shared rotary key.
        query_width = heads * (own.head_size + own.rope_size)
        rank, kv = own.query_rank, own.key_value_rank
        queries = [h * rank, rank, rank * query_width] if rank else [h * query_width]
        down, up = h * (kv + own.rope_size), kv * heads * (own.head_size + own.value_size)
        return [*queries, down, kv, up, heads * own.value_size * h]
    width = (heads + 2 * model.key_value_heads) * own.head_size
    joint = h * width + (width if "qkv" in own.biases else 0)
    return [joint, heads * own.head_size * h + (h if "output" in own.biases else 0)]


def _mlp(model: Model, own: OwnModel, width: int) -> list[int]:
    """Return the element counts of a feed-forward block whose inner size is ``width``.

    The counts are for the up matrix (including the gate, if the block is gated) and for the down matrix.
    """
    h, into = model.hidden, own.mlp_matrices - 1
    has_bias = "feed_forward" in own.biases
    return [into * (h * width + (width if has_bias else 0)), width * h + (h if has_bias else 0)]

"""Models and how training shards them: models of the workload, and models that a user describes in a file.

Parameters are counted tensor by tensor, from the values in a model's configuration.
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

    ``experts`` are tensors of experts, each summed over all experts of the layer; ``dense`` are all other tensors.
    """

    name: str
    dense: tuple[int, ...] = ()
    experts: tuple[int, ...] = ()


Tensors = tuple[tuple[int, ...], tuple[int, ...]]
"""The element counts of a layer's tensors: of dense tensors, and of tensors of experts."""


def numbered_kinds(layers: Iterable[tuple[Sequence[int], Sequence[int]]]) -> tuple[list[Tensors], tuple[int, ...]]:
    """Return the distinct kinds of layers in the order of their first occurrence, and the kind number of each layer."""
    numbers: dict[Tensors, int] = {}
    order = tuple(numbers.setdefault((tuple(dense), tuple(experts)), len(numbers)) for dense, experts in layers)
    return list(numbers), order


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnModel:
    """Values that only a user's own model has, in addition to `Model`.

    ``file`` is the name of its file, ``sha256`` the digest of its bytes, ``given_as`` the value of the user's option.
    Sizes are in elements: ``head_size`` of one attention head, ``expert_feed_forward`` of one expert's feed-forward. A
    token uses ``active_experts`` and all ``shared_experts``. The first ``dense_layers`` have no experts. If
    ``key_value_rank`` is above 0, the model has multi-head latent attention, with ``query_rank`` (0: queries are not
    compressed), ``rope_size`` and ``value_size`` per head. ``mlp_matrices`` is 3 for a gated feed-forward, else 2. A
    layer has ``norms`` norms of the hidden size (0: the model has no norms), and norms of queries and keys with
    ``query_key_norm`` elements. ``positions`` is the number of learned positions. The optimizer keeps, for each
    parameter, one state per precision in ``optimizer``; for embedding, head and last norm also one per precision in
    ``optimizer_of_ends``.

    If there are ``layer_kinds``, they define all tensors, and sizes of single layers do not apply. Layer ``number`` has
    the kind ``layer_order[number]``, with the layer numbers of `Model.tensors`. ``counted_by`` is the library that
    listed the tensors, with its version.
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
    """One transformer and how training shards it.

    ``processes`` is the number of ranks of the full layout. ``zero_stage`` is DeepSpeed's: with 3, parameters and
    optimizer are both sharded across the data-parallel ranks; with 1, only the optimizer. ``own``: the values of
    a user's model; None for a model of the workload.
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
        """The number of parameters; the workload counts them as 2VH + H + L(2H + H(H + 2 dim_kv) + HH + 3FH)."""
        if self.own:
            return sum(sum(dense) + sum(of_experts) for dense, of_experts in map(self.tensors, range(self.layers + 3)))
        h = self.hidden
        layer = 2 * h + h * self.attention_width + h * h + 3 * self.feed_forward * h
        return 2 * self.vocabulary * h + h + self.layers * layer

    @property
    def active_parameters(self) -> int:
        """The number of parameters that one token uses; all of them if there are no experts."""
        own = self.own
        if not own or not own.experts:
            return self.parameters
        of_experts = sum(sum(self.tensors(number)[1]) for number in range(self.layers + 3))
        return self.parameters - of_experts // own.experts * (own.experts - own.active_experts)

    @property
    def attention_width(self) -> int:
        """The number of columns of the joint query, key and value matrix: H + 2 dim_kv, with dim_kv = H // heads * KV
        heads.
        """
        return self.hidden + 2 * (self.hidden // self.heads * self.key_value_heads)

    @property
    def model_parallel(self) -> int:
        """The number of ranks across which one copy of the weights is sharded: tensor x pipeline (x expert)
        parallelism.
        """
        return self.tensor_parallel * self.pipeline_parallel * (self.own.expert_parallel if self.own else 1)

    @property
    def data_parallel(self) -> int:
        """The number of data-parallel ranks of the full layout."""
        return self.processes // self.model_parallel

    @property
    def processes_per_copy(self) -> int:
        """The number of processes that share one copy of the weights; with ZeRO-3, all processes of the full layout."""
        return self.processes if self.zero_stage == PARAMETERS_SHARDED else self.model_parallel

    @property
    def label(self) -> str:
        """The model's name for a sentence; it distinguishes a user's model from a model of the workload."""
        if not self.own:
            return self.name
        return f"own model {self.own.file} ({self.parameters:,} parameters, digest {self.digest[:_DIGITS]})"

    @property
    def word(self) -> str:
        """The model's name in options."""
        return self.own.given_as if self.own else self.name

    @property
    def digest(self) -> str:
        """The SHA-256 of the model's definition, in hexadecimal digits: sizes, precisions and parallelism, not the
        file.
        """
        plain = {name: value for name, value in to_plain(self).items() if name != "name"}
        if plain["own"]:
            plain["own"] = {
                name: value
                for name, value in plain["own"].items()
                if name not in _OF_FILE and (value or name not in _OPTIONAL)
            }
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()

    def tensors(self, number: int) -> tuple[list[int], list[int]]:
        """Return the element counts of a layer of a user's model: of dense tensors, and of the tensors of experts.

        Layer 0 is the embedding, 1 to L are the transformer's layers, L + 1 is the output head, L + 2 the last norm.
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
    """Return the element counts of a transformer layer of a user's model: of dense tensors, and of the tensors of
    experts.

    ``norms`` is the number of norms in the layer.
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
    """Return a copy of a user's model, whose name consists of the file's name and the first digits of the digest."""
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
    """Return the element counts of a feed-forward block: up (gate and up, if gated) and down."""
    h, into = model.hidden, own.mlp_matrices - 1
    has_bias = "feed_forward" in own.biases
    return [into * (h * width + (width if has_bias else 0)), width * h + (h if has_bias else 0)]

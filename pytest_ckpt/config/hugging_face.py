"""Reads the ``config.json`` of a Hugging Face model: the meaning of its fields, by model family. Pure.

The field ``model_type`` names the family. Names and defaults of fields are those of the configuration classes in
transformers 4. Each family has a row in `FAMILIES`. The row describes the additional parameters of the family (biases,
norms, experts), from its modeling file.

An error is better than a wrong parameter count. An unknown family is therefore an error. A field that adds parameters
is also an error if the row of its family does not count these parameters.

To add a family, add a public model with its published count to tests/config/test_model_files.py and docs/own_models.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

ConfigFields = Mapping[str, Any]


class UncountedError(ValueError):
    """The configuration has a family or a field whose parameters this module cannot count.

    The library transformers may be able to count these parameters.
    """


Numbers = dict[str, Any]

# Fields that add parameters: experts, low-rank and linear attention, state-space layers, parts that are not text.
_ADDS_PARAMETERS = re.compile(
    r"experts|moe|lora_rank|mlp_only|sparse_step|dense_replace|shared_expert|linear_|mamba|ssm_|conv_|hybrid"
    r"|layer_types|layers_block_type|index_|nextn|(text|vision|audio|encoder|llm)_config|qk_norm"
)
# Routing of tokens to experts and additional training losses add no parameters.
_ADDS_NONE = re.compile(r"(^|_)(coef|loss|logits|jitter|capacity|dropout|scaling_factor|freeze|eps|act|tok|token)($|_)")
# Multi-token prediction is a separate module, which published counts leave out.
_BESIDE = frozenset(("num_nextn_predict_layers",))
_KINDS_OF_ATTENTION = frozenset(("full_attention", "sliding_attention", "chunked_attention"))

# The values of the field ``torch_dtype``, which newer configurations name ``dtype``.
_PRECISIONS = {"float32": "float32", "float16": "float16", "bfloat16": "bfloat16"}


class _Family(NamedTuple):
    """One family of models: rules that convert the fields of a configuration to the fields of our `Model`.

    ``always``: values that all models of the family share. ``more``: a function that computes values from other fields.
    ``tied``: whether embeddings are tied by default. ``names``: configuration fields whose names differ from `_NAMES`.
    """

    always: Mapping[str, Any] = {}
    more: Callable[[ConfigFields], Numbers] = lambda _: {}
    tied: bool = False
    names: dict[str, str] = {}  # noqa: RUF012 - nobody changes it


def from_config(given: ConfigFields) -> Numbers:
    """Return {field of a model: value} for the model that a configuration describes.

    Raises UncountedError for an unknown family or field. Raises ValueError for an invalid value.
    """
    kind = given.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        counting = [name for name, value in given.items() if adds_parameters(name, value)]
        no_place = f" Fields that add parameters: {', '.join(counting)}." if counting else ""
        raise UncountedError(
            f"model_type is {kind!r:.60}; valid values: {', '.join(FAMILIES)}.{no_place} "
            "Describe another one in a TOML file"
        )
    config, given, family = given, _Reading(given), FAMILIES[kind]
    names = _NAMES | family.names
    fields: Numbers = {ours: given[theirs] for ours, theirs in names.items() if given.get(theirs) is not None}
    fields |= dict(family.always)
    tied = given.get("tie_word_embeddings", family.tied)
    if not isinstance(tied, bool):
        raise ValueError("tie_word_embeddings is true or false")
    precision = given.get("dtype") or given.get("torch_dtype") or "bfloat16"
    if not isinstance(precision, str) or precision not in _PRECISIONS:
        raise ValueError(f"torch_dtype is {precision!r:.40}; valid values: {', '.join(_PRECISIONS)}")
    fields |= {"tied_embeddings": tied, "weights": precision}
    try:
        found = fields | family.more(given)
    except (KeyError, TypeError) as error:
        raise ValueError(f"the fields of a {kind} are expected: {error} is missing or no number") from None
    if uncounted := [name for name in config if name not in given.read and adds_parameters(name, config[name])]:
        raise UncountedError(
            f"{', '.join(uncounted)} {'adds' if len(uncounted) == 1 else 'add'} parameters that are not counted for "
            f"the family {kind}. Describe the model in a TOML file"
        )
    return found


class _Reading(ConfigFields):
    """A configuration that records the names of all fields that were read, in the set ``read``."""

    def __init__(self, config: ConfigFields) -> None:
        self._config, self.read = config, set(_BESIDE)

    def __getitem__(self, name: str) -> Any:
        value = self._config[name]
        self.read.add(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._config)

    def __len__(self) -> int:
        return len(self._config)


def adds_parameters(name: str, value: Any) -> bool:
    """Whether a configuration field seems to add parameters to a model; the decision uses words in its name."""
    if name in _BESIDE or not value or not _ADDS_PARAMETERS.search(name) or _ADDS_NONE.search(name):
        return False
    return not (name == "layer_types" and isinstance(value, list) and set(map(str, value)) <= _KINDS_OF_ATTENTION)


_NAMES = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "feed_forward": "intermediate_size",
    "vocabulary": "vocab_size",
    "heads": "num_attention_heads",
    "key_value_heads": "num_key_value_heads",
    "head_size": "head_dim",
}


def _llama(given: ConfigFields) -> Numbers:
    attention = ["qkv", "output"] if given.get("attention_bias") else []
    return {"biases": attention + (["feed_forward"] if given.get("mlp_bias") else [])}


def _head(given: ConfigFields) -> int:
    return int(given.get("head_dim") or given["hidden_size"] // given["num_attention_heads"])


def _mixtral(given: ConfigFields) -> Numbers:
    return {
        "experts": given["num_local_experts"],
        "active_experts": given["num_experts_per_tok"],
        "expert_feed_forward": given["intermediate_size"],
        "feed_forward": 0,
    }


def _qwen3_experts(given: ConfigFields) -> Numbers:
    if given.get("mlp_only_layers") or given.get("decoder_sparse_step", 1) != 1:
        raise UncountedError("a model in which only some layers have experts is not known: describe it in a TOML file")
    return {
        "query_key_norm": 2 * _head(given),
        "experts": given["num_experts"],
        "active_experts": given["num_experts_per_tok"],
        "expert_feed_forward": given["moe_intermediate_size"],
        "feed_forward": 0,
    }


def _deepseek(given: ConfigFields) -> Numbers:
    if given.get("moe_layer_freq", 1) != 1:
        raise UncountedError("a model in which only some layers have experts is not known: describe it in a TOML file")
    return {
        # Multi-token prediction (num_nextn_predict_layers) is a separate module and not part of its 671 B.
        "query_rank": given.get("q_lora_rank") or 0,
        "key_value_rank": given["kv_lora_rank"],
        "rope_size": given["qk_rope_head_dim"],
        "head_size": given["qk_nope_head_dim"],
        "value_size": given["v_head_dim"],
        **_routed(given),
        "router_bias": given.get("topk_method") == "noaux_tc",
    }


def _routed(given: ConfigFields) -> Numbers:
    """Return the model's expert fields, for a family whose first layers are dense."""
    return {
        "experts": given["n_routed_experts"],
        "active_experts": given["num_experts_per_tok"],
        "shared_experts": given.get("n_shared_experts") or 0,
        "expert_feed_forward": given["moe_intermediate_size"],
        "dense_layers": given["first_k_dense_replace"],
    }


def _glm4_experts(given: ConfigFields) -> Numbers:
    return {
        "biases": ["qkv"] if given.get("attention_bias") else [],
        "query_key_norm": 2 * _head(given) if given.get("use_qk_norm") else 0,
        **_routed(given),
        "router_bias": True,
    }


def _gpt_oss(given: ConfigFields) -> Numbers:
    return {
        # One attention sink for each head. It is counted here because no other field has a place for it.
        "query_key_norm": given["num_attention_heads"],
        "biases": _ALL_BIASES,
        "experts": given["num_local_experts"],
        "active_experts": given.get("num_experts_per_tok") or given["experts_per_token"],
        "expert_feed_forward": given["intermediate_size"],
        "feed_forward": 0,
        "router_bias": True,
    }


def _falcon(given: ConfigFields) -> Numbers:
    if not given.get("parallel_attn", True) or given.get("alibi"):
        raise UncountedError(
            "a Falcon without parallel attention or with alibi is not known: describe it in a TOML file"
        )
    new = given.get("new_decoder_architecture", False)
    key_value_heads = given.get("num_kv_heads", given["num_attention_heads"]) if new else 1
    biases = ["qkv", "output", "feed_forward"] if given.get("bias") else []
    return {
        "feed_forward": given.get("ffn_hidden_size") or 4 * given["hidden_size"],
        "key_value_heads": key_value_heads,
        "norms": 2 if new else 1,
        "biases": biases,
    }


_PLAIN = {"mlp_matrices": 2, "norm_bias": True}
_ALL_BIASES = ["qkv", "output", "feed_forward"]
FAMILIES: Mapping[str, _Family] = {
    "llama": _Family(more=_llama),
    "mistral": _Family(),
    "qwen2": _Family(always={"biases": ["qkv"]}),
    "qwen3": _Family(more=lambda given: _llama(given) | {"query_key_norm": 2 * _head(given)}),
    "qwen3_moe": _Family(more=_qwen3_experts),
    "mixtral": _Family(more=_mixtral),
    "deepseek_v2": _Family(more=_deepseek),
    "deepseek_v3": _Family(more=_deepseek),
    "glm4_moe": _Family(more=_glm4_experts),
    "gpt_oss": _Family(more=_gpt_oss),
    "gemma": _Family(tied=True),
    "gemma2": _Family(always={"norms": 4}, tied=True),
    "phi3": _Family(),
    "olmo": _Family(always={"norms": 0}),
    "olmo2": _Family(
        more=lambda given: {"query_key_norm": given["hidden_size"] + _head(given) * given["num_key_value_heads"]}
    ),
    "falcon": _Family(always=_PLAIN, more=_falcon, tied=True),
    "gpt_neox": _Family(always=_PLAIN | {"biases": _ALL_BIASES}),
    "gpt2": _Family(
        always=_PLAIN | {"biases": _ALL_BIASES},
        more=lambda given: {"feed_forward": given.get("n_inner") or 4 * given["n_embd"]},
        tied=True,
        names={
            "layers": "n_layer",
            "hidden": "n_embd",
            "heads": "n_head",
            "positions": "n_positions",
        },
    ),
}

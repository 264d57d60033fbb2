"""The ``config.json`` of models on Hugging Face: which of its fields mean what, by family (``model_type``). Pure.

Field names and defaults are those of the classes of configurations in transformers 4. What a family has beyond its
sizes (biases, norms, experts) stands in its modeling file there; a row here for each.

A new family needs a public model with its published count in tests/config/test_model_files.py and docs/own_models.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pytest_ckpt.support.errors import nearest

Said = Mapping[str, Any]

# Newer configurations name them as ``dtype``.
_PRECISIONS = {"float32": "float32", "float16": "float16", "bfloat16": "bfloat16"}


class _Family(NamedTuple):
    """``always`` holds what every model of the family has, ``more`` returns what follows from other fields.

    ``tied``: whether embeddings are tied where nothing is said.
    """

    always: Mapping[str, Any] = {}
    more: Callable[[Said], dict[str, Any]] = lambda _: {}
    tied: bool = False
    names: dict[str, str] = {}  # noqa: RUF012 - nobody changes it


def from_config(given: Said) -> dict[str, Any]:
    """Return the numbers that define the model of a configuration. Raises ValueError for a family that is not known."""
    kind = given.get("model_type")
    if not isinstance(kind, str) or kind not in _FAMILIES:
        raise ValueError(
            f"model_type is {kind!r:.60}{nearest(str(kind), _FAMILIES)}; known are {', '.join(_FAMILIES)}. Describe "
            "another one in a TOML file"
        )
    family = _FAMILIES[kind]
    names = _NAMES | family.names
    fields: dict[str, Any] = {ours: given[theirs] for ours, theirs in names.items() if given.get(theirs) is not None}
    fields |= dict(family.always)
    tied = given.get("tie_word_embeddings", family.tied)
    if not isinstance(tied, bool):
        raise ValueError("tie_word_embeddings is true or false")
    precision = given.get("dtype") or given.get("torch_dtype") or "bfloat16"
    if not isinstance(precision, str) or precision not in _PRECISIONS:
        raise ValueError(f"torch_dtype is {precision!r:.40}; known are {', '.join(_PRECISIONS)}")
    fields |= {"tied_embeddings": tied, "weights": precision}
    try:
        return fields | family.more(given)
    except (KeyError, TypeError) as error:
        raise ValueError(f"the fields of a {kind} are expected: {error} is missing or no number") from None


_NAMES = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "feed_forward": "intermediate_size",
    "vocabulary": "vocab_size",
    "heads": "num_attention_heads",
    "key_value_heads": "num_key_value_heads",
    "head_size": "head_dim",
}


def _llama(given: Said) -> dict[str, Any]:
    attention = ["qkv", "output"] if given.get("attention_bias") else []
    return {"biases": attention + (["feed_forward"] if given.get("mlp_bias") else [])}


def _head(given: Said) -> int:
    return int(given.get("head_dim") or given["hidden_size"] // given["num_attention_heads"])


def _mixtral(given: Said) -> dict[str, Any]:
    return {
        "experts": given["num_local_experts"],
        "active_experts": given["num_experts_per_tok"],
        "expert_feed_forward": given["intermediate_size"],
        "feed_forward": 0,
    }


def _qwen3_experts(given: Said) -> dict[str, Any]:
    if given.get("mlp_only_layers") or given.get("decoder_sparse_step", 1) != 1:
        raise ValueError("layers without experts among those with them are not known: describe it in a TOML file")
    return {
        "query_key_norm": 2 * _head(given),
        "experts": given["num_experts"],
        "active_experts": given["num_experts_per_tok"],
        "expert_feed_forward": given["moe_intermediate_size"],
        "feed_forward": 0,
    }


def _deepseek(given: Said) -> dict[str, Any]:
    if given.get("moe_layer_freq", 1) != 1:
        raise ValueError("layers without experts among those with them are not known: describe it in a TOML file")
    return {
        # Multi-token prediction (num_nextn_predict_layers) is trained beside the model and is no part of its 671 B.
        "query_rank": given.get("q_lora_rank") or 0,
        "key_value_rank": given["kv_lora_rank"],
        "rope_size": given["qk_rope_head_dim"],
        "head_size": given["qk_nope_head_dim"],
        "value_size": given["v_head_dim"],
        "experts": given["n_routed_experts"],
        "active_experts": given["num_experts_per_tok"],
        "shared_experts": given.get("n_shared_experts") or 0,
        "expert_feed_forward": given["moe_intermediate_size"],
        "dense_layers": given["first_k_dense_replace"],
        "router_bias": given.get("topk_method") == "noaux_tc",
    }


def _falcon(given: Said) -> dict[str, Any]:
    if not given.get("parallel_attn", True) or given.get("alibi"):
        raise ValueError("a Falcon without parallel attention or with alibi is not known: describe it in a TOML file")
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
_FAMILIES: Mapping[str, _Family] = {
    "llama": _Family(more=_llama),
    "mistral": _Family(),
    "qwen2": _Family(always={"biases": ["qkv"]}),
    "qwen3": _Family(more=lambda given: _llama(given) | {"query_key_norm": 2 * _head(given)}),
    "qwen3_moe": _Family(more=_qwen3_experts),
    "mixtral": _Family(more=_mixtral),
    "deepseek_v2": _Family(more=_deepseek),
    "deepseek_v3": _Family(more=_deepseek),
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

"""The ``config.json`` of models on Hugging Face: which of its fields mean what, by family (``model_type``). Pure.

Field names and defaults are those of the classes of configurations in transformers 4. What a family has beyond its
sizes (biases, norms, experts) stands in its modeling file there; a row here for each.
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


def from_config(said: Said) -> dict[str, Any]:
    """Return the numbers that define the model of a configuration. Raises ValueError for a family that is not known."""
    kind = said.get("model_type")
    if not isinstance(kind, str) or kind not in _FAMILIES:
        raise ValueError(
            f"model_type is {kind!r:.60}{nearest(str(kind), _FAMILIES)}; known are {', '.join(_FAMILIES)}. Describe "
            "another one in a TOML file"
        )
    family = _FAMILIES[kind]
    names = _NAMES | family.names
    fields: dict[str, Any] = {ours: said[theirs] for ours, theirs in names.items() if said.get(theirs) is not None}
    fields |= dict(family.always)
    tied = said.get("tie_word_embeddings", family.tied)
    if not isinstance(tied, bool):
        raise ValueError("tie_word_embeddings is true or false")
    precision = said.get("dtype") or said.get("torch_dtype") or "bfloat16"
    if precision not in _PRECISIONS:
        raise ValueError(f"torch_dtype is {precision!r:.40}; known are {', '.join(_PRECISIONS)}")
    fields |= {"tied_embeddings": tied, "weights": precision}
    try:
        return fields | family.more(said)
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


def _llama(said: Said) -> dict[str, Any]:
    attention = ["qkv", "output"] if said.get("attention_bias") else []
    return {"biases": attention + (["feed_forward"] if said.get("mlp_bias") else [])}


def _head(said: Said) -> int:
    return int(said.get("head_dim") or said["hidden_size"] // said["num_attention_heads"])


def _mixtral(said: Said) -> dict[str, Any]:
    return {
        "experts": said["num_local_experts"],
        "active_experts": said["num_experts_per_tok"],
        "expert_feed_forward": said["intermediate_size"],
        "feed_forward": 0,
    }


def _qwen3_experts(said: Said) -> dict[str, Any]:
    if said.get("mlp_only_layers") or said.get("decoder_sparse_step", 1) != 1:
        raise ValueError("layers without experts among those with them are not known: describe it in a TOML file")
    return {
        "query_key_norm": 2 * _head(said),
        "experts": said["num_experts"],
        "active_experts": said["num_experts_per_tok"],
        "expert_feed_forward": said["moe_intermediate_size"],
        "feed_forward": 0,
    }


def _deepseek(said: Said) -> dict[str, Any]:
    if said.get("moe_layer_freq", 1) != 1:
        raise ValueError("layers without experts among those with them are not known: describe it in a TOML file")
    return {
        # Multi-token prediction (num_nextn_predict_layers) is trained beside the model and is no part of its 671 B.
        "query_rank": said.get("q_lora_rank") or 0,
        "key_value_rank": said["kv_lora_rank"],
        "rope_size": said["qk_rope_head_dim"],
        "head_size": said["qk_nope_head_dim"],
        "value_size": said["v_head_dim"],
        "experts": said["n_routed_experts"],
        "active_experts": said["num_experts_per_tok"],
        "shared_experts": said.get("n_shared_experts") or 0,
        "expert_feed_forward": said["moe_intermediate_size"],
        "dense_layers": said["first_k_dense_replace"],
        "router_bias": said.get("topk_method") == "noaux_tc",
    }


def _falcon(said: Said) -> dict[str, Any]:
    if not said.get("parallel_attn", True) or said.get("alibi"):
        raise ValueError("a Falcon without parallel attention or with alibi is not known: describe it in a TOML file")
    new = said.get("new_decoder_architecture", False)
    key_value_heads = said.get("num_kv_heads", said["num_attention_heads"]) if new else 1
    biases = ["qkv", "output", "feed_forward"] if said.get("bias") else []
    return {
        "feed_forward": said.get("ffn_hidden_size") or 4 * said["hidden_size"],
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
    "qwen3": _Family(more=lambda said: _llama(said) | {"query_key_norm": 2 * _head(said)}),
    "qwen3_moe": _Family(more=_qwen3_experts),
    "mixtral": _Family(more=_mixtral),
    "deepseek_v2": _Family(more=_deepseek),
    "deepseek_v3": _Family(more=_deepseek),
    "gemma": _Family(tied=True),
    "gemma2": _Family(always={"norms": 4}, tied=True),
    "phi3": _Family(),
    "olmo": _Family(always={"norms": 0}),
    "olmo2": _Family(
        more=lambda said: {"query_key_norm": said["hidden_size"] + _head(said) * said["num_key_value_heads"]}
    ),
    "falcon": _Family(always=_PLAIN, more=_falcon, tied=True),
    "gpt_neox": _Family(always=_PLAIN | {"biases": _ALL_BIASES}),
    "gpt2": _Family(
        always=_PLAIN | {"biases": _ALL_BIASES},
        more=lambda said: {"feed_forward": said.get("n_inner") or 4 * said["n_embd"]},
        tied=True,
        names={
            "layers": "n_layer",
            "hidden": "n_embd",
            "heads": "n_head",
            "positions": "n_positions",
        },
    ),
}

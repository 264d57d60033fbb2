"""Public models: the size-related part of their config.json, and their published counts."""

from __future__ import annotations

from typing import Any, NamedTuple


class Public(NamedTuple):
    """A public model: the size-related part of its config.json, and its published numbers of parameters.

    - ``exact``: the sum over all tensors of the published weights
    - ``billions``: the number of all parameters, from the model card, in billions
    - ``active``: the number of parameters that process one token, from the model card, in billions
    """

    config: dict[str, Any]
    exact: int = 0
    billions: float = 0.0
    active: float = 0.0


def sizes(kind: str, layers: int, hidden: int, feed_forward: int, vocabulary: int, heads: int, **more: Any) -> dict:
    return {
        "model_type": kind, "num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": feed_forward,
        "vocab_size": vocabulary, "num_attention_heads": heads, **more,
    }  # fmt: skip


DEEPSEEK_V3 = sizes(
    "deepseek_v3", 61, 7168, 18432, 129280, 128, num_key_value_heads=128, q_lora_rank=1536, kv_lora_rank=512,
    qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, n_routed_experts=256, n_shared_experts=1,
    num_experts_per_tok=8, moe_intermediate_size=2048, first_k_dense_replace=3, topk_method="noaux_tc",
    num_nextn_predict_layers=1, torch_dtype="bfloat16", tie_word_embeddings=False,
)  # fmt: skip
MIXTRAL = sizes("mixtral", 32, 4096, 14336, 32000, 32, num_key_value_heads=8, num_local_experts=8,
                num_experts_per_tok=2)  # fmt: skip
PUBLIC = {
    "Llama-3.1-8B": Public(sizes("llama", 32, 4096, 14336, 128256, 32, num_key_value_heads=8), 8_030_261_248, 8.03),
    "Llama-3.1-405B": Public(
        sizes("llama", 126, 16384, 53248, 128256, 128, num_key_value_heads=8), 405_853_388_800, 405
    ),
    "Mistral-7B-v0.1": Public(sizes("mistral", 32, 4096, 14336, 32000, 32, num_key_value_heads=8), 7_241_732_096, 7.24),
    "Mixtral-8x7B": Public(MIXTRAL, 46_702_792_704, 46.7, active=12.9),
    "DeepSeek-V3": Public(DEEPSEEK_V3, billions=671, active=37),
    "DeepSeek-V2-Lite": Public(
        sizes("deepseek_v2", 27, 2048, 10944, 102400, 16, num_key_value_heads=16, kv_lora_rank=512, q_lora_rank=None,
              qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, n_routed_experts=64, n_shared_experts=2,
              num_experts_per_tok=6, moe_intermediate_size=1408, first_k_dense_replace=1),
        15_706_484_224, 15.7, active=2.4,
    ),
    "Qwen2.5-7B": Public(sizes("qwen2", 28, 3584, 18944, 152064, 28, num_key_value_heads=4), 7_615_616_512, 7.61),
    "Qwen3-30B-A3B": Public(
        sizes("qwen3_moe", 48, 2048, 6144, 151936, 32, num_key_value_heads=4, head_dim=128, num_experts=128,
              num_experts_per_tok=8, moe_intermediate_size=768, decoder_sparse_step=1, mlp_only_layers=[]),
        30_532_122_624, 30.5, active=3.3,
    ),
    "Qwen3-235B-A22B": Public(
        sizes("qwen3_moe", 94, 4096, 12288, 151936, 64, num_key_value_heads=4, head_dim=128, num_experts=128,
              num_experts_per_tok=8, moe_intermediate_size=1536, decoder_sparse_step=1, mlp_only_layers=[]),
        billions=235, active=22,
    ),
    "GLM-4.5": Public(
        sizes("glm4_moe", 92, 5120, 12288, 151552, 96, num_key_value_heads=8, head_dim=128, attention_bias=True,
              use_qk_norm=True, n_routed_experts=160, n_shared_experts=1, num_experts_per_tok=8, n_group=1,
              moe_intermediate_size=1536, first_k_dense_replace=3, num_nextn_predict_layers=1),
        billions=355, active=32,
    ),
    "gpt-oss-20b": Public(
        sizes("gpt_oss", 24, 2880, 2880, 201088, 64, num_key_value_heads=8, head_dim=64, attention_bias=True,
              num_local_experts=32, num_experts_per_tok=4, experts_per_token=4, router_aux_loss_coef=0.9,
              output_router_logits=False, tie_word_embeddings=False),
        billions=20.9, active=3.6,
    ),
    "gemma-7b": Public(
        sizes("gemma", 28, 3072, 24576, 256000, 16, num_key_value_heads=16, head_dim=256), 8_537_680_896, 8.54
    ),
    "gemma-2-9b": Public(
        sizes("gemma2", 42, 3584, 14336, 256000, 16, num_key_value_heads=8, head_dim=256), 9_241_705_984, 9.24
    ),
    "Phi-3-mini": Public(sizes("phi3", 32, 3072, 8192, 32064, 32, num_key_value_heads=32), 3_821_079_552, 3.82),
    "OLMo-7B": Public(sizes("olmo", 32, 4096, 11008, 50304, 32), 6_888_095_744, 6.89),
    "falcon-7b": Public(
        {"model_type": "falcon", "num_hidden_layers": 32, "hidden_size": 4544, "vocab_size": 65024,
         "num_attention_heads": 71, "multi_query": True, "parallel_attn": True, "bias": False, "alibi": False},
        6_921_720_704, 7,
    ),
    "gpt-neox-20b": Public(
        sizes("gpt_neox", 44, 6144, 24576, 50432, 64, tie_word_embeddings=False), 20_554_567_680, 20.6
    ),
    "gpt2": Public(
        {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024, "vocab_size": 50257},
        124_439_808, 0.124,
    ),
}  # fmt: skip

# Qwen3-Next-80B-A3B: three of four layers have linear attention.
HYBRID = """
layers = 48
hidden = 2048
vocabulary = 151936
heads = 16
key_value_heads = 2
head_size = 256
query_key_norm = 512
layer_kinds = ["linear", "linear", "linear", "full"]

[kinds.linear]
attention = false
tensors = [[12288, 2048], [64, 2048], [8192, 4], [32], [32], [128], [2048, 4096], [2048]]

[kinds.full]
tensors = [[4096, 2048], [2048]]   # output gate, gate of the shared expert

[experts]
count = 512
active = 10
shared = 1
feed_forward = 512

[parallel]
pipeline = 4
expert = 8
data = 8
"""


LLAMA_4_SCOUT = {
    "architectures": ["Llama4ForConditionalGeneration"],
    "model_type": "llama4",
    "text_config": sizes(
        "llama4_text", 48, 5120, 8192, 202048, 40, num_key_value_heads=8, head_dim=128, intermediate_size_mlp=16384,
        interleave_moe_layer_step=1, num_local_experts=16, num_experts_per_tok=1,
    ),
    "vision_config": {"model_type": "llama4_vision_model", "hidden_size": 1408, "num_hidden_layers": 34},
}  # fmt: skip
QWEN3_NEXT = sizes(
    "qwen3_next", 48, 2048, 5120, 151936, 16, num_key_value_heads=2, head_dim=256, full_attention_interval=4,
    linear_conv_kernel_dim=4, linear_key_head_dim=128, linear_num_key_heads=16, linear_num_value_heads=32,
    linear_value_head_dim=128, moe_intermediate_size=512, shared_expert_intermediate_size=512, num_experts=512,
    num_experts_per_tok=10, decoder_sparse_step=1, mlp_only_layers=[],
)  # fmt: skip

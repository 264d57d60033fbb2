"""Models counted by transformers: the same as our families, by the same sharding; what it refuses is a sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.config import library_models
from pytest_ckpt.config.hugging_face import from_config
from pytest_ckpt.config.library_models import Listed, experts_of, kinds_of, numbers_of
from pytest_ckpt.config.models import kept_models
from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.models import Model
from pytest_ckpt.sizing.models import layout
from pytest_ckpt.support.errors import UsageError
from tests.config.test_model_files import PUBLIC, sizes
from tests.support.doc_pages import DOCS

needs_library = pytest.mark.skipif(
    not library_models.is_installed(), reason="transformers (extra `models`) is not installed: nothing was compared"
)
EVERY_WAY = "tp=2,pp=4,ep=8,dp=16,zero=1"

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
# What only the library counts: published parameters in billions, and how far the count may be from them.
BY_LIBRARY = {
    "Llama-4-Scout": (LLAMA_4_SCOUT, 109, 0.01),
    "Qwen3-Next-80B-A3B": (QWEN3_NEXT, 80, 0.01),
}

_LISTS_EACH = """
import json, sys
from pytest_ckpt.config.library_tensors import tensors_of
print(json.dumps({name: tensors_of(given) for name, given in json.load(sys.stdin).items()}))
"""


@pytest.fixture(scope="module")
def listed() -> dict[str, Any]:
    """Return the library's answer to each public configuration, all from one process."""
    configs = {name: public.config for name, public in PUBLIC.items()}
    configs |= {name: config for name, (config, _, _) in BY_LIBRARY.items()}
    done = subprocess.run(
        [sys.executable, "-c", _LISTS_EACH], input=json.dumps(configs), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.fixture
def by_library(listed, monkeypatch, tmp_path):
    """Return the model of a configuration that has been listed, as an option gives it."""

    def count(name: str, config: dict[str, Any], parallel: str = "dp=8,zero=3") -> Model:
        file = tmp_path / "public.json"
        file.write_text(json.dumps(config | {"model_type": "not_one_of_ours"}))
        monkeypatch.setattr(library_models, "from_library", lambda _: numbers_of(listed[name], config))
        (model,) = resolve({"ckpt_model": str(file), "ckpt_parallel": parallel}, {}).models
        return model

    return count


@needs_library
@pytest.mark.parametrize("name", PUBLIC)
def test_the_library_counts_what_our_families_count(by_library, tmp_path, name: str) -> None:
    config = PUBLIC[name].config
    theirs = by_library(name, config)
    (tmp_path / "public.json").write_text(json.dumps(config))
    (ours,) = resolve({"ckpt_model": str(tmp_path / "public.json"), "ckpt_parallel": "dp=8,zero=3"}, {}).models
    assert ours.own
    assert theirs.own
    assert (ours.own.counted_by, theirs.own.counted_by.split()[0]) == ("", "transformers")
    assert (theirs.parameters, theirs.active_parameters) == (ours.parameters, ours.active_parameters)
    assert theirs.own.weights == ours.own.weights
    for number in range(ours.layers + 3):
        assert [sum(part) for part in theirs.tensors(number)] == [sum(part) for part in ours.tensors(number)], number
    assert layout(theirs, mode="full").rank_bytes == layout(ours, mode="full").rank_bytes


@needs_library
@pytest.mark.parametrize("name", BY_LIBRARY)
def test_models_that_only_the_library_knows_are_counted_as_published(by_library, name: str) -> None:
    config, billions, within = BY_LIBRARY[name]
    with pytest.raises(ValueError, match="known are llama"):
        from_config(config)
    model = by_library(name, config, EVERY_WAY)
    assert model.parameters / 1e9 == pytest.approx(billions, rel=within)
    row = f"| {name} | {model.parameters:,}, {model.active_parameters:,} a token | "
    assert row in (DOCS / "own_models.md").read_text()
    whole = layout(model, mode="full")
    assert whole.bytes == 14 * model.parameters
    assert any("-expert_rank_7-" in file.name for rank in whole.ranks() for file in rank.files)
    assert kept_models([{"model": model.name, "definition": to_plain(model)}])[model.name] == model
    # Half a checkpoint keeps the model's shape, and half of its bytes.
    assert layout(model, mode="full", scale=0.5).bytes == pytest.approx(whole.bytes / 2, rel=0.001)

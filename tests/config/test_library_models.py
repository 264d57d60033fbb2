"""The library transformers counts the same parameters and shards for a model as our own model families."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from random import Random
from typing import Any

import pytest

from pytest_ckpt.cli.main import main
from pytest_ckpt.config import library_models
from pytest_ckpt.config.hugging_face import from_config
from pytest_ckpt.config.library_models import Listed, experts_of, kinds_of, numbers_of
from pytest_ckpt.config.library_tensors import _forbid
from pytest_ckpt.config.models import recorded_models
from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.models import Model
from pytest_ckpt.sizing.models import layout
from pytest_ckpt.support.strict_json import parse
from tests.support.doc_pages import DOCS
from tests.support.fuzz.families import python_jargon
from tests.support.fuzz.mutations import change_json
from tests.support.machine import need
from tests.support.public_models import LLAMA_4_SCOUT, PUBLIC, QWEN3_NEXT, sizes

needs_library = pytest.mark.usefixtures("library")
EVERY_WAY = "tp=2,pp=4,ep=8,dp=16,zero=1"

# Models that only the library can count: published parameters in billions, and the allowed relative deviation.
BY_LIBRARY = {
    "Llama-4-Scout": (LLAMA_4_SCOUT, 109, 0.01),
    "Qwen3-Next-80B-A3B": (QWEN3_NEXT, 80, 0.01),
}

_ANSWERS_EACH = """
import json, sys
from pytest_ckpt.config.library_tensors import answer_of
print(json.dumps({name: answer_of(given) for name, given in json.load(sys.stdin).items()}))
"""


def answers_to(configs: dict[str, Any]) -> dict[str, Any]:
    """Return {name: answer of `answer_of`} for the configurations ``configs``, which are {name: configuration}.

    One process answers for all configurations, because importing the library takes seconds.
    """
    given = json.dumps(configs)
    done = subprocess.run(
        [sys.executable, "-c", _ANSWERS_EACH], input=given, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def library() -> None:
    need(library_models.is_installed(), "transformers (extra `models`) is not installed: nothing was compared")


@pytest.fixture(scope="module")
def listed(library) -> dict[str, Any]:
    configs = {name: public.config for name, public in PUBLIC.items()}
    configs |= {name: config for name, (config, _, _) in BY_LIBRARY.items()}
    return answers_to(configs | {name: config for name, (config, _) in REFUSED.items()})


@pytest.fixture
def by_library(listed, monkeypatch, tmp_path):
    """Return a function that builds the model of a public configuration from the library's recorded answer."""

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
    with pytest.raises(ValueError, match="valid values: llama"):
        from_config(config)
    model = by_library(name, config, EVERY_WAY)
    assert model.parameters / 1e9 == pytest.approx(billions, rel=within)
    row = f"| {name} | {model.parameters:,}, {model.active_parameters:,} a token | "
    assert row in (DOCS / "own_models.md").read_text()
    whole = layout(model, mode="full")
    assert whole.bytes == 14 * model.parameters
    assert any("-expert_rank_7-" in file.name for rank in whole.ranks() for file in rank.files)
    assert recorded_models([{"model": model.name, "definition": to_plain(model)}])[model.name] == model
    # Half a checkpoint has the same model and half of its bytes.
    assert layout(model, mode="full", scale=0.5).bytes == pytest.approx(whole.bytes / 2, rel=0.001)


# Refused configurations, and words that the sentence of the refusal contains.
SMALL = sizes("jamba", 4, 256, 512, 1000, 4, num_key_value_heads=2)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no sizes": ({"model_type": "qwen3_next"}, "hidden_size, vocab_size, num_hidden_layers is missing"),
    "no layers": ({**SMALL, "num_hidden_layers": 0}, "no numbered layers"),
    "a text": ({**SMALL, "hidden_size": "256"}, "transformers cannot build it"),
    "a float": ({**SMALL, "num_hidden_layers": 4.5}, "transformers cannot build it"),
    "layers of a tower": ({**SMALL, "vision_config": {"depth": 10**9}}, "depth is 1,000,000,000: at most 2,000"),
    "none": ({**SMALL, "vocab_size": None}, "transformers cannot build it"),
    "a list": ({**SMALL, "text_config": [1]}, "a field is missing or has a value of another type"),
    "layers": ({**SMALL, "num_hidden_layers": 10**7}, "at most 2,000 are expected"),
    "experts": ({**SMALL, "num_experts": 10**7}, "at most 10,000 are expected"),
    "negative": ({**SMALL, "hidden_size": -256}, "transformers cannot build it"),
    "precision": ({**SMALL, "torch_dtype": "int4"}, "torch_dtype"),
    "a class of another family": (
        {**SMALL, "architectures": ["LlamaForCausalLM"]},
        "and model_type jamba has other classes",
    ),
    "no class": ({**SMALL, "architectures": "JambaForCausalLM"}, "is a list of names"),
    "a field of another family": ({**SMALL, "kv_lora_rank": 64}, "kv_lora_rank adds parameters, and the class of"),
    "two lengths": (sizes("qwen3_next", 4, 256, 512, 1000, 4, layer_types=["full_attention"]), "cannot build it"),
}


@needs_library
@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_the_library_cannot_count_is_refused_in_one_line(listed, name: str) -> None:
    given, what = REFUSED[name]
    with pytest.raises(ValueError, match=re.escape(what)) as error:
        numbers_of(listed[name], given)
    assert "\n" not in str(error.value)


@needs_library
def test_a_plan_counts_by_the_library_without_network_and_without_the_file_s_code(tmp_path, capsys) -> None:
    """Code that a configuration names is not run, and no network connection is opened."""
    file = tmp_path / "config.json"
    marker = tmp_path / "ran"
    (tmp_path / "modeling_x.py").write_text(f"open({str(marker)!r}, 'w')")
    file.write_text(json.dumps({**SMALL, "auto_map": {"AutoConfig": "modeling_x.C", "AutoModel": "modeling_x.M"}}))
    words = ["plan", f"--ckpt-model={file}", "--ckpt-parallel=dp=2,zero=3", "--cluster=64", "--ckpt-ranks=2"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert re.search(r"config\.json-[0-9a-f]{12}-full/stream: 2 ranks, 4 files", out)
    assert not marker.exists()
    with pytest.raises(PermissionError, match=r"socket\.connect"):
        _forbid("socket.connect", ())


def test_a_family_that_nobody_knows_is_refused_and_its_code_is_not_run(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(library_models, "is_installed", lambda: True)
    monkeypatch.setattr(library_models, "from_library", lambda _: "transformers 5")
    file = tmp_path / "config.json"
    file.write_text('{"model_type": "kimi_k25", "text_config": {"n_routed_experts": 384}, "auto_map": {"A": "x.Y"}}')
    assert main(["plan", f"--ckpt-model={file}", "--ckpt-parallel=dp=2", "--cluster=64"]) == 4
    told = capsys.readouterr().err
    assert "Fields that add parameters: text_config." in told
    assert "transformers 5 does not know it either. Code that auto_map names is never run." in told


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"[" * 100_000, "deep"),
        (b'{"model_type": "llama", "a": "' + b"x" * 10_000_000 + b'"}', "10,000,032 bytes; at most 1,048,576"),
        (b'{"model_type": ["llama"]}', "model_type is ['llama']"),
        (b'{"model_type": "llama", "model_type": "mistral"}', "twice"),
        (b"", "Expecting value"),
        (None, "Is a directory"),
    ],
    ids=["nested", "10 MB", "a list", "twice", "empty", "a directory"],
)
def test_a_file_that_is_no_configuration_ends_with_4_and_a_sentence(tmp_path, capsys, content, what: str) -> None:
    file = tmp_path / "config.json"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    assert main(["plan", f"--ckpt-model={file}", "--ckpt-parallel=dp=2", "--cluster=64"]) == 4
    told = capsys.readouterr().err
    assert what in told
    assert "Traceback" not in told


def _t(name: str, *shape: int, dtype: str = "bfloat16") -> Listed:
    return Listed(name, shape, dtype)


def test_layers_are_the_largest_stack_and_ends_are_outside_of_it() -> None:
    tensors = [
        _t("vision.blocks.0.w", 4, 4), _t("vision.blocks.1.w", 4, 4), _t("embed", 10, 8),
        *(_t(f"model.layers.{n}.w", 8, 8) for n in range(3)),
        *(_t(f"model.layers.2.experts.{e}.up", 8, 2) for e in range(4)),
        _t("model.layers.2.shared_experts.up", 8, 2), _t("norm", 8), _t("lm_head", 10, 8),
    ]  # fmt: skip
    kinds, order = kinds_of(tensors, "lm_head")
    assert [(kinds[n].dense, kinds[n].experts) for n in order] == [
        ((16, 16, 80), ()), ((64,), ()), ((64,), ()), ((64, 16), (64,)), ((80,), ()), ((8,), ()),
    ]  # fmt: skip
    assert experts_of(tensors, 0) == 4
    assert experts_of(tensors[:6], 0) == 0
    assert experts_of([_t("layers.0.experts.up", 4, 8, 2)], 4) == 4


@pytest.mark.parametrize(
    "tensors",
    [
        [_t("layers.0.experts.0.up", 8), _t("layers.0.experts.2.up", 8)],
        [_t("layers.0.experts.up", 4, 8), _t("layers.1.experts.up", 6, 8)],
    ],
)
def test_layers_with_different_counts_of_experts_are_refused(tensors: list[Listed]) -> None:
    with pytest.raises(ValueError, match="different counts of experts"):
        experts_of(tensors, 4)


def test_a_model_in_several_precisions_is_refused() -> None:
    tensors = [["layers.0.w", [100, 100], "bfloat16"], ["layers.0.a", [200], "float32"]]
    answer = {"absent": [], "unread": [], "tensors": tensors, "weights": "bfloat16", "head": "", "experts": 0,
              "active_experts": 0, "sizes": {"hidden": 100}, "version": "5", "model_class": "M"}  # fmt: skip
    with pytest.raises(ValueError, match="200 of its elements have another precision than bfloat16"):
        numbers_of(answer, {"model_type": "x"})
    tensors[1] = ["layers.0.a", [20], "float32"]
    assert numbers_of(answer, {"model_type": "x"})["layers"] == 1


NESTED = {
    "model_type": "llama4", "architectures": ["Llama4ForConditionalGeneration"],
    "text_config": sizes("llama4_text", 2, 256, 512, 1000, 4, num_key_value_heads=2, head_dim=64, num_local_experts=4),
    "vision_config": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4},
}  # fmt: skip


@needs_library
@pytest.mark.thorough
def test_any_change_of_a_configuration_is_counted_or_refused_in_a_sentence() -> None:
    """The library counts a randomly changed configuration, or a message without Python terms refuses it.

    Only this test passes changed configurations to the library: the fuzzers in tests/support/fuzz start no process.
    """
    changed: dict[str, dict[str, Any]] = {}
    for number in range(120):
        rng = Random(number)
        data, what = change_json(rng, json.dumps(rng.choice([SMALL, NESTED])).encode(), lines=False)
        with contextlib.suppress(ValueError):
            given = parse(data)
            if isinstance(given, dict) and isinstance(given.get("model_type"), str):
                changed[f"{number}: {what}"] = given
    assert len(changed) > 40
    assert not {what: words for what, words in refusals_by_name(changed).items() if python_jargon(words)}


def refusals_by_name(configs: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return {name: refusal message} for ``configs``.

    The message is empty if the library counts the configuration or does not know its type.
    """
    said = {}
    for what, answer in answers_to(configs).items():
        said[what] = ""
        try:
            assert answer.get("unknown") or numbers_of(answer, configs[what])
        except ValueError as error:
            said[what] = str(error)
    assert len(set(said.values())) > 5
    return said

"""Model files of users (TOML or config.json): known models have their published sizes; mistakes give clear messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_ckpt.config import library_models
from pytest_ckpt.config.models import recorded_models
from pytest_ckpt.config.options import resolve
from pytest_ckpt.facts.codec import to_plain
from pytest_ckpt.facts.models import Model
from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.sizing.models import layout
from pytest_ckpt.support.errors import UsageError
from tests.support.doc_pages import DOCS
from tests.support.public_models import DEEPSEEK_V3, HYBRID, MIXTRAL, PUBLIC

SMALL = """
layers = 4
hidden = 256
feed_forward = 688
vocabulary = 1000
heads = 4
"""
PARALLEL = "[parallel]\ndata = 2\nzero = 3\n"
KINDS = f"""{SMALL}
layer_kinds = ["scan", "full"]
[kinds.scan]
attention = false
tensors = [[256, 64], [7]]
[kinds.full]
{PARALLEL}"""


@pytest.fixture(autouse=True)
def without_the_library(monkeypatch) -> None:
    """Use only our own model families, even if transformers is installed.

    The module test_library_models.py tests the library.
    """
    monkeypatch.setattr(library_models, "is_installed", lambda: False)


@pytest.fixture
def chosen(tmp_path, monkeypatch):
    """Return a function that writes a model file in an empty directory and returns the model it describes."""
    monkeypatch.chdir(tmp_path)

    def choose(name: str, text: str, parallel: str | None = None, **more: str) -> Model:
        Path(name).write_text(text)
        (model,) = resolve({"ckpt_model": f"./{name}", "ckpt_parallel": parallel, **more}, {}).models
        return model

    return choose


@pytest.mark.parametrize("name", PUBLIC)
def test_public_models_are_counted_as_published(chosen, name: str) -> None:
    public = PUBLIC[name]
    model = chosen("public.json", json.dumps(public.config), "dp=8,zero=3")
    if public.exact:
        assert model.parameters == public.exact
    # Falcon's 7 B is 6.92 B; every other published size is within 1 %.
    within = 0.012 if name == "falcon-7b" else 0.01
    assert model.parameters / 1e9 == pytest.approx(public.billions, rel=within)
    if public.active:
        # Some publications exclude the embedding and the head from the parameters that a token uses.
        outside = {"DeepSeek-V2-Lite": 0.11, "GLM-4.5": 0.06, "gpt-oss-20b": 0.17}
        assert model.active_parameters / 1e9 == pytest.approx(public.active, rel=outside.get(name, 0.02))


def test_the_page_has_the_counts(chosen) -> None:
    page = (DOCS / "own_models.md").read_text()
    for name, public in PUBLIC.items():
        model = chosen("public.json", json.dumps(public.config), "dp=8,zero=3")
        active = f", {model.active_parameters:,} a token" if public.active else ""
        assert f"| {name} | {model.parameters:,}{active} | " in page


def test_deepseek_is_counted_without_multi_token_prediction(chosen) -> None:
    model = chosen("v3.json", json.dumps(DEEPSEEK_V3), "tp=1,pp=16,ep=64,dp=128,zero=1")
    assert model.parameters == 671_026_419_200
    assert (model.processes, model.model_parallel) == (2048, 1024)


def test_the_same_model_has_the_workload_s_count(chosen) -> None:
    theirs = PUBLIC["Llama-3.1-405B"].config
    assert (
        chosen("other.json", json.dumps(theirs), "tp=8,pp=32,dp=2,zero=1").parameters
        == MODELS["llama3-405b"].parameters
    )


def test_a_toml_file_defines_the_same_model_as_a_configuration(chosen) -> None:
    text = """
layers = 32
hidden = 4096
vocabulary = 32000
heads = 32
key_value_heads = 8

[experts]
count = 8
active = 2
feed_forward = 14336

[precision]
weights = "bfloat16"
optimizer = ["float32", "bfloat16", "bfloat16"]

[parallel]
tensor = 2
pipeline = 4
expert = 8
data = 8
zero = 1
"""
    model = chosen("mine.toml", text)
    ours = chosen("mixtral.json", json.dumps(MIXTRAL), "tp=2,pp=4,ep=8,dp=8,zero=1")
    assert (model.parameters, model.active_parameters) == (ours.parameters, ours.active_parameters)
    assert model.processes == ours.processes == 64
    assert model.own
    assert model.own.optimizer == ("float32", "bfloat16", "bfloat16")
    assert model.name == f"mine.toml-{model.digest[:12]}"
    assert model.label == f"own model mine.toml (46,702,792,704 parameters, digest {model.digest[:12]})"


def test_a_hybrid_has_kinds_of_layers_that_repeat(chosen) -> None:
    model = chosen("hybrid.toml", HYBRID)
    assert model.own
    assert (model.parameters, model.active_parameters) == (79_674_391_296, 3_874_929_408)
    assert [kind.name for kind in model.own.layer_kinds] == ["embedding", "linear", "full", "last norm"]
    assert model.own.layer_order[:6] == (0, 1, 1, 1, 2, 1)
    assert HYBRID.strip() in (DOCS / "own_models.md").read_text()


def test_kinds_without_anything_special_are_the_model_without_kinds(chosen) -> None:
    plain = chosen("plain.toml", SMALL + PARALLEL)
    same = chosen("same.toml", SMALL + 'layer_kinds = ["all"]\n[kinds.all]\n' + PARALLEL)
    assert [same.tensors(number) for number in range(7)] == [plain.tensors(number) for number in range(7)]
    assert layout(same, mode="full").rank_bytes == layout(plain, mode="full").rank_bytes
    kinds = chosen("kinds.toml", KINDS)
    attention = 4 * 256 * 256
    assert kinds.parameters == plain.parameters + 2 * (256 * 64 + 7 - attention)


@pytest.mark.parametrize(
    ("optimizer", "bytes_a_parameter"),
    [("adamw", 14), ("adamw-bf16", 10), ("adafactor", 6), ("bytes:13", 13), ("bytes:3", 3), ("bytes:34", 34)],
)
def test_an_optimizer_has_its_bytes_a_parameter(chosen, optimizer: str, bytes_a_parameter: int) -> None:
    for name, text in (("a.json", json.dumps(PUBLIC["gpt2"].config)), ("a.toml", KINDS)):
        model = chosen(name, text, "tp=2,pp=2,dp=2,zero=1", ckpt_optimizer=optimizer)
        assert layout(model, mode="full").bytes == bytes_a_parameter * model.parameters


def test_muon_keeps_a_second_moment_of_embedding_and_head_only(chosen) -> None:
    for parallel in ("tp=2,pp=2,dp=2,zero=1", "dp=8,zero=3"):
        model = chosen("a.json", json.dumps(PUBLIC["Llama-3.1-8B"].config), parallel, ckpt_optimizer="muon")
        ends = 2 * 128256 * 4096 + 4096
        assert layout(model, mode="full").bytes == 10 * model.parameters + 4 * ends
        assert recorded_models([{"model": model.name, "definition": to_plain(model)}])[model.name] == model


def test_the_default_is_adamw(chosen) -> None:
    text = json.dumps(PUBLIC["gpt2"].config)
    assert chosen("a.json", text, "dp=2").digest == chosen("a.json", text, "dp=2", ckpt_optimizer="adamw").digest


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("adam", "did you mean 'adamw'"),
        ("bytes:", "a whole number from 2 to 34"),
        ("bytes:1", "a whole number from 2 to 34"),
        ("bytes:9.5", "a whole number from 2 to 34"),
        ("bytes:2", "leaves no byte for the optimizer"),
    ],
)
def test_an_optimizer_that_is_none(chosen, text: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        chosen("a.toml", SMALL + PARALLEL, ckpt_optimizer=text)


def test_values_on_the_command_line_override_the_model_file(chosen) -> None:
    model = chosen("small.toml", SMALL + PARALLEL, "tp=2,dp=4,zero=1")
    assert (model.tensor_parallel, model.processes, model.zero_stage) == (2, 8, 1)
    assert model.name != chosen("small.toml", SMALL + PARALLEL).name


def test_files_are_shown_next_to_models_of_the_workload(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(SMALL + PARALLEL)
    of = resolve({"ckpt_model": "./small.toml,llama3-70b,llama3-8b"}, {})
    assert [m.name for m in of.models][:2] == ["llama3-8b", "llama3-70b"]
    assert of.models[2].name.startswith("small.toml-")
    assert [m.name for m in resolve({"ckpt_model": "all,./small.toml"}, {}).models][: len(MODELS)] == list(MODELS)


def test_a_model_recorded_in_a_run_needs_no_file(chosen) -> None:
    model = chosen("small.toml", SMALL + PARALLEL)
    kept = recorded_models([{"model": "llama3-8b"}, {"model": model.name, "definition": to_plain(model)}])
    Path("small.toml").unlink()
    for word in ("./small.toml", model.name):
        assert resolve({"ckpt_model": "./small.toml"}, {}, kept=kept).models == (model,), word


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"layers": 5}, "does not match the digest"),
        ({"name": "llama3-405b"}, "does not match the digest"),
        ({"own": None}, "does not match the digest"),
        ({"layers": 10**9}, "whole number up to"),
        ({"layers": "4"}, r"is invalid: \$.layers: Expected `int`, got `str`"),
        ({"tensor_parallel": 0}, "from 1 to"),
    ],
)
def test_a_kept_definition_is_that_of_its_digest(chosen, change: dict, what: str) -> None:
    model = chosen("small.toml", SMALL + PARALLEL)
    with pytest.raises(ValueError, match=what):
        recorded_models([{"model": model.name, "definition": to_plain(model) | change}])


WRONG = [
    ("llama3-405b.toml", SMALL + PARALLEL, "could be taken for llama3-405b"),
    ("Llama3_8B_mine.toml", SMALL + PARALLEL, "could be taken for llama3-8b"),
    ("my model.toml", SMALL + PARALLEL, "letters, digits"),
    ("a.toml", SMALL, "--ckpt-parallel=tp=8"),
    ("a.toml", "layers = 4\n" + PARALLEL, "hidden is missing"),
    ("a.toml", SMALL + "layer = 3\n" + PARALLEL, "did you mean 'layers'"),
    ("a.toml", SMALL + "positions = -1\n" + PARALLEL, "positions is -1"),
    ("a.toml", SMALL + "tied_embeddings = 1\n" + PARALLEL, "true or false"),
    ("a.toml", SMALL + 'biases = ["q"]\n' + PARALLEL, "is not one of qkv"),
    ("a.toml", SMALL + "key_value_heads = 5\n" + PARALLEL, "at most heads"),
    ("a.toml", SMALL.replace("= 256", "= 255") + PARALLEL, "add head_size"),
    ("a.toml", SMALL.replace("= 256", "= 32") + PARALLEL, "at least 64"),
    ("a.toml", SMALL + "[parallel]\npipeline = 5\n", "fewer than the pipeline's stages"),
    ("a.toml", SMALL + "[parallel]\nexpert = 2\ndata = 2\n", "needs experts"),
    ("a.toml", SMALL + "[parallel]\nexpert = 2\ndata = 3\n", "does not divide"),
    ("a.toml", SMALL + "[parallel]\nzero = 4\n", "ZeRO stage"),
    ("a.toml", SMALL + "[parallel]\ntensor = true\n", "whole number"),
    ("a.toml", SMALL + "[experts]\ncount = 4\n" + PARALLEL, "their own feed_forward"),
    ("a.toml", SMALL + "[experts]\ncount = 4\nfeed_forward = 9\n" + PARALLEL, "active experts"),
    ("a.toml", SMALL + '[precision]\nweights = "int4"\n' + PARALLEL, "is not one of float32"),
    ("a.toml", SMALL + "[precision]\noptimizer = []\n" + PARALLEL, "1 to 8 states"),
    ("a.toml", "layers = [", "Invalid value"),
    ("a.toml", KINDS.replace("hidden = 256", "hidden = 256\nlayer_kind = 1"), "did you mean 'layer_kinds'"),
    ("a.toml", KINDS.replace('["scan", "full"]', '"scan"'), "is a list of names"),
    ("a.toml", KINDS.replace('["scan", "full"]', '["scan", "half"]'), "there is no table [kinds.half]"),
    ("a.toml", KINDS.replace('["scan", "full"]', '["scan"]'), "[kinds.full] is not a name of layer_kinds"),
    ("a.toml", KINDS.replace('["scan", "full"]', '["scan", "full", "scan", "full", "scan"]'), "names 5 layers"),
    ("a.toml", KINDS.replace("layers = 4", "layers = 9999999"), "at most 2,000"),
    ("a.toml", KINDS.replace("[kinds.full]", "[kinds.full]\nattentions = 1"), "did you mean 'attention'"),
    ("a.toml", KINDS.replace("attention = false", "attention = 0"), "attention of [kinds.scan] is 0"),
    ("a.toml", KINDS.replace("[[256, 64], [7]]", "[256, 64]"), "a list of shapes"),
    ("a.toml", KINDS.replace("[[256, 64], [7]]", "[[256, -1]]"), "a size in tensors of [kinds.scan] is -1"),
    ("a.toml", KINDS.replace("[[256, 64], [7]]", "[[256, 0]]"), "a size in tensors of [kinds.scan] is 0"),
    ("a.toml", KINDS.replace("attention = false", 'feed_forward = "experts"'), "the table [experts] is missing"),
    ("a.toml", KINDS.replace("attention = false", 'feed_forward = "half"'), "one of dense, experts, none"),
    ("a.toml", KINDS + "[experts]\ncount = 4\nactive = 1\nfeed_forward = 8\ndense_layers = 1\n",
     "dense_layers is not for a model with layer_kinds"),
    ("a.toml", SMALL + 'layer_kinds = ["scan"]\n' + PARALLEL, "a table [kinds.NAME] for each"),
    ("a.json", "[1]", "not a table"),
    ("a.json", "{}", "model_type is None"),
    ("a.json", '{"model_type": "lama"}', "'lama'; valid values: llama, mistral"),
    ("a.json", '{"model_type": "deepseek_v3"}', "kv_lora_rank"),
    ("a.json", '{"model_type": "llama", "torch_dtype": "int4"}', "torch_dtype"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "what"), WRONG)
def test_an_error_in_a_file_is_reported_in_a_sentence(chosen, name: str, text: str, what: str) -> None:
    with pytest.raises(UsageError) as error:
        chosen(name, text)
    assert what in error.value.what
    assert error.value.what.startswith(f"--ckpt-model ./{name}: ")


@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("gpt-neox-20b", {"n_routed_experts": 160}),
        ("OLMo-7B", {"num_local_experts": 32}),
        ("Llama-3.1-8B", {"kv_lora_rank": 512}),
        ("Qwen2.5-7B", {"layer_types": ["full_attention", "linear_attention"]}),
        ("Qwen3-30B-A3B", {"shared_expert_intermediate_size": 512}),
        ("DeepSeek-V3", {"index_head_dim": 128}),
        ("Mistral-7B-v0.1", {"vision_config": {"hidden_size": 1024}}),
        ("gemma-7b", {"hybrid_override_pattern": "M-M*"}),
    ],
)
def test_a_field_that_adds_parameters_is_counted_or_refused(chosen, family: str, more: dict[str, Any]) -> None:
    config = PUBLIC[family].config
    with pytest.raises(UsageError) as error:
        chosen("public.json", json.dumps(config | more), "dp=8,zero=3")
    (name,) = more
    assert f"{name} adds parameters that are not counted for the family {config['model_type']}" in error.value.what
    empty = {name: type(value)() for name, value in more.items()}
    without = chosen("public.json", json.dumps(config), "dp=8,zero=3")
    assert chosen("public.json", json.dumps(config | empty), "dp=8,zero=3").digest == without.digest


def test_fields_that_add_no_parameters_are_passed_over(chosen) -> None:
    more = {"router_aux_loss_coef": 0.02, "layer_types": ["full_attention", "sliding_attention"],
            "norm_topk_prob": True, "max_window_layers": 28, "moe_dropout": 0.1, "hidden_act": "silu"}  # fmt: skip
    for name in ("Qwen2.5-7B", "Mixtral-8x7B"):
        config = PUBLIC[name].config
        plain = chosen("public.json", json.dumps(config), "dp=8,zero=3")
        assert chosen("public.json", json.dumps(config | more), "dp=8,zero=3").digest == plain.digest


@pytest.mark.parametrize("kind", ["gpt_oss2", "glm_moe_dsa", "kimi_k25", "llama4", "qwen3_next", "nemotron_h"])
def test_no_family_is_suggested_in_place_of_one_that_is_not_known(chosen, kind: str) -> None:
    with pytest.raises(UsageError) as error:
        chosen("public.json", json.dumps({"model_type": kind}), "dp=8,zero=3")
    assert "did you mean" not in str(error.value)
    assert "the extra counts it: pip install 'pytest-ckpt[models]'" in error.value.what


def test_an_unknown_family_is_refused_with_the_fields_that_have_no_place(chosen) -> None:
    with pytest.raises(UsageError, match=r"Fields that add parameters: n_routed_experts, text_config\. Describe"):
        chosen(
            "a.json", '{"model_type": "new", "n_routed_experts": 8, "vocab_size": 9, "text_config": {"a": 1}}', "dp=2"
        )


@pytest.mark.parametrize("data", [None, b"\xff\xfe"], ids=["no file", "no text"])
def test_a_file_that_cannot_be_read(tmp_path, data: bytes | None) -> None:
    file = tmp_path / "a.toml"
    if data:
        file.write_bytes(data)
    with pytest.raises(UsageError, match=r"cannot be read|not UTF-8"):
        resolve({"ckpt_model": str(file)}, {})


@pytest.mark.parametrize("text", ["tp", "tp=x", "tp=2,tp=2", "xx=2", "tp=0", "tp=200,pp=200", "ep=3,dp=4", "zero=9"])
def test_parallelism_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="--ckpt-parallel"):
        resolve({"ckpt_parallel": text}, {})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**12) | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(data=st.data(), name=st.sampled_from(sorted(PUBLIC)))
@settings(deadline=None)
def test_any_value_in_a_configuration_is_taken_or_refused(tmp_path_factory, data: st.DataObject, name: str) -> None:
    config = dict(PUBLIC[name].config)
    for key in data.draw(st.lists(st.sampled_from(sorted(config)), max_size=3)):
        config[key] = data.draw(JSON)
    file = tmp_path_factory.mktemp("models") / "public.json"
    file.write_text(json.dumps(config))
    try:
        (model,) = resolve({"ckpt_model": str(file), "ckpt_parallel": "dp=8,zero=3"}, {}).models
    except UsageError:
        return
    assert model.parameters > 0


@given(data=st.data())
@settings(deadline=None)
def test_any_kept_definition_is_taken_or_refused(tmp_path_factory, data: st.DataObject) -> None:
    """A changed model definition in a report gives the model with the recorded digest, or an error."""
    file = tmp_path_factory.mktemp("models") / "a.toml"
    file.write_text(SMALL + PARALLEL)
    (model,) = resolve({"ckpt_model": str(file)}, {}).models
    plain = to_plain(model)
    for _ in range(data.draw(st.integers(1, 3))):
        part = data.draw(st.sampled_from([plain, plain["own"]])) if isinstance(plain["own"], dict) else plain
        if part:
            part[data.draw(st.sampled_from(sorted(part)))] = data.draw(JSON)
    try:
        kept = recorded_models([{"model": model.name, "definition": plain}])
    except (ValueError, TypeError, LookupError, AttributeError):
        return
    assert kept[model.name].digest == model.digest

"""The available models: models of the workload by name, a user's models by file, and models recorded in a run.

A user describes a model in a TOML file, or by the config.json of a model on Hugging Face (`config.hugging_face`). The
user describes its parallelism as ``tp=8,pp=4,ep=1,dp=2,zero=1``.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import cycle, islice
from typing import Any, NamedTuple, get_args

from pytest_ckpt.config.hugging_face import FAMILIES, ConfigFields, Numbers, UncountedError, from_config
from pytest_ckpt.config.optimizers import Optimizer
from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.models import (
    Bias,
    FeedForward,
    LayerKind,
    Model,
    OwnModel,
    Precision,
    layer_tensors,
    named,
    numbered_kinds,
)
from pytest_ckpt.facts.written import fault
from pytest_ckpt.sizing.architectures import MODELS
from pytest_ckpt.support.errors import UsageError, nearest
from pytest_ckpt.support.strict_json import parse
from pytest_ckpt.support.user_files import parse_toml, read_user_bytes, user_path

MODEL = "--ckpt-model"

# The maximum number of processes.
_MAXIMUM_RANKS = 16_384
_FIELDS = {"tp": "tensor", "pp": "pipeline", "ep": "expert", "dp": "data", "zero": "zero"}
_STAGES = (1, 2, 3)
_EXAMPLE = "tp=8,pp=4,dp=2,zero=1 is expected"

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\.(toml|json)")
_MAXIMUM, _MAXIMUM_LAYERS, _MAXIMUM_STATES, _MAXIMUM_TENSORS = 10_000_000, 2_000, 8, 100_000
_SIZES = {
    "layers": "layers", "hidden": "hidden", "feed_forward": "feed_forward", "vocabulary": "vocabulary",
    "heads": "heads", "key_value_heads": "key_value_heads",
}  # fmt: skip
_NUMBERS = {"head_size", "norms", "query_key_norm", "positions", "mlp_matrices"}
_MADE = {"layer_kinds", "layer_order", "counted_by", "optimizer_of_ends"}
_OF_KIND = ("attention", "feed_forward", "norms", "tensors")
_SWITCHES = {"norm_bias", "tied_embeddings"}
_TABLES: Mapping[str, Mapping[str, str]] = {
    "experts": {
        "count": "experts", "active": "active_experts", "shared": "shared_experts",
        "feed_forward": "expert_feed_forward", "dense_layers": "dense_layers", "router_bias": "router_bias",
    },
    "latent_attention": {
        "query_rank": "query_rank", "key_value_rank": "key_value_rank", "rope_size": "rope_size",
        "value_size": "value_size",
    },
    "precision": {"weights": "weights", "optimizer": "optimizer"},
    "parallel": {"tensor": "tp", "pipeline": "pp", "expert": "ep", "data": "dp", "zero": "zero"},
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Parallelism:
    """The number of ranks in each kind of parallelism (tensor, pipeline, expert, data).

    Expert parallelism shards within data parallelism, so ``expert`` is a divisor of ``data``. ``zero`` is the ZeRO
    stage; 3 is fully sharded.
    """

    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    data: int = 1
    zero: int = 1

    @property
    def processes(self) -> int:
        """The number of all ranks. Expert parallelism adds no ranks."""
        return self.tensor * self.pipeline * self.data

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Parallelism:
        """Return the parallelism from {short name: number}, with the names ``tp``, ``pp``, ``ep``, ``dp`` and ``zero``.

        Raises ValueError for an unknown name or an invalid number.
        """
        for name, value in given.items():
            if name not in _FIELDS:
                raise ValueError(f"'{name}' is not a kind of parallelism{nearest(name, _FIELDS)}; {_EXAMPLE}")
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAXIMUM_RANKS:
                raise ValueError(f"{name} is {value!r:.40}; a whole number from 1 to {_MAXIMUM_RANKS:,} is expected")
        if given.get("zero", 1) not in _STAGES:
            raise ValueError("zero is a ZeRO stage: 1 or 2 (the optimizer is sharded), or 3 (fully sharded)")
        found = cls(**{_FIELDS[name]: value for name, value in given.items()})
        if found.processes > _MAXIMUM_RANKS:
            raise ValueError(f"it has {found.processes:,} ranks; at most {_MAXIMUM_RANKS:,} are expected")
        if found.data % found.expert:
            raise ValueError(
                f"ep={found.expert} does not divide dp={found.data}: expert parallelism is part of data parallelism"
            )
        return found


def read_parallelism(text: str) -> Parallelism:
    """Return the parallelism from a text such as ``tp=8,pp=4,dp=2,zero=1``. Raises ValueError for an invalid text."""
    given: dict[str, int] = {}
    for word in text.split(","):
        name, equals, number = word.strip().partition("=")
        if not equals or not (number.isascii() and number.isdigit()) or len(number) > 9 or name in given:
            raise ValueError(_EXAMPLE)
        given[name] = int(number)
    return Parallelism.of(given)


@dataclass(frozen=True, kw_only=True, slots=True)
class Models:
    """The available models: models of the workload, models from files, and models recorded in a run (``kept``).

    If ``parallelism`` or ``optimizer`` is given, the given value replaces the value in the files.
    """

    parallelism: Parallelism | None = None
    optimizer: Optimizer | None = None
    kept: Mapping[str, Model] = field(default_factory=dict)

    def choose(self, words: Iterable[str]) -> tuple[Model, ...]:
        """Return the models with these names or files.

        The models of the workload come first, in the order of the workload. Other models follow. Raises UsageError for
        an unknown name, and for a file that cannot be read.
        """
        words = list(dict.fromkeys(words))
        found = [self._one(word) for word in words if self._recorded_model(word) or is_file(word)]
        ours = [name for name in MODELS if name in words or "all" in words]
        return (*(MODELS[name] for name in ours), *{model.name: model for model in found}.values())

    def _one(self, word: str) -> Model:
        return self._recorded_model(word) or read_model(word, MODEL, self.parallelism, self.optimizer)

    def _recorded_model(self, word: str) -> Model | None:
        """Return the recorded model that ``word`` names; None without such a model.

        ``word`` is the name of the model, or the name by which the user chose it. For any other ``word``, recorded
        models are compared by file name. If exactly one recorded model has the file name of ``word``, this model is
        returned.
        """
        if word in self.kept:
            return self.kept[word]
        file = word.rpartition("/")[2]
        alike = {model.name: model for model in self.kept.values() if model.own and model.own.file == file}
        return next(iter(alike.values())) if len(alike) == 1 else None


def recorded_models(checkpoints: Iterable[Mapping[str, Any]]) -> dict[str, Model]:
    """Return {name: model} for the users' models that the checkpoints of a plan define.

    Each model has two entries. The keys are its own name, and the name by which the user chose the model. Raises
    ValueError if a definition does not match the digest in the model's name.
    """
    kept: dict[str, Model] = {}
    for checkpoint in checkpoints:
        if not (plain := checkpoint.get("definition")):
            continue
        if wrong := fault(plain, Model):
            raise ValueError(f"its definition of {checkpoint['model']} is invalid: {wrong}")
        model = from_plain(Model, plain)
        if not model.own or not checked_model(model).name == model.name == checkpoint["model"]:
            raise ValueError(f"{checkpoint['model']} has a definition that does not match the digest in its name")
        kept |= {model.name: model, model.own.given_as: model}
    return kept


def is_file(word: str) -> bool:
    """Whether ``word`` is a file name. Any other word is the name of a model of the workload."""
    return "/" in word or word.lower().endswith((".toml", ".json"))


def read_model(word: str, option: str, parallelism: Parallelism | None, optimizer: Optimizer | None) -> Model:
    """Return the model that a file describes.

    If ``parallelism`` or ``optimizer`` is given, the given value replaces the value in the file. ``option`` is the name
    of the option in error messages. Raises UsageError if the file cannot be read or does not describe a model.
    """
    path = user_path(word, option)
    try:
        _check_name(path.name)
        data = read_user_bytes(path)
        given = parse(data) if path.suffix == ".json" else parse_toml(data.decode("utf-8"))
        if not isinstance(given, dict):
            raise ValueError("it is not a table of names and values")
        kinds = None if path.suffix == ".json" else _pop_kinds(given)
        numbers, written = (_from_json(given), None) if path.suffix == ".json" else _from_toml(given)
        cut = parallelism or written
        if cut is None:
            raise ValueError("the sharding of training is not stated: add --ckpt-parallel=tp=8,pp=4,dp=2,zero=1")
        if optimizer:
            weights = _value("weights", numbers.get("weights", "bfloat16"))
            numbers = {**numbers, **optimizer.numbers(weights)}
        source = {"file": path.name, "sha256": hashlib.sha256(data).hexdigest(), "given_as": word}
        model = _create_model(numbers, cut, source)
        return checked_model(_with_kinds(model, kinds) if kinds else model)
    except OSError as error:
        raise UsageError(
            f"{option} {word}: it cannot be read: {error.strerror}.", "Name a TOML or JSON file."
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{option} {word}: it is not UTF-8: {error.reason} at byte {error.start}.", "Save it as UTF-8."
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{option} {word}: {error}.",
            "Expected a TOML file with layers, hidden, feed_forward, vocabulary and heads, "
            "or a config.json of Hugging Face.",
        ) from None


def _from_json(given: ConfigFields) -> Numbers:
    """Return {field of a model: value} for a config.json. Raises ValueError if the model cannot be counted.

    transformers counts only models that `hugging_face` cannot count. A model that `hugging_face` counts therefore has
    the same digest on hosts with and without transformers.
    """
    try:
        return from_config(given)
    except UncountedError as error:
        reason = str(error)
    from pytest_ckpt.config.library_models import EXTRA, from_library, is_installed  # noqa: PLC0415 - rarely needed

    if not isinstance(given.get("model_type"), str):
        raise ValueError(reason)
    if not is_installed():
        raise ValueError(f"{reason}. If transformers knows it, the extra counts it: {EXTRA}")
    try:
        found = from_library(json.dumps(given))
    except ValueError as error:
        # Only the library knows this family, so its error is the final answer.
        raise ValueError(f"{reason}. {error}" if given["model_type"] in FAMILIES else str(error)) from None
    if not isinstance(found, str):
        return found
    code = ". Code that auto_map names is never run" if given.get("auto_map") else ""
    raise ValueError(f"{reason}. {found} does not know it either{code}")


def checked_model(model: Model) -> Model:
    """Return a user's model with its name, which contains a digest of its definition.

    Raises ValueError if a size is invalid or does not fit the parallelism.
    """
    own, cut = model.own, model.tensor_parallel * model.pipeline_parallel
    if own is None:
        raise ValueError("it is not a user's model")
    for record in (model, own):
        for number in fields(record):
            value = getattr(record, number.name)
            if isinstance(value, int) and not 0 <= value <= _MAXIMUM:
                _refuse(number.name, value, f"a whole number up to {_MAXIMUM:,}")
    parallel = {"tp": model.tensor_parallel, "pp": model.pipeline_parallel, "ep": own.expert_parallel}
    Parallelism.of({**parallel, "dp": max(1, model.processes // max(1, cut)), "zero": model.zero_stage})
    wrong = (
        (model.layers > _MAXIMUM_LAYERS, f"layers is {model.layers:,}: at most {_MAXIMUM_LAYERS:,} are expected"),
        (min(model.layers, model.heads, model.vocabulary) < 1, "layers, heads and vocabulary are at least 1"),
        (model.hidden < 64, f"hidden is {model.hidden}: at least 64 is expected"),
        (own.mlp_matrices not in {2, 3}, "mlp_matrices is 3 if the feed-forward is gated, else 2"),
        (
            not 1 <= len(own.optimizer) <= _MAXIMUM_STATES - len(own.optimizer_of_ends),
            f"optimizer names 1 to {_MAXIMUM_STATES} states",
        ),
        (own.head_size < 1 or not 1 <= model.key_value_heads <= model.heads, "key_value_heads is at most heads"),
        (model.pipeline_parallel > model.layers, f"{model.layers} layers are fewer than the pipeline's stages"),
        (
            model.processes < cut or model.processes % cut != 0,
            "its ranks are not a multiple of tp x pp",
        ),
        (model.hidden**2 < model.processes, f"it is too small to be sharded across {model.processes:,} ranks"),
        (own.dense_layers > model.layers, "dense_layers is more than layers"),
        (
            bool(own.experts) and not own.expert_feed_forward and not own.layer_kinds,
            "experts need their own feed_forward",
        ),
        (
            bool(own.experts) and not 1 <= own.active_experts <= own.experts,
            "active experts are from 1 to the number of experts",
        ),
        (not own.experts and own.expert_parallel > 1, "expert parallel needs experts"),
        (own.experts % own.expert_parallel != 0, f"{own.expert_parallel} ranks cannot share {own.experts} experts"),
        (
            bool(own.experts and own.dense_layers) and not model.feed_forward,
            "the first dense_layers need a feed_forward",
        ),
        (bool(own.key_value_rank) != bool(own.value_size), "latent attention has both key_value_rank and value_size"),
    )
    for is_wrong, reason in wrong:
        if is_wrong:
            raise ValueError(reason)
    _check_kinds(model, own)
    return named(model)


def _check_kinds(model: Model, own: OwnModel) -> None:
    """Raise ValueError if the kinds of layers of a model are invalid, or if a layer has no kind."""
    kinds, order = own.layer_kinds, own.layer_order
    if not kinds and not order:
        return
    if len(order) != model.layers + 3 or not all(0 <= index < len(kinds) for index in order):
        raise ValueError(f"layer_order names one of {len(kinds)} kinds for each of {model.layers + 3} layers")
    counts = [(kind.dense, kind.experts) for kind in kinds]
    if sum(len(dense) + len(experts) for dense, experts in counts) > _MAXIMUM_TENSORS:
        raise ValueError(f"kinds of layers have at most {_MAXIMUM_TENSORS:,} tensors")
    if not all(1 <= elements <= _MAXIMUM**2 for both in counts for part in both for elements in part):
        raise ValueError("a tensor of a kind of layers has at least one element")
    if any(elements % max(1, own.experts) for kind in kinds for elements in kind.experts):
        raise ValueError(f"the elements of a tensor of experts are a multiple of {own.experts} experts")
    if bool(own.experts) != any(kind.experts for kind in kinds):
        raise ValueError("a count of experts without tensors of experts, or the reverse, is not possible")


def _check_name(name: str) -> None:
    """Raise ValueError for a file name that is invalid, or too similar to the name of a model of the workload."""
    if not _FILE_NAME.fullmatch(name):
        raise ValueError("its name must be of letters, digits, '.', '_' and '-', and end with .toml or .json")
    bare = _bare(name)
    for known in MODELS:
        if bare.startswith(_bare(known)):
            raise ValueError(f"its name could be taken for {known}, which is a model of the workload: rename the file")


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _from_toml(given: Mapping[str, Any]) -> tuple[dict[str, Any], Parallelism | None]:
    known = {
        **dict.fromkeys((*_SIZES, *_NUMBERS, *_SWITCHES, "biases"), ""),
        **dict.fromkeys((*_TABLES, "layer_kinds", "kinds"), ""),
    }
    _refuse_unknown(given, known, "")
    numbers = {name: value for name, value in given.items() if name not in _TABLES}
    for table, names in _TABLES.items():
        rows = given.get(table, {})
        if not isinstance(rows, dict):
            raise ValueError(f"[{table}] is not a table")
        _refuse_unknown(rows, names, f" in [{table}]")
        if table != "parallel":
            numbers |= {names[name]: value for name, value in rows.items()}
    if "parallel" not in given:
        return numbers, None
    named_so = {_TABLES["parallel"][name]: value for name, value in given["parallel"].items()}
    return numbers, Parallelism.of(named_so)


class _Kinds(NamedTuple):
    """The kinds of layers in a TOML file.

    ``order`` lists the name of the kind of each layer. ``values`` is {name of a kind: values of this kind}.
    """

    order: list[str]
    values: Mapping[str, ConfigFields]


def _pop_kinds(given: Numbers) -> _Kinds | None:
    """Remove the kinds of layers from a TOML table and return these kinds; None if the table has no kinds.

    Raises ValueError if the kinds are incomplete or invalid.
    """
    order, values = given.pop("layer_kinds", None), given.pop("kinds", None)
    if order is None and values is None:
        return None
    if not isinstance(values, dict) or not all(isinstance(kind, dict) for kind in values.values()):
        raise ValueError("layer_kinds names kinds of layers, and a table [kinds.NAME] for each is expected")
    if not isinstance(order, list) or not order or not all(isinstance(name, str) for name in order):
        raise ValueError('layer_kinds is a list of names, such as ["linear", "linear", "full"]')
    for name in order:
        if name not in values:
            raise ValueError(f"layer_kinds names {name!r:.40}, and there is no table [kinds.{name:.40}]")
    for name, kind in values.items():
        if name not in order:
            raise ValueError(f"[kinds.{name:.40}] is not a name of layer_kinds")
        _refuse_unknown(kind, _OF_KIND, f" in [kinds.{name:.40}]")
    return _Kinds(order, values)


def _with_kinds(model: Model, kinds: _Kinds) -> Model:
    """Return a model whose layers have these kinds. Raises ValueError if the kinds do not fit the model.

    If the order of kinds has fewer entries than the model has layers, the order is repeated.
    """
    assert model.own
    if model.own.dense_layers:
        raise ValueError('dense_layers is not for a model with layer_kinds: give a kind feed_forward = "dense"')
    if model.layers > _MAXIMUM_LAYERS:
        raise ValueError(f"layers is {model.layers:,}: at most {_MAXIMUM_LAYERS:,} are expected")
    if len(kinds.order) > model.layers:
        raise ValueError(f"layer_kinds names {len(kinds.order):,} layers, and layers is {model.layers:,}")
    of_name = {name: _tensors_of_kind(model, name, values) for name, values in kinds.values.items()}
    order = tuple(islice(cycle(kinds.order), model.layers))
    ordered = [("embedding", model.tensors(0)), *((name, of_name[name]) for name in order)]
    ordered += [(name, model.tensors(model.layers + n)) for n, name in ((1, "head"), (2, "last norm"))]
    found, layer_order = numbered_kinds(tensors for _, tensors in ordered)
    # A kind is named after the first layer that has it.
    made = tuple(
        LayerKind(name=ordered[layer_order.index(number)][0], dense=dense, experts=experts)
        for number, (dense, experts) in enumerate(found)
    )
    return replace(model, own=replace(model.own, layer_kinds=made, layer_order=layer_order))


def _tensors_of_kind(model: Model, name: str, values: ConfigFields) -> tuple[list[int], list[int]]:
    own = model.own
    assert own
    where = f"of [kinds.{name:.40}]"
    has_attention, norms = values.get("attention", True), values.get("norms", own.norms)
    feed_forward = values.get("feed_forward", "experts" if own.experts else "dense")
    shapes = values.get("tensors", [])
    if not isinstance(has_attention, bool):
        _refuse(f"attention {where}", has_attention, "true or false")
    if feed_forward not in get_args(FeedForward):
        _refuse(f"feed_forward {where}", feed_forward, "one of " + ", ".join(get_args(FeedForward)))
    if feed_forward == "experts" and not own.experts:
        raise ValueError(f"feed_forward {where} is experts, and the table [experts] is missing")
    if feed_forward == "dense" and not model.feed_forward:
        raise ValueError(f"feed_forward {where} is dense, and the width feed_forward is missing")
    _value(f"norms {where}", norms)
    if not isinstance(shapes, list) or not all(isinstance(shape, list) and shape for shape in shapes):
        _refuse(f"tensors {where}", shapes, "a list of shapes, such as [[4096, 8192], [128]],")
    for shape in shapes:
        for size in shape:
            if not _value(f"a size in tensors {where}", size):
                raise ValueError(f"a size in tensors {where} is 0")
    dense, experts = layer_tensors(model, norms, feed_forward, has_attention=has_attention)
    return dense + [math.prod(shape) for shape in shapes], experts


def _refuse_unknown(given: Iterable[str], known: Iterable[str], where: str) -> None:
    for name in given:
        if name not in known:
            raise ValueError(
                f"'{name}'{where} is not a value of a model{nearest(name, known)}; known: {', '.join(known)}"
            )


def _create_model(given: Mapping[str, Any], cut: Parallelism, source: dict[str, Any]) -> Model:
    """Return a model with the given values, and default values for the other fields.

    ``cut`` is the parallelism. ``source`` contains the file name, the digest of the file, and the user's name for the
    file. Raises ValueError if a value is missing or invalid.
    """
    values = {name: _value(name, value) for name, value in given.items()}
    for name in ("layers", "hidden", "vocabulary", "heads"):
        if not values.get(name):
            raise ValueError(f"{name} is missing")
    has_width = values.get("feed_forward") or values.get("expert_feed_forward")
    if not has_width and not values.get("layer_kinds"):
        raise ValueError("feed_forward is missing")
    if "head_size" not in values and values["hidden"] % values["heads"]:
        raise ValueError(f"{values['heads']} heads do not divide a hidden size of {values['hidden']}: add head_size")
    values.setdefault("key_value_heads", values["heads"])
    values.setdefault("feed_forward", 0)
    values.setdefault("head_size", values["hidden"] // values["heads"])
    return Model(
        name="",
        tensor_parallel=cut.tensor,
        pipeline_parallel=cut.pipeline,
        zero_stage=cut.zero,
        processes=cut.processes,
        own=OwnModel(
            **source, expert_parallel=cut.expert, **{n: value for n, value in values.items() if n not in _SIZES}
        ),
        **{name: values[name] for name in _SIZES},
    )


def _value(name: str, value: Any) -> Any:
    if name in _MADE:
        return value
    words = {"biases": get_args(Bias), "optimizer": get_args(Precision), "weights": get_args(Precision)}
    if name in words:
        several = value if isinstance(value, list) else [value]
        for word in several:
            if word not in words[name]:
                raise ValueError(f"{name}: {word!r:.40} is not one of {', '.join(words[name])}")
        if name == "weights":
            return several[0] if len(several) == 1 else _refuse(name, value)
        return tuple(several)
    if name in {*_SWITCHES, "router_bias"}:
        return value if isinstance(value, bool) else _refuse(name, value, "true or false")
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAXIMUM:
        _refuse(name, value, f"a whole number up to {_MAXIMUM:,}")
    return value


def _refuse(name: str, value: Any, expected: str = "one of its words") -> Any:
    raise ValueError(f"{name} is {value!r:.40}, and {expected} is expected")

"""Lists the tensors of a model that transformers defines. This program runs in a separate process.

It reads a ``config.json`` from standard input and prints one JSON object. The object contains ``tensors`` (name, shape
and type of each), ``refused`` (a reason), or ``unknown`` (the version of a library that does not know the model).

The model is built on the ``meta`` device, which allocates no memory for tensors. Only classes of the library are used:
code that a file names (``auto_map``) is never loaded. The process cannot use the network or start programs. The process
is separate because the import of transformers takes seconds and about 500 MB of memory.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import resource
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

ConfigFields = Mapping[str, Any]
Answer = dict[str, Any]

_MAXIMUM_MEMORY = 32 << 30
# Most of the time is the import. The limit stops a file with an absurd number of modules.
_MAXIMUM_CPU_SECONDS = 180
_MAXIMUM_LAYERS, _MAXIMUM_EXPERTS = 2_000, 10_000
# Different names of the same field in the configuration classes of transformers.
_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts", "num_moe_experts")
_ACTIVE = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_k", "top_k_experts")
_SIZES = {
    "hidden": "hidden_size", "vocabulary": "vocab_size", "heads": "num_attention_heads",
    "key_value_heads": "num_key_value_heads", "feed_forward": "intermediate_size", "head_size": "head_dim",
}  # fmt: skip
# Classes with a text head come first, because training saves the head, too.
_HEADS = (
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", "MODEL_MAPPING_NAMES",
)  # fmt: skip
# The quantization for inference and the choice of attention code do not change the tensors of a training checkpoint.
_NO_TENSORS = ("quantization_config", "auto_map", "attn_implementation", "experts_implementation")
_COUNTS = re.compile(r"layers?$|^depths?$|_blocks$|^(n|num|moe_num)_[a-z_]*experts$")
# Exceptions of a model class for a field that it did not validate.
_OF_A_WRONG_FIELD = (AttributeError, LookupError, TypeError, AssertionError, ArithmeticError)
_FIELD = re.compile(r"field '\w+'")
_FOR_PROGRAMMERS = re.compile(r"<class |NoneType|object at 0x|object has no attribute|\w+Error\b|invalid literal")
_OF_PYTHON = re.compile(r"^[A-Z]\w*Error: ")
_FORBIDDEN = ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn")


def main() -> None:
    """Read a configuration from standard input, and print its tensors as JSON."""
    resource.setrlimit(resource.RLIMIT_AS, (_MAXIMUM_MEMORY, _MAXIMUM_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_MAXIMUM_CPU_SECONDS, _MAXIMUM_CPU_SECONDS))
    given = json.loads(sys.stdin.buffer.read())
    answer, sys.stdout = sys.stdout, sys.stderr
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    warnings.simplefilter("ignore")
    json.dump(answer_of(given), answer)


def answer_of(given: ConfigFields) -> Answer:
    """Return the JSON object that the program prints: the tensors of a model, a refusal, or an unknown model."""
    try:
        return _tensors_of(given)
    except MemoryError:
        return {"refused": f"its model needs more than {_MAXIMUM_MEMORY >> 30} GiB of memory even without its weights"}
    # The library validates fields in classes of several packages, each with different exceptions.
    except Exception as error:
        return {"refused": _sentence(error)}


def _tensors_of(given: ConfigFields) -> Answer:
    # The constructor of a class makes an object for each layer, so the number must be checked before.
    for name, number in _numbers(given):
        if number > (most := _MAXIMUM_EXPERTS if "expert" in name else _MAXIMUM_LAYERS):
            return {"refused": f"{name} is {number:,}: at most {most:,} are expected"}
    import torch  # noqa: PLC0415 - slow
    import transformers  # noqa: PLC0415 - slow

    kind = given["model_type"]
    if kind not in transformers.CONFIG_MAPPING:
        return {"unknown": transformers.__version__}
    kind_of_config = transformers.CONFIG_MAPPING[kind]
    sys.addaudithook(_forbid)
    config = kind_of_config.from_dict(_without(given))
    text = config.get_text_config()
    precision = str(getattr(text, "dtype", None) or getattr(config, "dtype", None) or "bfloat16").rpartition(".")[2]
    if precision not in {"float32", "float16", "bfloat16"}:
        return {"refused": f"torch_dtype is {precision:.40}; expected float32, float16 or bfloat16"}
    class_of_model = _class(transformers, config, given)
    torch.set_default_dtype(getattr(torch, precision))
    with torch.device("meta"):
        model = class_of_model(config)
    state = model.state_dict(keep_vars=True)
    tensors = list(_tensors(state))
    head = model.get_output_embeddings()
    return {
        "version": transformers.__version__,
        "model_class": class_of_model.__name__,
        "weights": precision,
        "tensors": tensors,
        "head": _name_of(state, getattr(head, "weight", None)),
        "sizes": {ours: n for ours, name in _SIZES.items() if isinstance(n := getattr(text, name, None), int)},
        "experts": _first(text, _EXPERTS) or 0,
        "active_experts": _first(text, _ACTIVE) or 0,
        "absent": _absent(given, text),
        "unread": sorted(_unread(given, config)),
    }


def _forbid(event: str, _: Any) -> None:
    if event in _FORBIDDEN:
        raise PermissionError(
            f"the class of the model wants to use {event}, which a description of sizes has no need of"
        )


def _without(given: ConfigFields) -> Answer:
    """Return a configuration without the fields that do not affect tensors. Nested tables are also searched."""
    return {
        name: _without(value) if isinstance(value, dict) else value
        for name, value in given.items()
        if name not in _NO_TENSORS and not name.startswith("_")
    }


def _numbers(given: ConfigFields) -> Iterator[tuple[str, float]]:
    """Yield (field, value) for each count of layers or experts in a configuration and its nested tables."""
    for name, value in given.items():
        if isinstance(value, dict):
            yield from _numbers(value)
        elif isinstance(value, int | float) and _COUNTS.search(name):
            yield name, value


def _class(transformers: Any, config: Any, given: ConfigFields) -> Any:
    """Return the library's class for a configuration: the class in ``architectures``, or the default of its type.

    Raises ValueError if the named class is for another configuration, or if the library has no class.
    """
    from transformers.models.auto import modeling_auto  # noqa: PLC0415 - slow

    named = given.get("architectures") or []
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise ValueError("architectures is a list of names of classes")
    for name in named:
        found: Any = getattr(transformers, name, None)
        if not inspect.isclass(found) or not issubclass(found, transformers.PreTrainedModel):
            continue
        if getattr(found, "config_class", None) is not type(config):
            raise ValueError(
                f"architectures names {name:.60}, and model_type {given['model_type']:.60} has other classes"
            )
        return found
    for table in _HEADS:
        if name := getattr(modeling_auto, table).get(given["model_type"]):
            return getattr(transformers, name[0] if isinstance(name, tuple) else name)
    raise ValueError(f"the library has no model for {given['model_type']:.60}")


def _tensors(state: Mapping[str, Any]) -> Iterator[tuple[str, list[int], str]]:
    """Yield (name, shape, type) of the tensors of a model; a tensor with several names is yielded once."""
    seen = set()
    for name, tensor in state.items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            yield name, list(tensor.shape), str(tensor.dtype).rpartition(".")[2]


def _name_of(state: Mapping[str, Any], wanted: Any) -> str:
    names = (name for name, tensor in state.items() if tensor is wanted)
    return next(names, "") if wanted is not None else ""


def _first(config: Any, names: tuple[str, ...]) -> int | None:
    return next((n for name in names if isinstance(n := getattr(config, name, None), int)), None)


def _fields(config: Any) -> set[str]:
    """Return the names of all fields of a configuration's class, including alternative names."""
    kind = type(config)
    own = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    return own | set(inspect.signature(kind.__init__).parameters) | set(kind.attribute_map) | set(kind.sub_configs)


def _absent(given: ConfigFields, text: Any) -> list[str]:
    """Return the required size fields (hidden, vocabulary, layers) that a configuration omits.

    For an omitted field, the library would use its default, which is the size of another model.
    """
    named = set(given).union(*(value for value in given.values() if isinstance(value, dict)))
    wanted = (_SIZES["hidden"], _SIZES["vocabulary"], "num_hidden_layers")
    return [n for n in wanted if hasattr(text, n) and named.isdisjoint((n, text.attribute_map.get(n, n)))]


def _unread(given: ConfigFields, config: Any, where: str = "") -> Iterator[str]:
    """Yield the names of the fields in a configuration that the library does not use.

    The library stores an unknown field as an attribute of its configuration object. The library converts old names of
    known fields, so old names are not yielded.
    """
    known = _fields(config)
    for name, value in given.items():
        nested = getattr(config, name, None) if name in type(config).sub_configs else None
        if isinstance(value, dict) and nested is not None and hasattr(nested, "sub_configs"):
            yield from _unread(value, nested, f"{where}{name}.")
        elif value and name not in known and name in vars(config):
            yield where + name


def _sentence(error: Exception) -> str:
    """Return an error message of the library in one line, without Python terms."""
    lines = [_OF_PYTHON.sub("", line.strip()).rstrip(".:") for line in str(error).splitlines() if line.strip()]
    message = "; ".join(lines[:2])[:200]
    if not message or isinstance(error, _OF_A_WRONG_FIELD) or _FOR_PROGRAMMERS.search(message):
        field = _FIELD.search(message)
        message = f"{field[0] if field else 'a field'} is missing or has a value of another type than its class expects"
    return f"transformers cannot build it: {message}"


if __name__ == "__main__":
    main()

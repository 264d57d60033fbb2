"""Models that transformers defines, counted from the tensors of the library's own class (extra ``models``).

A separate process (`config.library_tensors`) lists the tensors, because the import of transformers takes seconds and
much memory. This module assigns each tensor to a layer, and groups equal layers into kinds. Layers are numbered as in
`Model.tensors`:

- Layers 1 to L are the numbered modules, such as ``model.layers.7.…``. If a model has several series of numbered
  modules, the series with the most elements is used.
- Layer 0 contains the tensors before the first numbered layer (embedding, vision tower, projector). It belongs to
  the first pipeline stage.
- Layer L + 1 is the output matrix. Layer L + 2 contains all other tensors after the numbered layers.

A tensor with ``experts`` in its name belongs to experts. The number of experts follows from the numbers in such names,
or from the first dimension of the tensor.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from pytest_ckpt.config.hugging_face import ConfigFields, Numbers, adds_parameters
from pytest_ckpt.facts.models import LayerKind, numbered_kinds
from pytest_ckpt.support.processes import describe_exit
from pytest_ckpt.support.resources import python_path

EXTRA = "pip install 'pytest-ckpt[models]'"

_PROGRAM = "pytest_ckpt.config.library_tensors"
_NEEDED = ("transformers", "torch")
# The program ends itself at a limit of CPU time. This limit of elapsed time is longer, for a busy machine.
_MAXIMUM_SECONDS = 900
_MAXIMUM_TENSORS = 200_000
# If weights are bfloat16, norms and routers in float32 are under a thousandth of all bytes.
_MAXIMUM_OTHER_SHARE = 0.01

_NUMBERED = re.compile(r"^(.*?)\.(\d+)\.")
_EXPERT = re.compile(r"\.experts\.(?:(\d+)\.)?(.+)$")


class Listed(NamedTuple):
    """One tensor of a model: its name, shape and data type in the library."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """The number of elements of the tensor."""
        return math.prod(self.shape)


def is_installed() -> bool:
    """Whether the packages of the extra ``models`` are installed. The check does not import the packages."""
    return all(importlib.util.find_spec(name) for name in _NEEDED)


@lru_cache(maxsize=64)
def from_library(text: str) -> Numbers | str:
    """Return {field of a model: value} for a configuration.

    If transformers does not know the model, return a text with the version of transformers. ``text`` is the
    configuration, a JSON object with ``model_type``. Raises ValueError if transformers rejects the configuration, or if
    the tensors do not fit our `Model`.
    """
    given = json.loads(text)
    if not _may_know(given["model_type"]):
        return f"transformers {importlib.metadata.version('transformers')}"
    found = _listed(text)
    if unknown := found.get("unknown"):
        return f"transformers {unknown}"
    return numbers_of(found, given)


def _may_know(kind: str) -> bool:
    """Return whether the source files of transformers mention the model type ``kind``.

    This check is fast. It avoids the slow import of the library for most invalid files.
    """
    spec = importlib.util.find_spec("transformers")
    if spec is None or not spec.origin:
        return True
    tables = Path(spec.origin).parent.joinpath("models", "auto").glob("*.py")
    return any(f'"{kind}"' in table.read_text(encoding="utf-8", errors="replace") for table in tables)


def numbers_of(found: ConfigFields, given: ConfigFields) -> Numbers:
    """Return {field of a model: value} from ``found``, the output of `config.library_tensors`.

    ``given`` is the configuration. Raises ValueError if the output does not describe a supported model.
    """
    if refused := found.get("refused"):
        raise ValueError(refused)
    if absent := found["absent"]:
        raise ValueError(f"{', '.join(absent)} is missing, and a default of the library is of another model")
    if unread := [name for name in found["unread"] if adds_parameters(name.rpartition(".")[2], _at(given, name))]:
        one = len(unread) == 1
        raise ValueError(
            f"{', '.join(unread)} {'adds' if one else 'add'} parameters, and the class of transformers for "
            f"{given['model_type']} does not have {'it' if one else 'them'}"
        )
    tensors = [Listed(name, tuple(shape), dtype) for name, shape, dtype in found["tensors"]]
    if len(tensors) > _MAXIMUM_TENSORS:
        raise ValueError(f"it has {len(tensors):,} tensors; at most {_MAXIMUM_TENSORS:,} are expected")
    _refuse_several_precisions(tensors, found["weights"])
    kinds, order = kinds_of(tensors, found["head"])
    experts = experts_of(tensors, found["experts"])
    sizes = {name: value for name, value in found["sizes"].items() if value > 0}
    sizes.setdefault("heads", 1)
    sizes["key_value_heads"] = min(sizes.get("key_value_heads", sizes["heads"]), sizes["heads"])
    sizes.setdefault("head_size", max(1, sizes.get("hidden", 0) // sizes["heads"]))
    return sizes | {
        "layers": len(order) - 3,
        "experts": experts,
        "active_experts": min(found["active_experts"] or experts, experts),
        "weights": found["weights"],
        "layer_kinds": kinds,
        "layer_order": order,
        "counted_by": f"transformers {found['version']} {found['model_class']}",
    }


def kinds_of(tensors: Sequence[Listed], head: str) -> tuple[tuple[LayerKind, ...], tuple[int, ...]]:
    """Return (kinds of layers of a model, index of the kind of each layer from 0 to L + 2).

    ``head`` is the name of the output matrix. If this tensor comes before the numbered layers, it is also the
    embedding, and it remains in layer 0. Raises ValueError for a model without numbered layers.
    """
    elements: Counter[str] = Counter()
    for tensor in tensors:
        if found := _NUMBERED.match(tensor.name):
            elements[found[1]] += tensor.elements
    if not elements:
        raise ValueError("the library's class has no numbered layers")
    ((stack, _),) = elements.most_common(1)
    layers: dict[int, list[Listed]] = {}
    before: list[Listed] = []
    output: list[Listed] = []
    after: list[Listed] = []
    for tensor in tensors:
        found = _NUMBERED.match(tensor.name)
        if found and found[1] == stack:
            layers.setdefault(int(found[2]), []).append(tensor)
        elif layers and tensor.name == head:
            output.append(tensor)
        else:
            (after if layers else before).append(tensor)
    ordered = [before, *(layers.get(number, []) for number in range(max(layers) + 1)), output, after]
    kinds, order = numbered_kinds(map(_elements, ordered))
    named = tuple(
        LayerKind(name=f"kind {number}", dense=dense, experts=experts) for number, (dense, experts) in enumerate(kinds)
    )
    return named, order


def experts_of(tensors: Sequence[Listed], declared: int) -> int:
    """Return the number of experts in a layer, from the expert tensors of a model; 0 without such tensors.

    ``declared`` is the number of experts in the configuration. It is used if the tensor names contain no expert
    numbers. Raises ValueError if the tensors do not fit the number of experts.
    """
    numbers = {int(found[1]) for tensor in tensors if (found := _EXPERT.search(tensor.name)) and found[1]}
    joint = {tensor.shape[0] for tensor in tensors if (found := _EXPERT.search(tensor.name)) and not found[1]}
    if not numbers and not joint:
        return 0
    count = max(numbers) + 1 if numbers else declared or min(joint)
    if (numbers and count != len(numbers)) or any(size % count for size in joint):
        raise ValueError(f"its layers have different counts of experts, and {count} are expected in each")
    return count


def _elements(layer: Sequence[Listed]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return (element counts of the dense tensors, element counts of the expert tensors) of a layer.

    The count of an expert tensor is the sum over all experts.
    """
    of_experts: Counter[str] = Counter()
    dense = []
    for tensor in layer:
        if found := _EXPERT.search(tensor.name):
            of_experts[found[2]] += tensor.elements
        elif tensor.elements:
            dense.append(tensor.elements)
    return tuple(dense), tuple(of_experts.values())


def _refuse_several_precisions(tensors: Sequence[Listed], weights: str) -> None:
    other = sum(tensor.elements for tensor in tensors if tensor.dtype != weights)
    if other > _MAXIMUM_OTHER_SHARE * sum(tensor.elements for tensor in tensors):
        raise ValueError(f"{other:,} of its elements have another precision than {weights}")


def _at(given: Any, dotted: str) -> Any:
    for name in dotted.split("."):
        given = given[name]
    return given


def _listed(text: str) -> Numbers:
    """Run `config.library_tensors` with a configuration as JSON, and return its output.

    Raises ValueError if the process fails or exceeds its time limit.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", _PROGRAM],
            input=text.encode(),
            capture_output=True,
            timeout=_MAXIMUM_SECONDS,
            check=False,
            env={**os.environ, "PYTHONPATH": python_path()},
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"transformers did not list its tensors within {_MAXIMUM_SECONDS} s") from None
    if done.returncode:
        *_, last = done.stderr.decode(errors="replace").strip().splitlines() or ["it printed nothing"]
        raise ValueError(f"the process with transformers {describe_exit(done.returncode)}: {last:.200}")
    found: Numbers = json.loads(done.stdout)
    return found

"""Saves and loads with the library safetensors, without pytest-ckpt, as the recipient of a checkpoint does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.machine import patience

_SECONDS = 120
_METADATA = {"format": "pt"}

# Loads the tensors that the index names, file after file. Each file is mapped into memory.
_LOAD = """
import json, os, sys
from safetensors import safe_open

directory, scratch, metadata = sys.argv[1:]
with open(os.path.join(directory, "model.safetensors.index.json")) as file:
    index = json.load(file)
found, total = {}, 0
for number, (name, place) in enumerate(sorted(index["weight_map"].items())):
    with safe_open(os.path.join(directory, place), framework="np") as file:
        assert file.metadata() == json.loads(metadata)
        tensor = file.get_tensor(name)
    total += tensor.nbytes
    tensor.tofile(os.path.join(scratch, str(number)))
    found[name] = [str(number), str(tensor.dtype), list(tensor.shape), place]
assert index["metadata"]["total_size"] == total
"""
_SAVE = """
import json, os, sys
import numpy
from safetensors.numpy import save_file

directory, scratch = sys.argv[1:]
with open(os.path.join(scratch, "asked.json")) as file:
    asked = json.load(file)
for place, tensors in asked.items():
    state = {name: numpy.fromfile(os.path.join(scratch, data), dtype=kind) for name, (data, kind) in tensors.items()}
    save_file(state, os.path.join(directory, place), metadata={"format": "pt"})
found = {}
"""
_END = """
assert not [name for name in sys.modules if name.split(".")[0] == "pytest_ckpt"]
with open(os.path.join(scratch, "found.json"), "w") as file:
    json.dump(found, file)
"""


def load_bare(
    directory: Path, scratch: Path, *, metadata: Mapping[str, str] | None = _METADATA, dimensions: int = 1
) -> dict[str, tuple[str, bytes, str]]:
    """Load a checkpoint by its index; return {tensor name: (type, bytes, file name)}.

    Checks that each tensor has ``dimensions`` dimensions, and that each file header contains ``metadata``.
    """
    _run(_LOAD, directory, scratch, json.dumps(metadata))
    found = {}
    for name, (number, kind, shape, place) in json.loads((scratch / "found.json").read_text()).items():
        assert len(shape) == dimensions
        found[name] = (kind, (scratch / number).read_bytes(), place)
    return found


def save_bare(directory: Path, scratch: Path, files: Mapping[str, Mapping[str, tuple[str, bytes]]]) -> None:
    """Save tensors to files. ``files`` is {file name: {tensor name: (type, bytes)}}."""
    asked: dict[str, dict[str, tuple[str, str]]] = {}
    for place, tensors in files.items():
        asked[place] = {}
        for name, (kind, data) in tensors.items():
            number = f"{len(asked)}-{len(asked[place])}"
            (scratch / number).write_bytes(data)
            asked[place][name] = (number, kind)
    (scratch / "asked.json").write_text(json.dumps(asked))
    _run(_SAVE, directory, scratch)


def _run(program: str, directory: Path, scratch: Path, *words_of: str) -> None:
    words = [sys.executable, "-I", "-c", program + _END, str(directory), str(scratch), *words_of]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=patience(_SECONDS))
    assert done.returncode == 0, done.stderr

"""The layouts of a launch's files, for engines whose ranks do not import torch: made once, in a process that does.

They depend on the tensors and on torch's version alone, so they are kept in the user's cache folder for the next run.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pytest_ckpt.facts.codec import from_plain, to_plain
from pytest_ckpt.launching.recorder import write_atomically
from pytest_ckpt.ranks.engines.stream.container_layout import Container, container_key
from pytest_ckpt.sizing.models import Layout
from pytest_ckpt.support.resources import PACKAGE_HOME

_MAKER = PACKAGE_HOME / "pytest_ckpt" / "ranks" / "engines" / "stream" / "lay_out.py"


def lay_out(layouts: Iterable[Layout]) -> tuple[Container, ...]:
    """Return a container for every kind of file in the layouts. Raises RuntimeError when torch cannot lay it out."""
    kinds = {container_key(f.tensors): f.tensors for each in layouts for rank in each.ranks() for f in rank.files}
    kept = {key: container for key in kinds if (container := _kept(key))}
    if missing := {key: tensors for key, tensors in kinds.items() if key not in kept}:
        kept |= {container.key: container for container in _made(to_plain(list(missing.values())))}
        for key in missing:
            _keep(kept[key])
    return tuple(kept[key] for key in kinds)


def _made(tensors: Any) -> list[Container]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest_ckpt.ranks.engines.stream.lay_out"],
        cwd=PACKAGE_HOME,
        input=json.dumps(tensors),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the containers could not be laid out: {done.stderr.strip()[-500:]}")
    return [from_plain(Container, c) for c in json.loads(done.stdout)]


def _kept(key: str) -> Container | None:
    """Return a container that an earlier run kept, None when there is none or its file is not what was written."""
    try:
        digest, _, text = _place(key).read_text().partition("\n")
        if digest != _digest(text):
            return None
        container = from_plain(Container, json.loads(text))
    except (OSError, ValueError, TypeError, KeyError, ImportError):
        return None
    return container if container.key == key else None


def _keep(container: Container) -> None:
    text = json.dumps(to_plain(container))
    # Where nothing can be kept the next run lays out again.
    with contextlib.suppress(OSError):
        write_atomically(_place(container.key), f"{_digest(text)}\n{text}")


def _place(key: str) -> Path:
    """Return the file of a container: another one for other tensors, another torch, or another way to lay out."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    said = (key, importlib.metadata.version("torch"), sys.version, _MAKER.read_text())
    return base / "pytest-ckpt" / "layouts" / f"{_digest(json.dumps(said))}.json"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

"""The layouts of a launch's files, for engines whose ranks do not import torch: made once, in a process that does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from pytest_ckpt.ranks.container import Container, container_key
from pytest_ckpt.records import from_plain, to_plain
from pytest_ckpt.sizing.models import Layout

_PACKAGE_HOME = Path(__file__).resolve().parents[2]


def lay_out(layouts: Iterable[Layout]) -> tuple[Container, ...]:
    """Return a container for every kind of file in the layouts. Raises RuntimeError when torch cannot lay it out."""
    kinds = {container_key(f.tensors): f.tensors for each in layouts for rank in each.ranks() for f in rank.files}
    done = subprocess.run(
        [sys.executable, "-m", "pytest_ckpt.ranks.engines.lay_out"],
        cwd=_PACKAGE_HOME,
        input=json.dumps(to_plain(list(kinds.values()))),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the containers could not be laid out: {done.stderr.strip()[-500:]}")
    return tuple(from_plain(Container, c) for c in json.loads(done.stdout))

"""The example vendor directory in docs/examples, for tests."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.end_to_end import TINY

# Limits that a busy machine also meets, because none of these tests is about a time.
QUICK = (*TINY, "--ckpt-checkpoints-per-failure=1", "--ckpt-save-budget=50%", "--ckpt-load-budget=50%")
EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "acme"
SUITE = "the suite of ACME"


def put_example(home: Path) -> Path:
    """Copy the example directory into ``home``, under a name that contains spaces; return the copy."""
    return Path(shutil.copytree(EXAMPLE, home / SUITE, ignore=shutil.ignore_patterns("__pycache__")))

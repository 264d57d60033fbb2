"""Common code for tests with forged files: a function that changes a JSON document, and values to insert."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

NUMBERS = ("NaN", "Infinity", "-Infinity", "1e999", "-1", "0", "-0.0", "1e300", "9" * 40, '"0.1"', "true", "null", "[]")
"""Numbers in JSON that would be below any limit, or break a comparison."""

HOSTILE = st.sampled_from(
    [None, True, -1, 0, 1e300, 10**15, 1e-320, "", "x", "\x1b[2J", "\ud800", "../../up", [], {}, [[]], {"a": None}]
)


def edit(file: Path, change: Callable[[Any], object]) -> None:
    """Change the JSON document in a file with the function ``change``, and write it in the format of a run."""
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document, indent=1) + "\n")

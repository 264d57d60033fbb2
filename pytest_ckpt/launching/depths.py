"""The number of requests in flight that a run already knows. Later launches with the same number of ranks need no
ramp.
"""

from __future__ import annotations

import json
from pathlib import Path

from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.request_depth import RequestDepth
from pytest_ckpt.facts.settings import Settings


def known_depth(settings: Settings, directory: Path, processes: int) -> RequestDepth | None:
    """Return the number of requests in flight that the settings contain, or that a ramp with ``processes`` ranks found.

    Return None if a ramp must still find it. ``directory`` is the run directory. A resumed run uses the result of an
    earlier start.
    """
    if settings.io_depth:
        return RequestDepth(requests=settings.io_depth, origin="set")
    for file in sorted((directory / "measurements").glob("*.json")):
        measurement = json.loads(file.read_text())
        depth = measurement.get("depth")
        if depth and depth["origin"] == "ramp" and measurement["processes"] == processes:
            return from_plain(RequestDepth, depth)
    return None

"""The number of requests in flight that a run already knows. Later launches of as many ranks need no ramp."""

from __future__ import annotations

import json
from pathlib import Path

from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.request_depth import RequestDepth
from pytest_ckpt.facts.settings import Settings


def known_depth(settings: Settings, directory: Path, processes: int) -> RequestDepth | None:
    """Return the number of requests in flight that is set, or that a ramp with ``processes`` ranks found.

    None if a ramp must find it. ``directory`` is the directory of the run. A resumed run keeps the result of an earlier
    start.
    """
    if settings.io_depth:
        return RequestDepth(requests=settings.io_depth, origin="set")
    for file in sorted((directory / "measurements").glob("*.json")):
        measurement = json.loads(file.read_text())
        depth = measurement.get("depth")
        if depth and depth["origin"] == "ramp" and measurement["processes"] == processes:
            return from_plain(RequestDepth, depth)
    return None

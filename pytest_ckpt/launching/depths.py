"""The number of requests in flight, if this number is known before a launch. The launch then needs no ramp.

A ramp is a series of trial saves and loads with increasing numbers of requests in flight.
"""

from __future__ import annotations

import json
from pathlib import Path

from pytest_ckpt.facts.codec import from_plain
from pytest_ckpt.facts.request_depth import RequestDepth
from pytest_ckpt.facts.settings import Settings


def known_depth(settings: Settings, directory: Path, processes: int) -> RequestDepth | None:
    """Return the number of requests in flight from the settings, or from an earlier ramp with ``processes`` ranks.

    If the number is unknown and a ramp must determine it, return None. ``directory`` is the run directory, which also
    has the results of earlier starts.
    """
    if settings.io_depth:
        return RequestDepth(requests=settings.io_depth, origin="set")
    for file in sorted((directory / "measurements").glob("*.json")):
        measurement = json.loads(file.read_text())
        depth = measurement.get("depth")
        if depth and depth["origin"] == "ramp" and measurement["processes"] == processes:
            return from_plain(RequestDepth, depth)
    return None

"""A pytest plugin (``-p`` this module) that blocks a run after its ranks have started, while they wait."""

from __future__ import annotations

import signal
from pathlib import Path

HELD = "held"
"""The file that reports that the run is blocked."""


def pytest_runtestloop() -> None:
    """Report that the run is blocked, and wait until this process is killed."""
    Path(HELD).touch()
    signal.pause()

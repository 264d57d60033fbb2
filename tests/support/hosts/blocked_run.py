"""A pytest plugin, used with the option ``-p``, that blocks a run while its started ranks wait."""

from __future__ import annotations

import signal
from pathlib import Path

BLOCKED = "held"
"""The file that reports that the run is blocked."""


def pytest_runtestloop() -> None:
    """Create the file `BLOCKED`, and wait until this process is killed."""
    Path(BLOCKED).touch()
    signal.pause()

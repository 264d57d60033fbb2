"""Queries for the progress of a running run, from its files and processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from tests.support.end_to_end import Started, read_events, started_operation


def operates(action: str) -> Callable[[Started], bool]:
    """Return a function that returns whether the ranks of a run have started an operation such as ``save``."""
    return lambda started: any(f" {action} " in started_operation(e) for e in read_events(started.report))


def is_in_a_check(started: Started) -> bool:
    """Whether the run has started a check."""
    return any(file.stat().st_size for file in (started.report / "launches" / "checks").glob("*.log"))


def is_certifying(started: Started) -> bool:
    """Whether the separate process that evaluates the run exists."""
    for entry in Path(f"/proc/{started.process.pid}/task/{started.process.pid}/children").read_text().split():
        with contextlib.suppress(OSError):
            if b"pytest_ckpt.run.certify" in Path("/proc", entry, "cmdline").read_bytes():
                return True
    return False

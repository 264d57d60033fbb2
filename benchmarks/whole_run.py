"""Common code of benchmarks that run pytest completely, as a user does."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class WholeRun:
    """A completed run: its report, and the wall seconds and CPU seconds of the command with its child processes."""

    document: dict[str, Any]
    wall: float
    cpu: float


def run_pytest(target: str, **options: object) -> WholeRun:
    """Run pytest once on ``target``, and return the completed run.

    If pytest writes no report, exit with its output. ``options`` are options of pytest-ckpt without their prefix, such
    as ``scale="0.01"`` for ``--ckpt-scale=0.01``.
    """
    with tempfile.TemporaryDirectory() as name:
        report = Path(name) / "report"
        words = {"target": Path(target).absolute(), **options, "report": report}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
        command += ["--cluster=64", *(f"--ckpt-{key.replace('_', '-')}={value}" for key, value in words.items())]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        done = subprocess.run(command, cwd=name, capture_output=True, text=True, check=False)
        wall = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if not (report / "report.json").exists():
            sys.exit(done.stdout + done.stderr)
        document = json.loads((report / "report.json").read_text())
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return WholeRun(document, wall, cpu)


def only_measurement(document: dict[str, Any]) -> dict[str, Any]:
    """Return the measurement of a run that has exactly one measurement. Raises AssertionError if its launch failed."""
    (measurement,) = document["measurements"]
    assert measurement["failure"] is None, measurement["failure"]
    return dict(measurement)

"""Starts runs of pytest-ckpt on an object store, and reads the files of their report directories."""

from __future__ import annotations

from pathlib import Path

from tests.support.end_to_end import TINY, Run, Runner, Started
from tests.support.targets.object_server import CREDENTIALS, TARGET

# Options of runs whose objects have several parts: the larger file of a rank has 13 MiB.
IN_PARTS = (*(word for word in TINY if not word.startswith("--ckpt-scale")), "--ckpt-scale=1/5000")


def started(
    runner: Runner,
    *options: str,
    environment: dict[str, str] | None = None,
    of: tuple[str, ...] = TINY,
    suite: str = "performance",
) -> Started:
    """Start a run on the test bucket, with its credentials. The options ``of`` make the run small."""
    # The gate table is given explicitly, so the end-to-end runner does not set one.
    words = (*of, f"--ckpt-suite={suite}", *options)
    return runner.start(*words, target=TARGET, environment=CREDENTIALS | (environment or {}))


def subject(run: Run) -> str:
    """Return the only subject (workload) of a run."""
    (found,) = {c["subject"] for c in run.document["checkpoints"]}
    return str(found)


def texts_of(directory: Path) -> dict[str, str]:
    """Return {relative path: text} of all files below a directory."""
    return {
        p.relative_to(directory).as_posix(): p.read_text(errors="replace") for p in directory.rglob("*") if p.is_file()
    }

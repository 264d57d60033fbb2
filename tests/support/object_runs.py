"""Runs of pytest-ckpt on an object store: how they are started, and the content of their directories."""

from __future__ import annotations

from pathlib import Path

from tests.support.front_door import TINY, FrontDoor, Run, Started
from tests.support.targets.object_server import CREDENTIALS, TARGET

# Options of runs whose objects have several parts: the larger file of a rank has 13 MiB.
IN_PARTS = (*(word for word in TINY if not word.startswith("--ckpt-scale")), "--ckpt-scale=1/5000")


def started(
    door: FrontDoor,
    *options: str,
    environment: dict[str, str] | None = None,
    of: tuple[str, ...] = TINY,
    suite: str = "performance",
) -> Started:
    """Start a run on the bucket of the tests, with its credentials. ``of`` are options that reduce the run."""
    # The gate table is given explicitly, so the front door does not set one.
    words = (*of, f"--ckpt-suite={suite}", *options)
    return door.start(*words, target=TARGET, environment=CREDENTIALS | (environment or {}))


def subject(run: Run) -> str:
    """Return the single subject of a run."""
    (found,) = {c["subject"] for c in run.document["checkpoints"]}
    return str(found)


def texts_of(directory: Path) -> dict[str, str]:
    """Return the text of every file below a directory, by the name of the file."""
    return {
        p.relative_to(directory).as_posix(): p.read_text(errors="replace") for p in directory.rglob("*") if p.is_file()
    }

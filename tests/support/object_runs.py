"""Runs on an object store by the front door."""

from __future__ import annotations

from pathlib import Path

from tests.support.front_door import TINY, FrontDoor, Run, Started
from tests.support.targets.object_server import CREDENTIALS, TARGET

# Its objects have several parts: a rank's larger file is one of 13 MiB.
IN_PARTS = (*(word for word in TINY if not word.startswith("--ckpt-scale")), "--ckpt-scale=1/5000")


def started(
    door: FrontDoor,
    *options: str,
    environment: dict[str, str] | None = None,
    of: tuple[str, ...] = TINY,
    suite: str = "performance",
) -> Started:
    # The word for the gates is said, so that the front door says none.
    return door.start(*of, f"--ckpt-suite={suite}", *options, target=TARGET,
                      environment=CREDENTIALS | (environment or {}))  # fmt: skip


def subject(run: Run) -> str:
    (found,) = {c["subject"] for c in run.document["checkpoints"]}
    return found


def texts_of(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): p.read_text(errors="replace") for p in folder.rglob("*") if p.is_file()}

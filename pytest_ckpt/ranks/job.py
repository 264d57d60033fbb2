"""What the controller asks of the ranks: plain records that both sides import and that cross as one line of JSON."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One measurement. ``operations`` saves are followed by as many loads; ``seed`` is that of the run."""

    subject: str
    model: str
    mode: str
    processes: int
    scale: float
    operations: int
    engine: str
    seed: int
    drop_caches: str
    keep: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What one launch does: its tasks in order, in folders of their own below ``folder`` on the target."""

    processes: int
    folder: str
    deadline_seconds: float
    tasks: tuple[Task, ...]


def checkpoint_name(index: int) -> str:
    """Return the name of the folder of checkpoint ``index`` (from 1)."""
    return f"checkpoint-{index:04d}"


def partial_name(index: int) -> str:
    """Return the name that the folder has until the checkpoint is committed."""
    return f"{checkpoint_name(index)}.partial"

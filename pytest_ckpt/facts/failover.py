"""What a run saw when a component of the storage was broken in the middle of saves and loads."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ckpt.facts.commands import CommandRun, TriedKind, TriedOperation
from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.facts.proofs import Integrity

BREAKS: tuple[TriedKind, ...] = ("save", "save", "save", "load", "load", "load")
"""In what something is broken, one after the other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FailoverTrial:
    """Something was broken once, ``moment_seconds`` after operation ``moment_in`` (from 1) of ``operations`` began.

    ``operations`` ran one after the other until the break command had returned; then came the mend command, and a save
    while the storage rebuilds (``after``). ``committed_in_error`` says that a save failed and its checkpoint was there
    all the same; ``lost`` why a checkpoint that had been committed could not be loaded when all was mended.
    """

    kind: TriedKind
    moment_seconds: float
    broke: CommandRun
    operations: tuple[TriedOperation, ...]
    mended: CommandRun | None = None
    after: TriedOperation | None = None
    committed_in_error: bool = False
    lost: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failover:
    """Saves and loads in which something was broken, none of the subject's own.

    ``undisturbed`` are a save and a load before. ``integrity`` counts every checkpoint that was loaded to compare it;
    ``resident_fraction`` is the largest share of one that a page cache held before, None where that could not be seen.
    ``not_run`` says why there are fewer trials than there should be. ``failure`` is how the ranks ended where they did
    not come to the end; ``mended_after`` is the mend command where it ran after the end of the ranks.
    """

    break_command: str
    mend_command: str
    undisturbed: tuple[TriedOperation, ...] = ()
    trials: tuple[FailoverTrial, ...] = ()
    integrity: Integrity | None = None
    resident_fraction: float | None = None
    is_declared_cold: bool = False
    not_run: str = ""
    failure: Failure | None = None
    mended_after: CommandRun | None = None

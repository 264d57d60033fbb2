"""What a run saw when a component of the storage was broken in the middle of saves and loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_ckpt.facts.failure import Failure
from pytest_ckpt.facts.proofs import Integrity

Command = Literal["break", "mend"]
BrokenKind = Literal["save", "load"]

BREAKS: tuple[BrokenKind, ...] = ("save", "save", "save", "load", "load", "load")
"""In what something is broken, one after the other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandRun:
    """One run of a command of the user's. ``exit_code`` is None where it did not end, or could not be started.

    ``says`` is the end of what it wrote, its errors first, or why it did not end.
    """

    command: Command
    seconds: float
    exit_code: int | None
    says: str = ""

    @property
    def is_good(self) -> bool:
        """Whether it ended and said that it did what it is for."""
        return self.exit_code == 0

    @property
    def sentence(self) -> str:
        """Why it is not good, in a sentence."""
        says = f": {self.says}" if self.says else ""
        if self.exit_code is None:
            return f"The {self.command} command did not end well{says.rstrip('.')}."
        return f"The {self.command} command ended with exit code {self.exit_code}{says.rstrip('.')}."


@dataclass(frozen=True, kw_only=True, slots=True)
class FailoverOperation:
    """A save or a load, with or without something broken. Seconds on the clock of the slowest rank.

    ``quiet_seconds`` is the longest time in which ``quiet_rank`` moved no byte and ended no call, while it did not wait
    for other ranks. ``error`` says how it failed; empty: it succeeded.
    """

    kind: BrokenKind
    seconds: float
    quiet_seconds: float
    quiet_rank: int
    error: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class FailoverTrial:
    """Something was broken once, ``moment_seconds`` after operation ``moment_in`` (from 1) of ``operations`` began.

    ``operations`` ran one after the other until the break command had returned; then came the mend command, and a save
    while the storage rebuilds (``after``). ``committed_in_error`` says that a save failed and its checkpoint was there
    all the same; ``lost`` why a checkpoint that had been committed could not be loaded when all was mended.
    """

    kind: BrokenKind
    moment_seconds: float
    broke: CommandRun
    operations: tuple[FailoverOperation, ...]
    mended: CommandRun | None = None
    after: FailoverOperation | None = None
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
    undisturbed: tuple[FailoverOperation, ...] = ()
    trials: tuple[FailoverTrial, ...] = ()
    integrity: Integrity | None = None
    resident_fraction: float | None = None
    is_declared_cold: bool = False
    not_run: str = ""
    failure: Failure | None = None
    mended_after: CommandRun | None = None

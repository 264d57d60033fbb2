"""Commands of the user's that change the storage, and the saves and loads beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Command = Literal["break", "mend", "upgrade", "snapshot", "remove"]
"""What a command does: it breaks a component and mends it, changes the storage while it serves, takes a snapshot and
removes it."""

TriedKind = Literal["save", "load"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandRun:
    """One run of a command of the user's. ``exit_code`` is None where it did not end, or could not be started.

    ``output`` is the end of what it wrote, its errors first, or why it did not end.
    """

    command: Command
    seconds: float
    exit_code: int | None
    output: str = ""

    @property
    def is_good(self) -> bool:
        """Whether it ended and said that it did what it is for."""
        return self.exit_code == 0

    @property
    def sentence(self) -> str:
        """Why it is not good, in a sentence."""
        output = f": {self.output}" if self.output else ""
        if self.exit_code is None:
            return f"The {self.command} command did not end well{output.rstrip('.')}."
        return f"The {self.command} command ended with exit code {self.exit_code}{output.rstrip('.')}."


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedOperation:
    """A save or a load, with or without something broken. Seconds on the clock of the slowest rank.

    ``quiet_seconds`` is the longest time in which ``quiet_rank`` moved no byte and ended no call, while it did not wait
    for other ranks. ``error`` says how it failed; empty: it succeeded.
    """

    kind: TriedKind
    seconds: float
    quiet_seconds: float
    quiet_rank: int
    error: str = ""

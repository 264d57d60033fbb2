"""Who else wants to hear of a run while it works."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_ckpt.facts.events import Event
from pytest_ckpt.sizing.plan import PlannedCheckpoint


class Observer:
    """What else wants to hear of a run; this one does nothing with it."""

    def begin(self, checkpoints: Sequence[PlannedCheckpoint]) -> None:
        """Say what a launch is about to measure."""

    def take(self, event: Event) -> None:
        """Take in an event of rank 0."""

    def printed(self, text: str) -> None:
        """Take in a sentence about the launch itself."""

    def tick(self) -> None:
        """Do what has to be done several times a second."""

    def end(self) -> None:
        """Say that the launch is over."""

    def checking(self, name: str) -> None:
        """Say that a check of behaviour begins."""

    def checked(self, name: str, seconds: float) -> None:
        """Say that a check of behaviour is over, and how long it took."""

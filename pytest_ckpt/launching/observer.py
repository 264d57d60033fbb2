"""Who else wants to hear of a launch while it runs."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_ckpt.facts.events import Event
from pytest_ckpt.sizing.plan import PlannedCheckpoint


class Observer:
    """What else wants to hear of a launch; this one does nothing with it."""

    def begin(self, checkpoints: Sequence[PlannedCheckpoint]) -> None:
        """Say what is about to be measured."""

    def take(self, event: Event) -> None:
        """Take in an event of rank 0."""

    def said(self, text: str) -> None:
        """Take in a sentence about the launch itself."""

    def tick(self) -> None:
        """Do what has to be done several times a second."""

    def end(self) -> None:
        """Say that the launch is over."""

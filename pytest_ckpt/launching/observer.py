"""The observers of a run while it works: of every event, and before and after each launch that measures."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_ckpt.facts.events import Event
from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.sizing.plan import PlannedCheckpoint


class Observer:
    """Base class of observers of a run; ignores every call."""

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


class HookFailed(Exception):  # noqa: N818 - not an error of ours
    """A plugin's hook failed. The message names plugin and hook; ``trace`` is for whoever wrote it."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


class LaunchHooks:
    """Called before ranks are started and with each measurement that they made; ignores every call."""

    @property
    def is_active(self) -> bool:
        """Whether anything would be called."""
        return False

    def before(self, subjects: tuple[str, ...]) -> None:
        """Be called before ranks are started that measure these subjects. Raises HookFailed."""

    def after(self, measurement: Measurement) -> None:
        """Be called with each measurement when the ranks are gone, also one that failed. Raises HookFailed."""

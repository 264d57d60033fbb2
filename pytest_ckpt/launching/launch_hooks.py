"""Hooks before and after a launch of ranks that measure."""

from __future__ import annotations

from pytest_ckpt.facts.measurement import Measurement


class HookBroke(Exception):  # noqa: N818 - not an error of ours
    """A plugin's hook failed. The message names plugin and hook; ``trace`` is for whoever wrote it."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


class LaunchHooks:
    """What is called before ranks are started and with each measurement that they made; this one does nothing."""

    @property
    def is_active(self) -> bool:
        """Whether anything would be called."""
        return False

    def before(self, subjects: tuple[str, ...]) -> None:
        """Be called before ranks are started that measure these subjects. Raises HookBroke."""

    def after(self, measurement: Measurement) -> None:
        """Be called with each measurement when the ranks are gone, also one that failed. Raises HookBroke."""

"""The request depth of the engine ``stream``, and how this depth is chosen.

The request depth is the number of requests that a rank keeps in flight. A ramp tries increasing depths to determine the
depth of a measurement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_ckpt.facts.bounds import Count, CountFromOne, NotNegative
from pytest_ckpt.support.units import format_bytes, format_rate, format_seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class RampStep:
    """The rates of a save and a load of a scratch checkpoint with ``depth`` requests in flight on each rank.

    If a depth was tried twice, the higher rates are used, because a busy host only lowers a rate.
    """

    depth: CountFromOne
    save_bytes_per_second: NotNegative
    load_bytes_per_second: NotNegative

    def faster(self, other: RampStep | None) -> RampStep:
        """Return a step with the higher save rate and the higher load rate of two tries with the same depth.

        The tries are this step and ``other``. If ``other`` is None, return this step.
        """
        if other is None:
            return self
        return RampStep(
            depth=self.depth,
            save_bytes_per_second=max(self.save_bytes_per_second, other.save_bytes_per_second),
            load_bytes_per_second=max(self.load_bytes_per_second, other.load_bytes_per_second),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestDepth:
    """The number of requests in flight on each rank (``requests``).

    - ``origin``: how the number was chosen. ``set``: by the operator. ``ramp``: by a ramp. ``default``: by this
      program.
    - ``steps``, ``seconds``: the steps of the ramp, and its duration.
    - ``step_bytes``: the size of each save and load in the ramp.
    - ``because``: why there was no ramp, or why the ramp ended early; else empty.
    """

    requests: CountFromOne
    origin: Literal["set", "ramp", "default"]
    steps: tuple[RampStep, ...] = ()
    step_bytes: Count = 0
    seconds: NotNegative = 0.0
    because: str = ""

    @property
    def sentence(self) -> str:
        """The number, its origin and the ramp's rates as text: ``depth 4, found by a ramp. Saves and loads of …``."""
        if self.origin == "set":
            return f"depth {self.requests}, set"
        because = f"; {self.because}" if self.because else ""
        if self.origin == "default":
            return f"depth {self.requests}, default of this program{because}"
        steps = ", ".join(
            f"{step.depth}: {format_rate(step.save_bytes_per_second)} and {format_rate(step.load_bytes_per_second)}"
            for step in self.steps
        )
        return (
            f"depth {self.requests}, found by a ramp. Saves and loads of {format_bytes(self.step_bytes)}, by "
            f"depth: {steps} (the faster of two tries each, {format_seconds(self.seconds)}{because})"
        )

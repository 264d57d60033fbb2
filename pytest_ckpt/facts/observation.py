"""The result of a check of a target's behaviour."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_ckpt.facts.bounds import Count, NotNegative
from pytest_ckpt.facts.failure import BlockedCall

EVIDENCE_OF_CUTS = "evidence of the power cuts"
"""The name of the fact that contains the evidence of power cuts."""

POWER_CUTS = "power cuts"
"""The name of the fact with the number of power cuts without loss, and the resulting upper bound on the share of power
cuts with a loss.
"""

SECOND_MOUNT = "mount of the second client"
"""The name of the fact with the file-system type and options of the second client's mount."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Anomaly:
    """An observation that does not occur on a healthy target. ``where`` is the file and offset, or the time."""

    kind: str
    where: str
    seen: str
    expected: str

    @property
    def text(self) -> str:
        """The kind and location, then a sentence with the observed and the expected value."""
        return f'{self.kind}: {self.where}. The check saw "{self.seen}" and expected "{self.expected}".'


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """The result of one check of a target's behaviour.

    - ``trials``, ``seconds``: the number of attempts, and the duration of the check.
    - ``measured``: the measured value in ``unit``; None if the check measures no value.
    - ``anomalies``: the first anomalies. ``anomaly_count`` counts all anomalies.
    - ``not_run``: why the check could not be performed.
    - ``blocked``: the call that did not return within the deadline.
    - ``errno``: the error of the target's call that ended the check early.
    - ``reproduce``: the command that repeats this check.
    """

    requirement: str
    subject: str
    trials: Count = 0
    seconds: NotNegative = 0.0
    measured: float | None = None
    unit: str = ""
    anomaly_count: Count = 0
    anomalies: tuple[Anomaly, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)
    not_run: str = ""
    blocked: BlockedCall | None = None
    errno: str = ""
    reproduce: str = ""

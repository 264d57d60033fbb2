"""Verdicts on requirements, their outcomes and reason codes, and the grades of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pytest_ckpt.facts.bounds import Count, CountFromOne, RequirementId, Share

Severity = Literal["required", "advisory"]


Outcome = Literal["met", "failed", "not run", "waived"]


Grade = Literal["certified", "not certified", "incomplete", "rehearsal"]


Reason = Literal[
    "met",
    "over limit",
    "uneven",
    "error",
    "killed",
    "hung",
    "anomaly",
    "wrong bytes",
    "missing bytes",
    "not durable",
    "cached",
    "not steady",
    "run ended",
    "not measured",
    "not recorded",
    "too few",
    "unproven",
    "perhaps late",
    "client too slow",
    "host busy",
    "not possible",
    "command failed",
    "not given",
    "not planned",
    "not selected",
    "no test",
    "no facts",
    "hook failed",
    "check broke",
    "plugin",
]

REASONS: Mapping[Reason, str] = {
    "met": "the requirement is met",
    "over limit": "the measured value is beyond the limit",
    "uneven": "one rank or replica was served much more slowly than the others",
    "error": "a call failed in an operation that the requirement judges",
    "killed": "a rank was killed in an operation that the requirement judges",
    "hung": "a call did not return within the deadline",
    "anomaly": "the target did what a healthy one does not do",
    "wrong bytes": "loaded bytes differ from the saved ones",
    "missing bytes": "not all bytes were moved, or could be compared",
    "not durable": "a file, directory or commit was not made durable",
    "cached": "a cache contained the data to be read from the storage",
    "not steady": "the saves reached no steady state",
    "run ended": "the run ended before, for another cause",
    "not measured": "not all that is judged was measured",
    "not recorded": "the files of a published result do not show it",
    "too few": "too few ranks, operations or samples for the figure",
    "unproven": "the fact that the requirement judges was not observable",
    "perhaps late": "the time is not known exactly enough to decide",
    "client too slow": "the client delayed the operation, and the storage might have met the limit",
    "host busy": "other work on a host delayed its ranks, so a ratio of times does not decide",
    "not possible": "these ranks or this volume cannot show it",
    "command failed": "a command of the run that changes the storage failed",
    "not given": "the run was not given what it needs",
    "not planned": "the checkpoint does not fit the processes or the target",
    "not selected": "its suite was not selected",
    "no test": "its test did not run",
    "no facts": "the directory contains no facts about it",
    "hook failed": "a hook of a plugin failed",
    "check broke": "the check itself could not be made",
    "plugin": "a plugin decided it; its sentence gives the reason",
}
"""The reason codes of verdicts, and the meaning of each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptanceBound:
    """A conclusion from the measured operations about the operations that were not measured.

    ``met`` of ``trials`` operations met the limit. If operations are independent, at least the share ``share`` of all
    operations meets the limit, at the level of confidence ``confidence``. ``misses_allowed`` operations may miss the
    limit without failing the requirement. This number is above 0 only if the run planned misses and completed its plan.
    """

    trials: CountFromOne
    met: Count
    share: Share
    confidence: Share
    misses_allowed: Count = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeEstimate:
    """An estimate of the time that most operations of a run do not exceed, for a log-normal distribution of times.

    - ``seconds``: at the level of confidence ``confidence``, the share ``share`` of all operations takes at most this
      time.
    - ``fit``: the correlation of the probability plot; 1 is a perfect fit.
    - ``is_doubtful``: the fit is too low for a reliable estimate.
    """

    seconds: float
    share: Share
    confidence: Share
    fit: float
    is_doubtful: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The verdict on one requirement (``id``) and one subject. Requirement and subject identify the verdict.

    - ``margin``: the unused share of the limit, negative if the limit was missed; None without a numeric limit.
    - ``reason``: a code of `REASONS`. A waived verdict keeps its code.
    - ``because``: one sentence for a person. ``detail`` has the lines that explain this sentence.
    - ``basis``: the kind of evidence, if a proof can use several kinds.
    - ``bound``, ``estimate``: conclusions about operations that were not measured.
    """

    id: RequirementId
    subject: str
    severity: Severity
    outcome: Outcome
    reason: Reason
    measured: float | None
    limit: float | None
    unit: str
    margin: float | None
    because: str
    detail: str
    basis: Literal["", "declared", "seen", "other client", "timed canary", "volume"] = ""
    bound: AcceptanceBound | None = None
    estimate: TimeEstimate | None = None

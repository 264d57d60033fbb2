"""A start's measurements other than the judged one can fail a requirement, never meet it. Pure.

A save over the limit is a result, even if the run was interrupted afterwards. So the operations that had ended before
an interruption count. Operations that were repeated in order to add a suite count as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_ckpt.facts.measurement import Measurement, OperationKind
from pytest_ckpt.facts.verdict import Verdict
from pytest_ckpt.judging.gates import Gates
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.judging.verdicts import decide
from pytest_ckpt.sizing.limits import ClusterLimits

_KINDS: Mapping[str, OperationKind] = {"SAVE": "save", "LOAD": "load"}


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherMeasurement:
    """A measurement of a subject that was broken off, or made again to add patterns, and the number of its start."""

    start: int
    measurement: Measurement


def with_others(
    verdict: Verdict,
    requirement: Requirement,
    others: Sequence[OtherMeasurement],
    limits: ClusterLimits,
    gates: Gates,
) -> Verdict:
    """Return the verdict of a requirement: failed if one of the other measurements of its subject failed it."""
    if verdict.outcome == "failed" or requirement.plugin:
        return verdict
    for other in others:
        for measurement in _as_far_as_measured(other.measurement, requirement):
            before = decide(requirement, measurement, limits, gates)
            if before.outcome == "failed":
                return dataclasses.replace(before, because=f"In start {other.start}: {before.because}")
    return verdict


def _as_far_as_measured(measurement: Measurement, requirement: Requirement) -> Iterator[Measurement]:
    """Yield a measurement unchanged and, for a limit of every save or load, as if the ended operations were all."""
    yield measurement
    kind = _KINDS.get(requirement.id)
    if kind and (ended := len(measurement.of_kind(kind))):
        yield dataclasses.replace(measurement, operations_planned=ended)

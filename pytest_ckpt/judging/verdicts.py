"""Derives verdicts from a requirement and the facts about a subject. Pure.

A save over the limit is a result, even if the run was interrupted later. Therefore all completed operations of an
interrupted measurement count. If a later start of the run repeats operations to add a suite, the operations of the
earlier and the later start count.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_ckpt.facts.checks import CHECKS
from pytest_ckpt.facts.failure import describe_failure
from pytest_ckpt.facts.measurement import Measurement, OperationKind
from pytest_ckpt.facts.observation import Observation
from pytest_ckpt.facts.verdict import Reason, Severity, Verdict
from pytest_ckpt.judging.decision import Decision, not_decided
from pytest_ckpt.judging.gates import Gates
from pytest_ckpt.judging.given import JudgedFacts
from pytest_ckpt.judging.host_load import busy_host, on_busy_host
from pytest_ckpt.judging.reasons import is_default_limit
from pytest_ckpt.judging.remedies import explain, next_of, next_of_failure
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.sizing.limits import ClusterLimits
from pytest_ckpt.sizing.plan import FilesOfHost


def severity_of(requirement: Requirement, subject: str, gates: Gates) -> Severity:
    """Return the severity of a requirement for a subject, by the gate table of the run."""
    kind = gates.kind(requirement.id, subject, requirement.severity)
    return "required" if kind in ("required", "where given") else "advisory"


def decide(requirement: Requirement, measurement: Measurement, limits: ClusterLimits, gates: Gates) -> Verdict:
    """Return the verdict of one requirement on a measurement."""
    subject = str(measurement.subject)
    maximum = None if requirement.maximum is None else gates.limit(requirement.id, subject, requirement.maximum)
    decision = requirement.decide(JudgedFacts(measurement=measurement, limits=limits, maximum=maximum))
    if load := busy_host(requirement, measurement):
        decision = on_busy_host(requirement, decision, load)
    if decision.outcome == "met" and decision.basis and decision.basis not in gates.cold_bases:
        because = f"{decision.because} The gate table {gates.name} does not accept this proof ({decision.basis})."
        decision = not_decided("unproven", because, decision.detail)
    failure = measurement.failure
    if failure and failure.kind == "hook" and decision.outcome == "met":
        # The effect of the hook is unknown. A requirement that failed anyway has failed.
        decision = not_decided("hook failed", f"It was met, but {describe_failure(failure)}")
    if decision.outcome == "failed" and failure and decision.because.endswith(describe_failure(failure)):
        decision = _with_step(decision, next_of_failure(failure, gates.table))
    return _verdict(requirement, subject, decision, gates)


def decide_observed(
    requirement: Requirement,
    observation: Observation,
    gates: Gates,
    kind: str = "",
    files_of_host: FilesOfHost | None = None,
) -> Verdict:
    """Return the verdict of a requirement on the target's behaviour, from the result of one of its checks.

    ``kind`` is the type of the target's file system. Known failures of this type explain a verdict, but do not change
    the outcome. ``files_of_host`` is the planned number of files that each host creates in a save; None without a plan.
    """
    subject = observation.subject
    default = next((c.limit for c in CHECKS if (c.requirement, c.subject) == (requirement.id, subject)), None)
    maximum = gates.limit(requirement.id, subject, default)
    decision = requirement.decide(JudgedFacts(observation=observation, maximum=maximum, files_of_host=files_of_host))
    if decision.outcome == "failed":
        lines = explain(kind, f"{requirement.id}.{subject}")
        decision = dataclasses.replace(decision, detail=(*lines, *decision.detail))
        decision = _with_step(decision, next_of(observation.errno, gates.table, reads=False))
    return _verdict(requirement, subject, decision, gates)


def _with_step(decision: Decision, step: str) -> Decision:
    """Return ``decision`` with the user's first action (``step``) at the start of its detail.

    If ``step`` is empty, return ``decision`` unchanged.
    """
    return dataclasses.replace(decision, detail=(f"cure: {step}", *decision.detail)) if step else decision


def not_run(requirement: Requirement, subject: str, reason: Reason, because: str, gates: Gates) -> Verdict:
    """Return the verdict "not run" for a requirement, with its reason."""
    return _verdict(requirement, subject, not_decided(reason, because), gates)


def _verdict(requirement: Requirement, subject: str, decision: Decision, gates: Gates) -> Verdict:
    severity = severity_of(requirement, subject, gates)
    if (
        decision.reason in ("over limit", "uneven")
        and severity == "required"
        and is_default_limit(requirement.id, subject, gates)
    ):
        severity = "advisory"
        because = f"{decision.because} The limit is a default of this program: this is reported and does not decide."
        decision = dataclasses.replace(decision, because=because)
    if decision.reason == "not given" and gates.kind(requirement.id, subject, "") == "where given":
        # If a run lacks the optional inputs of a requirement, the gates do not require it.
        severity = "advisory"
    return Verdict(
        id=requirement.id,
        subject=subject,
        severity=severity,
        outcome=decision.outcome,
        reason=decision.reason,
        measured=decision.measured,
        limit=decision.limit,
        unit=decision.unit,
        margin=decision.margin,
        because=decision.because,
        detail="\n".join(decision.detail),
        basis=decision.basis or "",
        bound=decision.bound,
        estimate=decision.estimate,
    )


KIND_OF: Mapping[str, OperationKind] = {"SAVE": "save", "LOAD": "load"}
"""The requirements that limit the time of each operation, with the kind of these operations."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AdditionalMeasurement:
    """Another measurement of the judged subject, made by start number ``start`` of the run.

    The measurement is incomplete, or a later start made it to add patterns to the judged measurement.
    """

    start: int
    measurement: Measurement


def verdict_over_starts(
    verdict: Verdict,
    requirement: Requirement,
    others: Sequence[AdditionalMeasurement],
    limits: ClusterLimits,
    gates: Gates,
) -> Verdict:
    """Return the verdict on a subject over all starts of a run: the first failed verdict, else ``verdict``.

    ``verdict`` is the verdict on the judged measurement. ``others`` are all other measurements of the subject. A
    verdict on a plugin's requirement is returned unchanged.
    """
    if verdict.outcome == "failed" or requirement.plugin:
        return verdict
    for other in others:
        for measurement in _as_far_as_measured(other.measurement, requirement):
            before = decide(requirement, measurement, limits, gates)
            if before.outcome == "failed":
                return dataclasses.replace(before, because=f"In start {other.start}: {before.because}")
    return verdict


def _as_far_as_measured(measurement: Measurement, requirement: Requirement) -> Iterator[Measurement]:
    """Yield the measurement, and then a copy that plans only the operations that were completed.

    The copy is only for requirements that limit each save or load. With this copy, a completed operation over the limit
    counts even if the measurement is incomplete.
    """
    yield measurement
    kind = KIND_OF.get(requirement.id)
    if kind and (ended := len(measurement.of_kind(kind))):
        yield dataclasses.replace(measurement, operations_planned=ended)

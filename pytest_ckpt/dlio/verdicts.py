"""What a result of DLIO proves of each requirement, and what it cannot. Pure."""

from __future__ import annotations

from dataclasses import replace

from pytest_ckpt.dlio.results import KINDS, Result, comparable
from pytest_ckpt.dlio.slowest import ALL_RANKS
from pytest_ckpt.records import OperationKind, Verdict
from pytest_ckpt.requirements.catalogue import Requirement, decide, not_run
from pytest_ckpt.requirements.gates import Gates
from pytest_ckpt.sizing.limits import ClusterLimits
from pytest_ckpt.units import format_count, format_percent, format_seconds

NOT_TESTED = "DLIO does not test this."

_KIND_OF: dict[str, OperationKind] = {"SAVE": "save", "LOAD": "load"}
_MAY_BE_CACHED = "Part of what they read may have come from a cache."


def judge_result(result: Result, requirement: Requirement, limits: ClusterLimits, gates: Gates) -> Verdict:
    """Judge one requirement on a published result; what its files do not show is "not run", with the reason."""
    if kind := _KIND_OF.get(requirement.id):
        return _time(result, requirement, limits, gates, kind)
    if requirement.id == "STRAGGLER":
        return _straggler(result, requirement, limits, gates)
    if requirement.id == "REPEAT":
        return _repeat(result, requirement, limits, gates)
    because = {
        "INTEGRITY": "DLIO compares nothing that it loads with what it saved.",
        "COLD": _cold(result),
        "DURABLE-CALLS": _durable(result),
    }.get(requirement.id, NOT_TESTED)
    return not_run(requirement, result.measurement.subject, because, gates)


def _time(
    result: Result, requirement: Requirement, limits: ClusterLimits, gates: Gates, kind: OperationKind
) -> Verdict:
    measurement, figures = result.measurement, result.figures[kind]
    if not figures.operations and not figures.planned:
        because = f"The result holds no {kind}: those are another run's."
        return not_run(requirement, measurement.subject, because, gates)
    if figures.operations == figures.planned:
        measurement = replace(measurement, operations_planned=figures.operations)
    verdict = decide(requirement, measurement, limits, gates)
    lines = [verdict.detail, f"basis: {bases_text(result, kind)}"]
    if figures.published_seconds is not None:
        lines.append(f"published (mean of rank 0's own times): {format_seconds(figures.published_seconds)}")
    if figures.overstatement is not None and figures.slowest_mean_seconds is not None:
        lines.append(
            f"the same mean by the slowest process: {format_seconds(figures.slowest_mean_seconds)}, "
            f"{format_percent(figures.overstatement)} longer"
        )
    return replace(verdict, detail="\n".join(filter(None, lines)))


def bases_text(result: Result, kind: OperationKind) -> str:
    """Return ``9 inferred from rank 0, 1 rank 0 only``, or one word for all."""
    bases = result.figures[kind].bases
    if len(bases) == 1:
        return next(iter(bases))
    return ", ".join(f"{count} {basis}" for basis, count in bases.items())


def _straggler(result: Result, requirement: Requirement, limits: ClusterLimits, gates: Gates) -> Verdict:
    measurement = result.measurement
    complete = tuple(o for o in measurement.operations if o.basis == ALL_RANKS)
    if not complete:
        held = max(run.rank_count for run in result.runs)
        because = f"Only {format_count(held)} of {format_count(measurement.processes)} ranks recorded their times."
        return not_run(requirement, measurement.subject, because, gates)
    verdict = decide(requirement, replace(measurement, operations=complete), limits, gates)
    left_out = len(measurement.operations) - len(complete)
    if not left_out:
        return verdict
    because = f"{verdict.because} Of {left_out} other operations not every rank is recorded."
    return replace(verdict, because=because)


def _repeat(result: Result, requirement: Requirement, limits: ClusterLimits, gates: Gates) -> Verdict:
    measurement = result.measurement
    kept = tuple(o for kind in KINDS for o in comparable(measurement.of_kind(kind)))
    verdict = decide(requirement, replace(measurement, operations=kept), limits, gates)
    if left_out := len(measurement.operations) - len(kept):
        because = f"{verdict.because} {left_out} operations were left out: only rank 0's own time is known of them."
        verdict = replace(verdict, because=because)
    if not result.signs:
        return verdict
    return replace(verdict, outcome="failed", because=" ".join([*result.signs, _MAY_BE_CACHED, verdict.because]))


def _cold(result: Result) -> str:
    because = "DLIO neither drops caches nor looks what they hold."
    if result.signs:
        because = " ".join([because, *result.signs, _MAY_BE_CACHED])
    return because


def _durable(result: Result) -> str:
    because = "DLIO records no fsync of a file or folder, and commits by no rename."
    if any(run.files.facts.fsync for run in result.runs):
        because += " Its setting checkpoint.fsync is on here, but is stored under a name that its save never reads."
    return because

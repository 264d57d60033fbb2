"""Which result of several runs stands on one certificate, and which it takes the place of. Pure.

The newest run that looked into a requirement decides it, whatever came of it. A run that did not ask leaves the older
result as it is. What was measured together is taken together: the requirements of a suite on one checkpoint rest on one
measurement, so that no run lends its fast saves to another one's uncached loads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_ckpt.facts.measurement import Measurement
from pytest_ckpt.facts.verdict import Outcome, Reason, Verdict
from pytest_ckpt.judging.gates import Gates
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.judging.verdicts import decide
from pytest_ckpt.sizing.limits import ClusterLimits

UNASKED: frozenset[Reason] = frozenset(("not selected", "not given", "not planned", "no test"))
"""Reasons of verdicts on what a run did not look into."""

# A run may ask one requirement of a suite without the others: each has a launch, or turns of saves, of its own.
_ALONE: frozenset[Reason] = frozenset(("not selected", "not given", "not planned"))

Key = tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunResults:
    """What one run decided: ``verdicts`` are all that it lists, ``suites`` those that it chose."""

    label: str
    verdicts: Mapping[Key, Verdict]
    measurements: Mapping[str, Measurement]
    suites: tuple[str, ...]
    limits: ClusterLimits
    gates: Gates


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """A result and the run that it is of."""

    run: str
    verdict: Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Superseded:
    """An older result that a newer one took the place of."""

    id: str
    subject: str
    run: str
    outcome: Outcome
    because: str
    newer_run: str
    newer_outcome: Outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The results that stand, and those that do not stand any more."""

    results: tuple[Chosen, ...]
    superseded: tuple[Superseded, ...]


def choose(runs: Sequence[RunResults], catalogue: Mapping[str, Requirement]) -> Choice:
    """Choose among the results of ``runs``, oldest first. Every requirement and subject that one lists has one."""
    keys: dict[Key, None] = {}
    for run in runs:
        keys |= dict.fromkeys(run.verdicts)
    ordered = [key for id_ in catalogue for key in keys if key[0] == id_]
    results, superseded = [], []
    for key in ordered:
        asked = [run for run in runs if _is_asked(run, key, catalogue)]
        listed = [run for run in runs if key in run.verdicts]
        newest = asked[-1] if asked else listed[-1]
        verdict = _verdict(newest, key, catalogue)
        results.append(Chosen(run=newest.label, verdict=verdict))
        superseded += [_superseded(run, key, catalogue, newest, verdict) for run in asked[:-1]]
    return Choice(results=tuple(results), superseded=tuple(superseded))


def _is_asked(run: RunResults, key: Key, catalogue: Mapping[str, Requirement]) -> bool:
    """Whether a run looked into a requirement, or into what it was measured together with."""
    verdict = run.verdicts.get(key)
    if verdict is None:
        return False
    if verdict.reason not in UNASKED:
        return True
    if _refutation(run, key, catalogue):
        return True
    id_, subject = key
    requirement = catalogue[id_]
    is_measured = subject in run.measurements and requirement.suite in run.suites
    # A deselected test hides what was measured of it: the run is not asked about the rest alone.
    return is_measured and verdict.reason not in _ALONE


def _refutation(run: RunResults, key: Key, catalogue: Mapping[str, Requirement]) -> Verdict | None:
    """Return what a run's own saves and loads say against a requirement whose suite it did not select; else None.

    They are measured whatever the suite is. What they say for it counts for nothing: it was not asked.
    """
    verdict, measurement, requirement = run.verdicts[key], run.measurements.get(key[1]), catalogue[key[0]]
    if verdict.reason != "not selected" or measurement is None or requirement.suite != "performance":
        return None
    if not requirement.is_measured:
        return None
    found = decide(requirement, measurement, run.limits, run.gates)
    return found if found.outcome == "failed" else None


def _verdict(run: RunResults, key: Key, catalogue: Mapping[str, Requirement]) -> Verdict:
    return _refutation(run, key, catalogue) or run.verdicts[key]


def _superseded(
    run: RunResults, key: Key, catalogue: Mapping[str, Requirement], newest: RunResults, newer: Verdict
) -> Superseded:
    older = _verdict(run, key, catalogue)
    return Superseded(
        id=key[0],
        subject=key[1],
        run=run.label,
        outcome=older.outcome,
        because=older.because,
        newer_run=newest.label,
        newer_outcome=newer.outcome,
    )

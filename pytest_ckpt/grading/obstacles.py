"""Obstacles to a certificate. Before a run, each has a remedy; after the run, each is a reason for the grade. Pure.

A rehearsal is a run that cannot be certified because of its settings, for example a reduced scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_ckpt.facts.settings import ACCEPTANCE
from pytest_ckpt.facts.verdict import Grade
from pytest_ckpt.grading.catalogue import (
    REQUIREMENTS,
    checkpoints_of_requirement,
    checks_of_run,
    chosen_suites,
    compared_with,
    gates_something,
    is_given,
    requirements_of_run,
)
from pytest_ckpt.grading.scope import missing_model
from pytest_ckpt.judging.behaviour import missing_need
from pytest_ckpt.judging.cold import OTHER_PROOFS
from pytest_ckpt.judging.requirement import Requirement
from pytest_ckpt.sizing.files import requests_against_full_size
from pytest_ckpt.support.errors import UsageError
from pytest_ckpt.support.units import counted, format_binary_bytes, format_percent, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_ckpt.facts.settings import Settings
    from pytest_ckpt.facts.targets import TargetFacts
    from pytest_ckpt.judging.gates import Gates
    from pytest_ckpt.sizing.plan import Plan

_ACCEPTANCE = "--ckpt-profile=acceptance"
# With less data per file, much of a save's time is spent on open, sync and rename.
_LATENCY_SECONDS = 1.0

PossibleGrade = Grade | Literal["none"]

CacheVisibility = Literal["seen", "blind", "declared", "memory", "not_tested"]
"""Whether cached pages of the target can be counted.

``seen``: a file that had just been read appeared in the page cache. ``blind``: it did not. ``declared``: the target
declares that its clients have no cache. ``memory``: the target is memory of this host. ``not_tested``: the test needs a
write, and nothing was written yet.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class RehearsalReason:
    """Why a run is at best a rehearsal.

    ``now`` is the sentence before the run, ``reason`` the sentence after the run.
    """

    now: str
    reason: str
    remedy: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Obstacle:
    """An obstacle to a certificate, its remedy, and the best ``grade`` that is possible with this obstacle.

    The grade ``none`` means that the run would not start.
    """

    grade: PossibleGrade
    text: str
    remedy: str

    @property
    def line(self) -> str:
        """The obstacle and its remedy as a line."""
        return f"{self.text} Remedy: {self.remedy}."


_BLIND = Obstacle(
    grade="incomplete",
    text="COLD cannot be proven: no call counts cached pages of the target, and no other proof was given.",
    remedy="a mount that keeps read pages in the kernel's page cache from one open to the next (FUSE: without "
    "direct I/O, with auto_cache; not with kernel_cache, by which a second client reads old bytes); or one of these: "
    + OTHER_PROOFS,
)

_MEMORY = Obstacle(
    grade="not certified",
    text="COLD will fail: the target is memory of this host (tmpfs, zram, a loop device on a file in memory). No "
    "load reads from storage.",
    remedy="a directory on the storage under test (--ckpt-target)",
)


_DECLARED = Obstacle(
    grade="incomplete",
    text="COLD cannot be proven: the target's declaration that its clients do not cache is not accepted by this gate "
    "table.",
    remedy="several hosts (--ckpt-hosts), each of which then loads files that another host saved, or the size of "
    "every cache between clients and storage (--ckpt-client-cache) and checkpoints of three times as much",
)


def cache_visibility_before_writes(target: TargetFacts) -> CacheVisibility:
    """Return whether the target's cached pages can be counted, as far as this is known before the first write."""
    if target.is_memory:
        return "memory"
    return "not_tested" if {"page cache", "paths"}.issubset(target.capabilities) else "declared"


def _larger(scale: float, shortest_seconds: float) -> str:
    """Return a sentence with the scale at which the shortest time limit reaches 1 s.

    If no reduced scale is sufficient, the sentence states that only full size gives more time. Limits are proportional
    to the bytes of a checkpoint.
    """
    wanted = scale * _LATENCY_SECONDS / shortest_seconds
    if wanted >= ACCEPTANCE.scale:
        return "Only checkpoints of full size give it more."
    step = 10.0 ** (math.floor(math.log10(wanted)) - 1)
    rounded = min(ACCEPTANCE.scale, math.ceil(wanted / step) * step)
    return f"--ckpt-scale={rounded:.3g} gives it {format_seconds(shortest_seconds * rounded / scale)}."


def _requests(plan: Plan, settings: Settings) -> str:
    """Return a sentence on the additional requests per GB that a reduced scale causes; empty if there are none.

    Bytes that an engine adds to a file are not counted.
    """
    size = settings.io_size_bytes
    times = max((requests_against_full_size(c.layout, size) for c in plan.runnable), default=0.0)
    if not times:
        return ""
    counted_as = f"one per file, one per {format_binary_bytes(size)} of a tensor"
    return (
        f" Small checkpoints need more requests: up to {times:.3g} times as many per GB as at full size ({counted_as})."
    )


def shortfalls(plan: Plan, settings: Settings, gates: Gates) -> Iterator[RehearsalReason]:
    """Yield the reasons why a run with these settings is at best a rehearsal."""
    if not gates.certifies:
        weaker = f"The gate table '{gates.name}' is weaker than a certificate needs."
        remedy = "--ckpt-gate-table=auto, or a table without relaxed requirements"
        if gates.lacks:
            weaker = f"The gate table '{gates.name}' {gates.lacks}"
            remedy = gates.remedy or "a later version of pytest-ckpt"
        yield RehearsalReason(now=weaker, reason=weaker, remedy=remedy)
    if settings.scale < ACCEPTANCE.scale:
        shortest = min((c.demand.save_limit_seconds for c in plan.runnable), default=_LATENCY_SECONDS)
        is_short = shortest < _LATENCY_SECONDS
        latency = f" A save within {format_seconds(shortest)} is judged by latency." if is_short else ""
        larger = f" {_larger(settings.scale, shortest)}" if is_short else ""
        yield RehearsalReason(
            now=f"Checkpoints at {settings.scale:.4g} of the full size.{latency}{larger}",
            reason=f"The run was at {settings.scale:.4g} of the full size; limits were judged by bandwidth."
            f"{_requests(plan, settings)}{latency}",
            remedy=_ACCEPTANCE,
        )
    if settings.operations < ACCEPTANCE.operations:
        yield RehearsalReason(
            now=f"{counted(settings.operations, 'save and load', 'saves and loads')}; acceptance needs "
            f"{ACCEPTANCE.operations} of each.",
            reason=f"The run had {counted(settings.operations, 'save and load', 'saves and loads')}; acceptance needs "
            f"{ACCEPTANCE.operations} of each.",
            remedy=_ACCEPTANCE,
        )
    if settings.effort < 1 and "conformance" in chosen_suites(settings, gates):
        share = format_percent(settings.effort)
        yield RehearsalReason(
            now=f"Behaviour checks run {share} of their trials.",
            reason=f"Behaviour checks ran {share} of their trials.",
            remedy=_ACCEPTANCE,
        )
    if settings.compressible:
        yield RehearsalReason(
            now=f"{settings.compressible:.3g} of the content is zeros, which checkpoints do not contain.",
            reason=f"{settings.compressible:.3g} of the content was zeros, which checkpoints do not contain.",
            remedy="leave out --ckpt-compressible",
        )
    if settings.keep_last == 1:
        yield RehearsalReason(
            now="One checkpoint is kept and loaded repeatedly; acceptance needs 2.",
            reason="One checkpoint was kept and loaded repeatedly (--ckpt-keep-last); acceptance needs 2.",
            remedy="--ckpt-keep-last=2",
        )
    for planned in plan.checkpoints:
        if planned.rehearsal:
            yield RehearsalReason(
                now=f"{planned.rehearsal}.", reason=f"{planned.rehearsal}.", remedy="--ckpt-mode=full"
            )


def obstacles(
    plan: Plan,
    settings: Settings,
    gates: Gates,
    catalogue: Mapping[str, Requirement] = REQUIREMENTS,
    *,
    cache_visibility: CacheVisibility = "not_tested",
) -> list[Obstacle]:
    """Return every obstacle to a certificate that is known before a run, rehearsal reasons first.

    Unknown facts are not obstacles.
    """
    found = [Obstacle(grade="rehearsal", text=s.now, remedy=s.remedy) for s in shortfalls(plan, settings, gates)]
    found += [
        Obstacle(
            grade="incomplete",
            text=f"{c.subject} cannot run: {c.not_run.rstrip('.')}.",
            remedy="enough slots in --ckpt-hosts or --ckpt-ranks, or another --ckpt-model",
        )
        for c in plan.checkpoints
        if c.not_run
    ]
    if model_shortfall := missing_model(plan, gates):
        found.append(Obstacle(grade="incomplete", text=model_shortfall.text, remedy=model_shortfall.remedy))
    if cache_visibility == "blind" and requires_cold(settings, gates, catalogue) and not _has_other_proof(settings):
        found.append(_BLIND)
    if cache_visibility == "memory" and requires_cold(settings, gates, catalogue):
        found.append(_MEMORY)
    if cache_visibility == "declared" and _needs_measured_proof(settings, gates, catalogue):
        found.append(_DECLARED)
    return found + list(_not_requested(settings, gates, catalogue))


def _has_other_proof(settings: Settings) -> bool:
    """Whether a run can prove that loads were uncached if the kernel cannot count cached pages."""
    by_command = settings.drop_caches not in ("auto", "never")
    return (
        settings.has_several_hosts
        or by_command
        or bool(settings.second_mount)
        or settings.client_cache_bytes is not None
    )


def _needs_measured_proof(settings: Settings, gates: Gates, catalogue: Mapping[str, Requirement]) -> bool:
    """Whether COLD is required and has no proof, for a target that declares that its clients do not cache.

    If the gate table accepts declarations, the declaration is a proof. Other proofs require several hosts, or the
    declared size of the client's caches.
    """
    given = settings.has_several_hosts or settings.client_cache_bytes is not None
    return "declared" not in gates.cold_bases and not given and requires_cold(settings, gates, catalogue)


def not_given(settings: Settings, gates: Gates, catalogue: Mapping[str, Requirement] = REQUIREMENTS) -> list[str]:
    """Return the requirements that will not run because optional inputs are missing, one sentence each."""
    return [
        f"{r.id} will not run: {r.not_given}"
        for r in requirements_of_run(settings, gates, catalogue)
        if not r.is_requested(settings)
    ]


def unmeasured(
    plan: Plan, settings: Settings, gates: Gates, catalogue: Mapping[str, Requirement] = REQUIREMENTS
) -> list[str]:
    """Return a sentence for each planned subject that will not be measured.

    No requirement of the chosen suites applies to such a subject, and no comparison needs it.
    """
    chosen = chosen_suites(settings, gates, catalogue)
    requirements = [
        r for r in requirements_of_run(settings, gates, catalogue) if r.suite in chosen and r.is_requested(settings)
    ]
    judged = {c.subject for r in requirements if r.suite != "conformance" for c in checkpoints_of_requirement(r, plan)}
    judged |= compared_with(plan, settings, judged)
    return [
        f"{c.subject} will not be measured: the selected suites have no requirement for strategy {c.strategy.name}. "
        f"Use --ckpt-suite={','.join(dict.fromkeys(('performance', *chosen)))}."
        for c in plan.runnable
        if settings.measures and c.subject not in judged
    ]


def requires_cold(settings: Settings, gates: Gates, catalogue: Mapping[str, Requirement] = REQUIREMENTS) -> bool:
    """Return whether a certificate of this run requires COLD: loads must come from the storage, not from a cache."""
    chosen = chosen_suites(settings, gates, catalogue)
    requirements = requirements_of_run(settings, gates, catalogue)
    return any(r.id == "COLD" and r.suite in chosen and gates_something(r, settings, gates) for r in requirements)


def refusals(problems: Sequence[UsageError]) -> list[Obstacle]:
    """Return ``problems`` as obstacles. Each problem prevents the start of a run."""
    return [Obstacle(grade="none", text=p.what, remedy=p.remedy.rstrip(".")) for p in problems]


def possible_grade(found: Sequence[Obstacle]) -> PossibleGrade:
    """Return the best grade that is possible with these obstacles."""
    grades = {obstacle.grade for obstacle in found}
    if "none" in grades:
        return "none"
    worst_first: tuple[PossibleGrade, ...] = ("rehearsal", "not certified", "incomplete")
    return next((grade for grade in worst_first if grade in grades), "certified")


def _not_requested(settings: Settings, gates: Gates, catalogue: Mapping[str, Requirement]) -> Iterator[Obstacle]:
    """Yield an obstacle for each required suite that was not chosen, and for each missing input of a required check."""
    chosen = chosen_suites(settings, gates, catalogue)
    requirements = [r for r in requirements_of_run(settings, gates, catalogue) if gates_something(r, settings, gates)]
    for suite in dict.fromkeys(r.suite for r in requirements if r.suite not in chosen):
        yield Obstacle(grade="incomplete", text=f"{suite.capitalize()} suite not selected.", remedy="--ckpt-suite=auto")
    needs: dict[str, list[str]] = {}
    for requirement in requirements:
        for check in checks_of_run(requirement, settings, gates) if requirement.suite in chosen else ():
            is_required = gates.kind(check.requirement, check.subject, requirement.severity) == "required"
            if is_required and not is_given(check, settings):
                needs.setdefault(missing_need(check), []).append(check.name)
    for need, names in needs.items():
        missing, _, remedy = need.rstrip(").").partition(" (")
        checks = f"{len(names)} mandatory checks need it" if len(names) > 1 else f"{names[0]} needs it"
        yield Obstacle(grade="incomplete", text=f"{missing}: {checks}.", remedy=remedy)
